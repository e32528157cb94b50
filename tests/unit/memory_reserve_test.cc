// SPDX-License-Identifier: Apache-2.0
// The landing reserve: what lending may use, also of memory that landed, and who passes whom.
#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::LeaseHandle;

// 1 MiB in one slab, of which a quarter can only be landed into.
PoolOptions quarter_reserved() {
  PoolOptions options = small_pool(kMiB);
  options.slab_bytes = kMiB;
  options.landing_reserve_bytes = 256 * kKiB;
  return options;
}
constexpr std::size_t kPart = 256 * kKiB;

TEST(MemoryReserve, BuffersToLendLeaveTheReserve) {
  PoolRig rig(quarter_reserved());
  std::vector<Buffer> held;
  for (int i = 0; i < 3; ++i) held.push_back(must(rig.pool.try_acquire(kPart)));
  const Status status = rig.pool.try_acquire(4 * kKiB).status();
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_NE(status.what().find("landing reserve"), std::string_view::npos) << status.what();
  EXPECT_EQ(land_now(rig.pool, {kPart}).size(), 1u);
}

TEST(MemoryReserve, WhatIsLargerThanWhatMayBeLentIsNamed) {
  Pool pool(quarter_reserved());
  EXPECT_EQ(pool.try_acquire(kMiB).status().code(), Code::too_large);
  EXPECT_TRUE(pool.core().try_acquire_landing(std::array{kMiB}).ok());
}

// Mutation: without the bound in charge this fails.
TEST(MemoryReserve, LendingWhatLandedLeavesTheReserve) {
  PoolRig rig(quarter_reserved());
  const std::vector<Block> all = land_now(rig.pool, {kPart, kPart, kPart, kPart});
  std::vector<LeaseHandle> leases;
  for (int i = 0; i < 3; ++i) leases.push_back(std::move(*lend(rig.pool, all[i])));
  const Status refused = lend(rig.pool, all[3]).status();
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_NE(refused.what().find("landing reserve"), std::string_view::npos) << refused.what();
  EXPECT_EQ(all[3].live_leases(), 0u);
  EXPECT_EQ(rig.pool.stats().leases_live, 3u);
  EXPECT_TRUE(lend(rig.pool, all[0]).ok()) << "the same memory to a second peer takes no more";
}

// Found: the memory that came back lay in this thread's cache and still counted as lent.
TEST(MemoryReserve, WhatCameBackCanBeLentAgainAtOnce) {
  PoolRig rig(quarter_reserved());
  std::vector<Block> all = land_now(rig.pool, {kPart, kPart, kPart, kPart});
  std::vector<LeaseHandle> leases;
  for (int i = 0; i < 3; ++i) leases.push_back(std::move(*lend(rig.pool, all[i])));
  leases[0].reset();
  EXPECT_FALSE(lend(rig.pool, all[3]).ok()) << "its Block still holds the memory that was lent";
  all[0] = Block();
  EXPECT_TRUE(lend(rig.pool, all[3]).ok());
}

TEST(MemoryReserve, TheOldestLeaseEndsForWhatIsToBeLent) {
  PoolRig rig(quarter_reserved());
  const TimePoint start = rig.clock.now();
  std::vector<Block> all = land_now(rig.pool, {kPart, kPart, kPart, kPart});
  std::vector<LeaseHandle> leases;
  for (int i = 0; i < 3; ++i) {
    leases.push_back(std::move(*lend(rig.pool, all[i], start + i * Duration(1us))));
    all[i] = Block();  // only the lease holds it
  }
  rig.clock.advance(900us);
  EXPECT_EQ(lend(rig.pool, all[3]).status().code(), Code::resource_exhausted);
  rig.clock.advance(100us);
  EXPECT_TRUE(lend(rig.pool, all[3]).ok());
  EXPECT_FALSE(leases[0]->live());
  EXPECT_EQ(leases[0]->end_reason(), memory::LeaseEnd::room);
  EXPECT_TRUE(leases[1]->live() && leases[2]->live());
}

// Both could be ended: the one that was lent first is, and one is enough.
TEST(MemoryReserve, RoomIsMadeByTheOldestLeaseAlone) {
  PoolOptions options = small_pool(128 * kKiB);
  PoolRig rig(options);
  const TimePoint start = rig.clock.now();
  const LeaseHandle young =
      std::move(*lend(rig.pool, block_of(rig.pool, 64 * kKiB), start + Duration(100us)));
  const LeaseHandle old = std::move(*lend(rig.pool, block_of(rig.pool, 64 * kKiB), start));
  rig.clock.advance(10ms);
  const Result<Buffer> room = rig.pool.try_acquire(64 * kKiB);
  EXPECT_TRUE(room.ok()) << room.status().to_string();
  EXPECT_FALSE(old->live());
  EXPECT_TRUE(young->live());
  EXPECT_EQ(rig.pool.stats().leases_ended_for_room, 1u);
}

// Its end would give nothing back before the proof.
TEST(MemoryReserve, ALeaseThatSettlesLaterIsNotEndedForRoom) {
  PoolRig rig(small_pool(64 * kKiB));
  Block block = block_of(rig.pool, 64 * kKiB);
  const LeaseHandle lease = std::move(
      *lend(rig.pool, std::span(&block, 1), rig.clock.now(), nullptr, /*settles_later=*/true));
  block = Block();
  rig.clock.advance(10ms);
  EXPECT_EQ(rig.pool.try_acquire(64 * kKiB).status().code(), Code::resource_exhausted);
  EXPECT_TRUE(lease->live());
  EXPECT_EQ(rig.pool.stats().leases_ended_for_room, 0u);
  lease->end(memory::LeaseEnd::released);
  lease->settle();
}

TEST(MemoryReserve, SlotsOfRefusedLeasesComeBack) {
  PoolRig rig(small_pool());  // 64 slots
  std::vector<std::byte> memory(64 * kKiB);
  const Region region = std::move(*Region::create(rig.pool, memory, nullptr));
  const Block stale = *region.block(0);
  ASSERT_TRUE(region.reuse(0).ok());
  for (int i = 0; i < 100; ++i) {
    const Status refused =
        lend(rig.pool, std::span(&stale, 1), TimePoint{0}, nullptr, /*settles_later=*/true)
            .status();
    ASSERT_EQ(refused.code(), Code::stale) << i << ": " << refused.to_string();
  }
  EXPECT_TRUE(lend(rig.pool, block_of(rig.pool, 4096)).ok());
}

// What was landed into is the reserve's, not the releasing thread's.
TEST(MemoryReserve, LandedMemoryIsNotHandedOutToBeLentUncounted) {
  PoolRig rig(quarter_reserved());
  land_now(rig.pool, std::vector<std::size_t>(256, 4 * kKiB));  // all of it, and home again
  std::vector<Buffer> held;
  for (;;) {
    Result<Buffer> buffer = rig.pool.try_acquire(4 * kKiB);
    if (!buffer.ok()) break;
    held.push_back(*std::move(buffer));
  }
  EXPECT_EQ(held.size(), 192u);
}

TEST(MemoryReserve, ALeaseOfManyIsRefusedAsAWhole) {
  PoolRig rig(quarter_reserved());
  const std::vector<Block> all = land_now(rig.pool, {kPart, kPart, kPart, kPart});
  EXPECT_EQ(lend(rig.pool, all).status().code(), Code::resource_exhausted);
  for (const Block& block : all) EXPECT_EQ(block.live_leases(), 0u);
  EXPECT_EQ(rig.pool.stats().leases_live, 0u);
  EXPECT_TRUE(lend(rig.pool, std::span(all).first(3)).ok());
}

TEST(MemoryReserve, LandedMemoryThatWentHomeIsTheReservesAgain) {
  PoolRig rig(quarter_reserved());
  for (int round = 0; round < 3; ++round) {
    std::vector<Block> all = land_now(rig.pool, {kPart, kPart, kPart, kPart});
    { const LeaseHandle lease = std::move(*lend(rig.pool, all[0])); }
    all.clear();
    Buffer most = must(rig.pool.try_acquire(kPart));
    EXPECT_EQ(land_now(rig.pool, {kPart, kPart, kPart}).size(), 3u);
  }
  EXPECT_EQ(rig.pool.stats().bytes_in_use, 0u);
}

TEST(MemoryReserve, LandingPassesThoseWhoCannotUseTheReserve) {
  PoolRig rig(quarter_reserved());
  Buffer lent = must(rig.pool.try_acquire(2 * kPart));
  Buffer more = must(rig.pool.try_acquire(kPart));
  AwaitedBuffer waiter(rig, rig.acquire(4 * kKiB));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(land_now(rig.pool, {kPart}).size(), 1u);
  AwaitedLanding landing(rig, rig.land({kPart / 2, kPart / 2}));
  EXPECT_TRUE(landing.ok());
  EXPECT_FALSE(waiter.done());
  rig.give(more);
  EXPECT_TRUE(waiter.ok());
}

TEST(MemoryReserve, BeyondItsReserveLandingWaitsItsTurn) {
  PoolRig rig(quarter_reserved());
  Buffer lent = must(rig.pool.try_acquire(2 * kPart));
  AwaitedBuffer waiter(rig, rig.acquire(2 * kPart));
  AwaitedLanding landing(rig, rig.land({2 * kPart}));
  EXPECT_FALSE(landing.done()) << "as large as the one that waits, and it could use the memory";
  rig.give(lent);
  EXPECT_TRUE(waiter.ok());
  EXPECT_TRUE(landing.ok());
}

// Found: lending made room in the reserve, and nobody told those who waited to land.
TEST(MemoryReserve, LendingWhatLandedLetsTheNextLand) {
  PoolRig rig(quarter_reserved());
  const std::vector<Block> landed = land_now(rig.pool, {128 * kKiB, 128 * kKiB});
  Buffer below = must(rig.pool.try_acquire(kPart));
  const Buffer above = must(rig.pool.try_acquire(128 * kKiB));
  below = Buffer();
  AwaitedBuffer large(rig, rig.acquire(512 * kKiB));  // neither half is free
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(rig.pool.try_acquire(kPart).ok());  // overtake it
  AwaitedLanding landing(rig, rig.land({4 * kKiB}));
  EXPECT_FALSE(landing.done()) << "beyond the reserve, and behind the one who waits";
  const LeaseHandle lease = std::move(*lend(rig.pool, landed[0]));
  rig.turn();
  EXPECT_TRUE(landing.ok());
  EXPECT_FALSE(large.done());
}

TEST(MemoryReserve, LandingBuffersAreAllOrNone) {
  PoolRig rig(quarter_reserved());
  Buffer held = must(rig.pool.try_acquire(kPart));
  EXPECT_EQ(rig.pool.core().try_acquire_landing(std::vector<std::size_t>(4, kPart)).status().code(),
            Code::resource_exhausted);
  EXPECT_EQ(rig.pool.stats().bytes_in_use, kPart) << "none was kept";
  AwaitedLanding all(rig, rig.land({kPart, kPart, kPart, kPart}));
  EXPECT_FALSE(all.done());
  rig.give(held);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ((*all.value)->size(), 4u);
}

}  // namespace
}  // namespace pawl
