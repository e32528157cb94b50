// SPDX-License-Identifier: Apache-2.0
// Who waits for memory of a pool: in which order, until when, and what lets them go on.
#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)

// One slab; all of it may be lent.
PoolOptions one_slab(std::size_t bytes) {
  PoolOptions options = small_pool(bytes);
  options.slab_bytes = bytes;
  return options;
}

TEST(MemoryWaiter, FirstComeFirstServed) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer all = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer first(rig, rig.acquire(64 * kKiB));
  AwaitedBuffer second(rig, rig.acquire(64 * kKiB));
  AwaitedBuffer third(rig, rig.acquire(64 * kKiB));
  EXPECT_EQ(rig.pool.stats().waiting, 3u);
  rig.give(all);
  EXPECT_TRUE(first.ok());
  EXPECT_FALSE(second.done());
  rig.give(first);
  EXPECT_TRUE(second.ok());
  EXPECT_FALSE(third.done());
  rig.give(second);
  EXPECT_TRUE(third.ok());
  EXPECT_EQ(rig.pool.stats().waits, 3u);
  EXPECT_EQ(rig.pool.stats().waiting, 0u);
}

TEST(MemoryWaiter, AReleaseNeverPassesAWaiterBy) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer all = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB));
  all = Buffer();
  EXPECT_FALSE(waiter.done()) << "told from the poller's ready queue, not inside the release";
  EXPECT_EQ(rig.pool.try_acquire(4096).status().code(), Code::resource_exhausted);
  rig.turn();
  EXPECT_TRUE(waiter.ok());
}

TEST(MemoryWaiter, TheDeadlineIsExact) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer all = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB, 10ms));
  rig.advance(10ms - 1ns);
  EXPECT_FALSE(waiter.done());
  rig.advance(1ns);
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status().code(), Code::deadline);
  EXPECT_NE(waiter.status().what().find("bytes_max"), std::string_view::npos);
  EXPECT_EQ(rig.pool.stats().timeouts, 1u);
  EXPECT_EQ(rig.pool.stats().waiting, 0u);
  all = Buffer();
  EXPECT_TRUE(rig.pool.try_acquire(64 * kKiB).ok()) << "nothing was handed to the one that left";
}

TEST(MemoryWaiter, ADroppedWaiterGetsNothing) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer all = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer first(rig, rig.acquire(64 * kKiB));
  AwaitedBuffer second(rig, rig.acquire(64 * kKiB));
  first.started.drop();
  rig.give(all);
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(second.ok());
}

// Served, but dropped before its poller told it: the memory goes on to the next.
TEST(MemoryWaiter, WhatADroppedWaiterWasJustGivenGoesToTheNext) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer all = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer first(rig, rig.acquire(64 * kKiB));
  AwaitedBuffer second(rig, rig.acquire(64 * kKiB));
  all = Buffer();
  first.started.drop();
  rig.turn();
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(second.ok());
}

TEST(MemoryWaiter, ASmallRequestIsNotHeldUpByALargeOne) {
  PoolRig rig(one_slab(kMiB));
  Buffer half = must(rig.pool.try_acquire(512 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(kMiB));
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  EXPECT_FALSE(large.done());
  EXPECT_TRUE(small.ok());
  EXPECT_TRUE(rig.pool.try_acquire(4 * kKiB).ok());
  rig.give(half);
  EXPECT_FALSE(large.done());
  rig.give(small);
  EXPECT_TRUE(large.ok());
}

// Mutation: without counting in overtake_locked this fails.
TEST(MemoryWaiter, ALargeRequestIsOvertakenByItsOwnBytesAtMost) {
  PoolRig rig(one_slab(kMiB));
  Buffer half = must(rig.pool.try_acquire(512 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(kMiB));
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(rig.pool.try_acquire(4 * kKiB).ok()) << i;
  const Status status = rig.pool.try_acquire(4 * kKiB).status();
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_NE(status.what().find("others wait"), std::string_view::npos) << status.what();
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  EXPECT_FALSE(small.done());
  rig.give(half);
  EXPECT_TRUE(large.ok());
  EXPECT_FALSE(small.done());
  rig.give(large);
  EXPECT_TRUE(small.ok());
}

TEST(MemoryWaiter, ARequestOfTheSameSizeNeverPasses) {
  PoolRig rig(one_slab(128 * kKiB));
  Buffer a = must(rig.pool.try_acquire(64 * kKiB));
  Buffer b = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(128 * kKiB));
  a = Buffer();
  EXPECT_EQ(rig.pool.try_acquire(128 * kKiB).status().code(), Code::resource_exhausted);
  AwaitedBuffer again(rig, rig.acquire(128 * kKiB));
  rig.give(b);
  EXPECT_TRUE(large.ok());
  EXPECT_FALSE(again.done());
}

// The one in front held the others up (its budget of overtaking is spent) until its deadline.
TEST(MemoryWaiter, WhoWaitedBehindADeadlineGoesOnAtOnce) {
  PoolRig rig(one_slab(128 * kKiB));
  Buffer keep = must(rig.pool.try_acquire(4 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(128 * kKiB, 5ms));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(rig.pool.try_acquire(64 * kKiB).ok());
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  rig.advance(5ms - 1ns);
  EXPECT_FALSE(small.done());
  rig.advance(1ns);
  EXPECT_EQ(large.status().code(), Code::deadline);
  EXPECT_TRUE(small.ok());
}

TEST(MemoryWaiter, WhoWaitedBehindADroppedOneGoesOnAtOnce) {
  PoolRig rig(one_slab(128 * kKiB));
  Buffer keep = must(rig.pool.try_acquire(4 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(128 * kKiB));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(rig.pool.try_acquire(64 * kKiB).ok());
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  large.started.drop();
  rig.turn();
  EXPECT_TRUE(small.ok());
}

// Found: only the first of the queue, when dropped, let the others go on.
TEST(MemoryWaiter, WhoWaitedBehindOneDroppedFromTheMiddleGoesOnAtOnce) {
  PoolOptions options = one_slab(kMiB);
  options.landing_reserve_bytes = 256 * kKiB;
  PoolRig rig(options);
  Buffer lent = must(rig.pool.try_acquire(512 * kKiB));
  AwaitedBuffer ordinary(rig, rig.acquire(512 * kKiB));
  std::vector<Block> landed = land_now(rig.pool, {4 * kKiB});
  AwaitedLanding large(rig, rig.land({512 * kKiB}));
  // Spend what may overtake the landing in the middle; within the reserve nothing else is in the
  // way of the last one.
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(rig.pool.core().try_acquire_landing(std::array{std::size_t{128 * kKiB}}).ok());
  }
  AwaitedLanding last(rig, rig.land({4 * kKiB}));
  EXPECT_FALSE(last.done());
  large.started.drop();
  rig.turn();
  EXPECT_TRUE(last.ok());
  EXPECT_FALSE(ordinary.done());
}

TEST(MemoryWaiter, TheCachesOfOtherThreadsAreFound) {
  PoolRig rig(one_slab(64 * kKiB));
  std::atomic<int> stage{0};
  std::thread other([&] {
    { Buffer buffer = must(rig.pool.try_acquire(64 * kKiB)); }
    stage = 1;
    stage.notify_all();
    stage.wait(1);
    Buffer buffer = must(rig.pool.try_acquire(4 * kKiB));  // and one that waits sees no cache
    stage = 3;
    stage.notify_all();
    stage.wait(3);
  });
  stage.wait(0);
  AwaitedBuffer whole(rig, rig.acquire(64 * kKiB));
  EXPECT_TRUE(whole.ok());
  rig.give(whole);
  stage = 2;
  stage.notify_all();
  stage.wait(2);
  AwaitedBuffer again(rig, rig.acquire(64 * kKiB));
  EXPECT_FALSE(again.done());
  stage = 4;
  stage.notify_all();
  other.join();
  rig.turn();
  EXPECT_TRUE(again.ok()) << "what the other thread released went to its cache";
}

TEST(MemoryWaiter, TheOldestLeaseEndsForRoom) {
  PoolRig rig(one_slab(128 * kKiB));
  const TimePoint start = rig.clock.now();
  memory::LeaseHandle old = std::move(*lend(rig.pool, block_of(rig.pool, 64 * kKiB), start));
  memory::LeaseHandle young =
      std::move(*lend(rig.pool, block_of(rig.pool, 64 * kKiB), start + Duration(100us)));
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB));
  EXPECT_TRUE(old->live()) << "younger than room_lease_age_min";
  rig.advance(1ms);
  EXPECT_FALSE(old->live());
  EXPECT_EQ(old->end_reason(), memory::LeaseEnd::room);
  EXPECT_TRUE(waiter.ok());
  EXPECT_TRUE(young->live());
  EXPECT_EQ(rig.pool.stats().leases_ended_for_room, 1u);
}

TEST(MemoryWaiter, QuarantineThatEndsServesTheNext) {
  PoolRig rig(one_slab(64 * kKiB));
  Buffer buffer = must(rig.pool.try_acquire(64 * kKiB));
  memory::Landing landing = std::move(*memory::Landing::into_buffer(std::move(buffer), 4096));
  landing.set_quarantine(QuarantineReason::read_in_flight, rig.clock.now());
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB));
  rig.advance(1s);
  EXPECT_FALSE(waiter.done()) << "time releases nothing";
  rig.give(landing);
  EXPECT_TRUE(waiter.ok());
}

TEST(MemoryWaiter, WhoWaitsWhenThePoolGoesIsToldSo) {
  test::Rig rig;
  std::optional<Pool> pool(std::in_place, one_slab(64 * kKiB), &rig.clock);
  Buffer all = must(pool->try_acquire(64 * kKiB));
  AwaitedBuffer waiter(rig, pool->acquire(64 * kKiB, 10s));
  pool.reset();
  rig.turn();
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status().code(), Code::cancelled);
}

// The stack stays flat however many wait without a poller and drop at once what they get.
TEST(MemoryWaiter, WithoutAPollerAChainOfReleasesDoesNotRecurse) {
  ManualClock clock;
  Pool pool(one_slab(64 * kKiB), &clock);
  Buffer all = must(pool.try_acquire(64 * kKiB));
  int served = 0;
  std::vector<Started> waiting;
  for (int i = 0; i < 2'000; ++i) {
    waiting.push_back(pawl::start(
        pool.acquire(64 * kKiB),
        Callback<Result<Buffer>>{
            [](void* to, Result<Buffer> got) { *static_cast<int*>(to) += got.ok(); }, &served}));
  }
  all = Buffer();
  EXPECT_EQ(served, 2'000);
}

}  // namespace
}  // namespace pawl
