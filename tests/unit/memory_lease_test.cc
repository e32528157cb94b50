// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <thread>

#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::LeaseEnd;
using memory::LeaseHandle;

TEST(MemoryLease, LentUntilItEndsOnce) {
  Pool pool(small_pool());
  const Block block = block_of(pool, 4096);
  LeaseHandle lease = std::move(*lend(pool, block));
  const std::uint64_t generation = lease->generation();
  EXPECT_EQ(generation & 1, 1u);
  EXPECT_TRUE(lease->valid(generation));
  EXPECT_FALSE(lease->valid(generation + 1));
  EXPECT_FALSE(lease->valid(generation - 2));
  EXPECT_EQ(block.live_leases(), 1u);
  EXPECT_EQ(pool.stats().leases_live, 1u);
  EXPECT_TRUE(lease->end(LeaseEnd::timeout));
  EXPECT_FALSE(lease->end(LeaseEnd::released));
  EXPECT_FALSE(lease->valid(generation));
  EXPECT_FALSE(lease->valid(generation + 1)) << "an even number is never valid";
  EXPECT_EQ(lease->end_reason(), LeaseEnd::timeout);
  EXPECT_EQ(block.live_leases(), 0u);
  EXPECT_EQ(pool.stats().leases_live, 0u);
}

TEST(MemoryLease, TheWordInRegisteredMemoryIsTheState) {
  Pool pool(small_pool());
  const Block block = block_of(pool, 4096);
  LeaseHandle lease = std::move(*lend(pool, block));
  std::uint64_t word = 0;
  const std::byte* const at = pool.core().leases().word_address(lease->slot());
  std::memcpy(&word, at, sizeof(word));
  EXPECT_EQ(word, lease->generation());
  lease->end(LeaseEnd::released);
  std::memcpy(&word, at, sizeof(word));
  EXPECT_EQ(word, lease->generation() + 1);
}

TEST(MemoryLease, TheLeaseKeepsTheMemoryUntilItEnds) {
  Pool pool(small_pool(64 * kKiB));
  LeaseHandle lease;
  {
    const Block block = block_of(pool, 64 * kKiB);
    lease = std::move(*lend(pool, block, TimePoint::never()));
  }
  EXPECT_FALSE(pool.try_acquire(4096).ok());
  lease->end(LeaseEnd::released);
  EXPECT_TRUE(pool.try_acquire(4096).ok());
}

TEST(MemoryLease, DroppingTheHandleEndsItAndFreesTheSlot) {
  Pool pool(small_pool());
  const Block block = block_of(pool, 4096);
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  {
    LeaseHandle lease = std::move(*lend(pool, block));
    slot = lease->slot();
    generation = lease->generation();
  }
  EXPECT_EQ(block.live_leases(), 0u);
  LeaseHandle next = std::move(*lend(pool, block));
  EXPECT_EQ(next->slot(), slot);
  EXPECT_EQ(next->generation(), generation + 2);
  EXPECT_FALSE(next->valid(generation));
}

TEST(MemoryLease, AGenerationNeverRepeats) {
  Pool pool(small_pool());
  const Block block = block_of(pool, 4096);
  std::set<std::pair<std::uint32_t, std::uint64_t>> seen;
  for (int i = 0; i < 5000; ++i) {
    LeaseHandle a = std::move(*lend(pool, block));
    LeaseHandle b = std::move(*lend(pool, block));
    EXPECT_TRUE(seen.insert({a->slot(), a->generation()}).second);
    EXPECT_TRUE(seen.insert({b->slot(), b->generation()}).second);
  }
}

TEST(MemoryLease, FirstGenerationsAreRandomAndRepeatBySeed) {
  auto first = [](std::uint64_t seed) {
    PoolOptions options = small_pool();
    options.generation_seed = seed;
    Pool pool(options);
    return lend(pool, block_of(pool, 4096)).value()->generation();
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
  EXPECT_NE(first(0), first(0));
  EXPECT_LT(first(0), UINT64_MAX / 2 + 1);
}

}  // namespace
}  // namespace pawl
