// SPDX-License-Identifier: Apache-2.0
// How a pool grows: off the poller, by what is left, by less where the system refuses.
#include <condition_variable>

#include "memory_fixture.h"
#include "support/host_kind.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)

/// Allocates when it is told to, and says on which thread.
class SlowMemory final : public testing::HostKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "slow"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    std::unique_lock lock(mutex_);
    thread = std::this_thread::get_id();
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ >= asked_; });
    return HostKind::allocate(bytes);
  }

  void wait_until_asked(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times; });
  }
  void let(int times) {
    const std::lock_guard lock(mutex_);
    open_ = times;
    changed_.notify_all();
  }
  std::thread::id thread;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0, open_ = 0;
};

void turn_until(PoolRig& rig, const AwaitedBuffer& awaited) {
  while (!awaited.done()) {
    if (!rig.poller.run_once()) std::this_thread::yield();
  }
}

TEST(MemoryGrowth, HappensOffThePoller) {
  SlowMemory memory;
  PoolOptions options = small_pool();
  options.grow_inline = false;
  options.kind = &memory;
  PoolRig rig(options);
  const Status growing = rig.pool.try_acquire(4096).status();
  EXPECT_EQ(growing.code(), Code::resource_exhausted);
  EXPECT_NE(growing.what().find("growing"), std::string_view::npos) << growing.what();
  AwaitedBuffer waiter(rig, rig.acquire(4096));
  memory.wait_until_asked(1);
  EXPECT_FALSE(waiter.done());
  memory.let(1);
  turn_until(rig, waiter);
  EXPECT_TRUE(waiter.ok());
  EXPECT_NE(memory.thread, std::this_thread::get_id());
  EXPECT_TRUE(rig.pool.try_acquire(4096).ok());
}

// While it grows for one size, another that this does not help comes: it grows again.
TEST(MemoryGrowth, FinishedForOneSizeGoesOnForTheOther) {
  SlowMemory memory;
  PoolOptions options = small_pool();
  options.grow_inline = false;
  options.kind = &memory;
  PoolRig rig(options);
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  memory.wait_until_asked(1);
  AwaitedBuffer large(rig, rig.acquire(256 * kKiB));
  memory.let(1);
  turn_until(rig, small);
  memory.wait_until_asked(2);
  EXPECT_FALSE(large.done());
  memory.let(2);
  turn_until(rig, large);
  EXPECT_TRUE(large.ok());
  EXPECT_EQ(rig.pool.stats().bytes_total, 320 * kKiB);
}

TEST(MemoryGrowth, AWaiterThatLeftDoesNotKeepTheOthersFromTheGrowthItAskedFor) {
  SlowMemory memory;
  PoolOptions options = small_pool(64 * kKiB);
  options.grow_inline = false;
  options.kind = &memory;
  PoolRig rig(options);
  AwaitedBuffer first(rig, rig.acquire(64 * kKiB));
  memory.wait_until_asked(1);
  AwaitedBuffer second(rig, rig.acquire(64 * kKiB));
  first.started.drop();
  memory.let(1);
  turn_until(rig, second);
  EXPECT_TRUE(second.ok());
}

TEST(MemoryGrowth, APoolMayGoWhileItGrows) {
  SlowMemory memory;
  PoolOptions options = small_pool();
  options.grow_inline = false;
  options.kind = &memory;
  {
    Pool pool(options);
    EXPECT_FALSE(pool.try_acquire(4096).ok());
    memory.wait_until_asked(1);
    memory.let(1);
  }
}

// Found: one request for 1 MiB that could not be had held up, for ever, all that could.
TEST(MemoryGrowth, WhatIsRefusedIsTriedSmallerAtOnce) {
  PoolOptions options = small_pool(4 * kMiB);
  options.slab_bytes = kMiB;
  FakeDevice device;
  PoolRig rig(options);
  ASSERT_TRUE(rig.pool.core().attach(device).ok());
  device.bytes_max = 256 * kKiB;
  AwaitedBuffer small(rig, rig.acquire(4 * kKiB));
  EXPECT_TRUE(small.ok());
  EXPECT_EQ(rig.pool.stats().bytes_total, 256 * kKiB);
  AwaitedBuffer large(rig, rig.acquire(kMiB, 3s));
  EXPECT_FALSE(large.done()) << "a larger limit may come, or not: the growth is tried again";
  AwaitedBuffer behind(rig, rig.acquire(256 * kKiB));
  EXPECT_TRUE(behind.ok());
  device.bytes_max = SIZE_MAX;
  rig.advance(1s - 1ns);
  EXPECT_FALSE(large.done());
  rig.advance(1ms);
  EXPECT_TRUE(large.ok());
  rig.pool.core().detach(0);
}

TEST(MemoryGrowth, TheDeadlineNamesWhyItDidNotGrow) {
  FakeDevice device;
  PoolRig rig(small_pool());
  Buffer held = must(rig.pool.try_acquire(64 * kKiB));
  ASSERT_TRUE(rig.pool.core().attach(device).ok());
  device.refuse = true;
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB, 10ms));
  rig.advance(10ms);
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status().code(), Code::deadline);
  EXPECT_NE(waiter.status().what().find("ulimit -l"), std::string_view::npos)
      << waiter.status().what();
  EXPECT_EQ(waiter.status().native(), ENOMEM);
  rig.pool.core().detach(0);
}

TEST(MemoryGrowth, WhereNothingCanComeBackTheReasonComesAtOnce) {
  FakeDevice device;
  PoolRig rig(small_pool());
  ASSERT_TRUE(rig.pool.core().attach(device).ok());
  device.refuse = true;
  AwaitedBuffer waiter(rig, rig.acquire(4096));
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status().code(), Code::resource_exhausted);
  EXPECT_NE(waiter.status().what().find("fake:0"), std::string_view::npos);
  device.refuse = false;
  rig.clock.advance(1s);
  EXPECT_TRUE(rig.pool.try_acquire(4096).ok());
  rig.pool.core().detach(0);
}

TEST(MemoryGrowth, ASlabThatOneDeviceRefusesIsUnusableThereOnly) {
  FakeDevice good, bad;
  Pool pool(small_pool());
  ASSERT_EQ(*pool.core().attach(good), 0u);
  ASSERT_EQ(*pool.core().attach(bad), 1u);
  bad.refuse = true;
  const Buffer buffer = must(pool.try_acquire(4096));
  EXPECT_TRUE(BufferAccess::handle(buffer, 0));
  EXPECT_FALSE(BufferAccess::handle(buffer, 1));
  const Status why = pool.core().last_registration_error(1);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_NE(why.what().find("ulimit -l"), std::string_view::npos) << why.what();
  pool.core().detach(0);
  pool.core().detach(1);
}

TEST(MemoryGrowth, ADeviceThatComesLaterServesWhatExists) {
  FakeDevice device;
  Pool pool(small_pool());
  const Buffer buffer = must(pool.try_acquire(4096));
  ASSERT_EQ(*pool.core().attach(device), 0u);
  EXPECT_TRUE(BufferAccess::handle(buffer, 0));
  for (const auto& [handle, piece] : device.registered) {
    EXPECT_NE(piece.use, MemoryUse::messages);
  }
  pool.core().detach(0);
  EXPECT_TRUE(device.registered.empty());
  EXPECT_FALSE(BufferAccess::handle(buffer, 0));
}

// Found: it waited until its deadline for a slab that could never be made, all others behind it.
TEST(MemoryGrowth, ASizeThatTheSlabsCannotHoldIsNamedAtOnce) {
  PoolRig rig(small_pool(256 * kKiB));  // of 64 KiB slabs
  { Buffer small = must(rig.pool.try_acquire(4 * kKiB)); }
  EXPECT_EQ(rig.pool.try_acquire(256 * kKiB).status().code(), Code::too_large);
  AwaitedBuffer waiter(rig, rig.acquire(256 * kKiB));
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status().code(), Code::too_large);
  EXPECT_NE(waiter.status().what().find("slab_bytes"), std::string_view::npos);
  EXPECT_TRUE(rig.pool.try_acquire(128 * kKiB).ok());
}

TEST(MemoryGrowth, AWaiterWhoseSlabWasMadeOtherwiseIsToldSo) {
  PoolOptions options = small_pool(256 * kKiB);
  FakeDevice device;
  PoolRig rig(options);
  ASSERT_TRUE(rig.pool.core().attach(device).ok());
  device.bytes_max = 64 * kKiB;
  Buffer held = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer large(rig, rig.acquire(128 * kKiB));
  EXPECT_FALSE(large.done());
  Buffer more = must(rig.pool.try_acquire(64 * kKiB));
  EXPECT_FALSE(large.done());
  Buffer last = must(rig.pool.try_acquire(64 * kKiB));
  rig.turn();
  ASSERT_TRUE(large.done()) << "64 KiB are left";
  EXPECT_EQ(large.status().code(), Code::too_large);
  rig.pool.core().detach(0);
}

// Found: growth asked for the whole at once, which was more than what was left.
TEST(MemoryGrowth, ManyBuffersGrowByWhatIsLeft) {
  PoolRig rig(small_pool(192 * kKiB));  // of 64 KiB slabs
  { Buffer first = must(rig.pool.try_acquire(4 * kKiB)); }
  AwaitedLanding all(rig, rig.land({64 * kKiB, 64 * kKiB, 64 * kKiB}));
  EXPECT_TRUE(all.ok());
  EXPECT_EQ(rig.pool.stats().bytes_total, 192 * kKiB);
}

TEST(MemoryGrowth, WaitingForWhatMayBeLentDoesNotGrow) {
  PoolOptions options = small_pool();
  options.landing_reserve_bytes = kMiB - 64 * kKiB;
  PoolRig rig(options);
  Buffer held = must(rig.pool.try_acquire(64 * kKiB));
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB));
  rig.advance(5ms);
  EXPECT_FALSE(waiter.done());
  EXPECT_EQ(rig.pool.stats().bytes_total, 64 * kKiB);
}

// With or without pages in the system's reserve: never an error, and the books say which.
TEST(MemoryGrowth, HugePagesFallBackAndAreCounted) {
  HostMemory memory;
  const Result<std::span<std::byte>> large = memory.allocate(4 * kMiB);
  const Result<std::span<std::byte>> small = memory.allocate(64 * kKiB);
  ASSERT_TRUE(large.ok() && small.ok());
  PageCounts counts = memory.page_counts();
  EXPECT_EQ(counts.huge + counts.transparent + counts.plain, 4 * kMiB + 64 * kKiB);
  EXPECT_GE(counts.plain, 64 * kKiB);
  if (counts.huge + counts.transparent != 0) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large->data()) % (2 * kMiB), 0u);
  }
  std::memset(large->data(), 1, large->size());
  memory.free(*large);
  memory.free(*small);
  counts = memory.page_counts();
  EXPECT_EQ(counts.huge + counts.transparent + counts.plain, 0u);
  const Status refused = memory.allocate(std::size_t{1} << 60).status();
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_NE(refused.what().find("memory limit"), std::string_view::npos) << refused.what();
}

TEST(MemoryGrowth, StatsShowThePagesOfThePool) {
  PoolOptions options = small_pool(4 * kMiB);
  options.slab_bytes = 2 * kMiB;
  Pool pool(options);
  const Buffer buffer = must(pool.try_acquire(4096));
  const PoolStats stats = pool.stats();
  EXPECT_LE(stats.bytes_huge_pages + stats.bytes_transparent_huge_pages, stats.bytes_total);
}

}  // namespace
}  // namespace pawl
