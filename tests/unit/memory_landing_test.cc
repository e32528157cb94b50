// SPDX-License-Identifier: Apache-2.0
// Landing memory: who holds it from before the first READ until it is accepted or given back.
#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::Landing;
using memory::QuarantineEntry;

Landing landing_of(Pool& pool, std::size_t bytes, std::size_t land) {
  detail::FrameVector<Buffer> buffers =
      std::move(*pool.core().try_acquire_landing(std::array{bytes}));
  return std::move(*Landing::into_buffer(std::move(buffers[0]), land));
}

TEST(MemoryLanding, TheRecordHoldsTheMemoryUntilItIsAccepted) {
  Pool pool(small_pool(64 * kKiB));
  Landing landing = landing_of(pool, 64 * kKiB, 5000);
  EXPECT_EQ(landing.size(), 5000u);
  EXPECT_EQ(landing.held_bytes(), 64 * kKiB);
  EXPECT_TRUE(landing.from_pool());
  EXPECT_EQ(pool.stats().bytes_landing, 64 * kKiB);
  EXPECT_FALSE(pool.try_acquire(4096).ok());
  std::memset(landing.address(), 7, landing.size());
  const Block block = std::move(landing).accept(4000);
  EXPECT_FALSE(landing);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(block.size(), 4000u);
  EXPECT_EQ(block.bytes()[3999], std::byte{7});
  EXPECT_EQ(pool.stats().bytes_landing, 0u);
  EXPECT_TRUE(lend(pool, block).ok());
}

TEST(MemoryLanding, AcceptedAsABufferItIsWritable) {
  Pool pool(small_pool());
  Landing landing = landing_of(pool, 8192, 5000);
  std::byte* const at = landing.address();
  Buffer buffer = must(std::move(landing).accept_buffer(5000));
  EXPECT_EQ(buffer.bytes().data(), at);
  EXPECT_EQ(buffer.size(), 5000u);
  EXPECT_EQ(buffer.capacity(), 8192u);
}

// Mutation: if discard kept the size, the bytes of a failed attempt would show.
TEST(MemoryLanding, AFailedAttemptComesBackEmpty) {
  Pool pool(small_pool());
  Landing landing = landing_of(pool, 8192, 5000);
  const Buffer buffer = std::move(landing).discard();
  EXPECT_TRUE(static_cast<bool>(buffer));
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_TRUE(buffer.bytes().empty());
  EXPECT_EQ(buffer.capacity(), 8192u);
  EXPECT_EQ(pool.stats().bytes_landing, 0u);
}

TEST(MemoryLanding, OneThatIsDroppedGoesHome) {
  Pool pool(small_pool(64 * kKiB));
  { const Landing landing = landing_of(pool, 64 * kKiB, 1); }
  EXPECT_EQ(pool.stats().bytes_landing, 0u);
  EXPECT_TRUE(pool.try_acquire(64 * kKiB).ok());
}

TEST(MemoryLanding, MovedItIsHeldOnce) {
  Pool pool(small_pool());
  Landing a = landing_of(pool, 4096, 100);
  Landing b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(pool.stats().bytes_landing, 4096u);
  b = landing_of(pool, 8192, 100);
  EXPECT_EQ(pool.stats().bytes_landing, 8192u);
  b = Landing();
  EXPECT_EQ(pool.stats().bytes_landing, 0u);
}

TEST(MemoryLanding, ABufferThatIsTooSmallIsNamed) {
  Pool pool(small_pool());
  EXPECT_EQ(Landing::into_buffer(must(pool.try_acquire(4096)), 4097).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(Landing::into_buffer(must(pool.try_acquire(4096)), 0).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(pool.stats().bytes_in_use, 0u) << "the buffer went back";
}

TEST(MemoryLanding, BytesOfAMessageLandInsideOnly) {
  Pool pool(small_pool());
  Landing landing = landing_of(pool, 4096, 100);
  const std::array<std::byte, 60> bytes{};
  landing.copy_in(40, bytes);
  EXPECT_DEATH(landing.copy_in(41, bytes), "inside their landing");
}

TEST(MemoryLandingDeathTest, NoMoreIsAcceptedThanWasLandedInto) {
  Pool pool(small_pool());
  Landing landing = landing_of(pool, 8192, 5000);
  EXPECT_DEATH((void)std::move(landing).accept(5001), "more bytes are accepted");
}

// --- quarantine -----------------------------------------------------------------------------

TEST(MemoryQuarantine, ShowsWhatIsHeldAndWhySince) {
  PoolRig rig(small_pool());
  Landing a = landing_of(rig.pool, 8192, 5000);
  Landing b = landing_of(rig.pool, 4096, 100);
  const TimePoint start = rig.clock.now();
  a.set_quarantine(QuarantineReason::read_in_flight, start);
  b.set_quarantine(QuarantineReason::read_in_flight, start + Duration(5ms));
  EXPECT_EQ(rig.pool.stats().bytes_quarantined, 12288u);
  EXPECT_EQ(rig.pool.stats().buffers_quarantined, 2u);
  a.set_quarantine(QuarantineReason::endpoint_drain, start + Duration(9ms));
  std::vector<QuarantineEntry> entries;
  rig.pool.core().for_each_quarantined([&](const QuarantineEntry& e) { entries.push_back(e); });
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].reason, QuarantineReason::endpoint_drain);
  EXPECT_EQ(entries[0].since, start) << "a change of the reason keeps the time";
  EXPECT_EQ(entries[0].bytes, 8192u);
  EXPECT_FALSE(entries[0].lent);
  const auto totals = rig.pool.core().quarantine().totals();
  EXPECT_EQ(totals.oldest, start);
  EXPECT_EQ(totals.bytes_by_reason[static_cast<std::size_t>(QuarantineReason::endpoint_drain)],
            8192u);
  EXPECT_EQ(quarantine_reason_name(entries[0].reason), "endpoint drain");
  rig.clock.advance(20ms);
  const PoolStats stats = rig.pool.stats();
  EXPECT_EQ(stats.bytes_quarantined_for(QuarantineReason::endpoint_drain), 8192u);
  EXPECT_EQ(stats.bytes_quarantined_for(QuarantineReason::read_in_flight), 4096u);
  EXPECT_EQ(stats.bytes_quarantined_for(QuarantineReason::cancel_unacked), 0u);
  EXPECT_EQ(stats.quarantined_longest, Duration(20ms));
  Landing moved = std::move(a);
  EXPECT_EQ(rig.pool.stats().buffers_quarantined, 2u);
  (void)std::move(moved).discard();
  b.set_quarantine(QuarantineReason::none, start);
  EXPECT_EQ(rig.pool.stats().bytes_quarantined, 0u);
  EXPECT_EQ(rig.pool.core().quarantine().totals().oldest, TimePoint::never());
  EXPECT_EQ(rig.pool.stats().quarantined_longest, Duration{0});
}

// Found: quarantine_bytes_max refused nothing.
TEST(MemoryQuarantine, AFullOneRefusesNewTransfersAndReleasesNothing) {
  PoolOptions options = small_pool();
  options.quarantine_bytes_max = 64 * kKiB;
  PoolRig rig(options);
  Landing landing = landing_of(rig.pool, 64 * kKiB, 1);
  landing.set_quarantine(QuarantineReason::read_in_flight, rig.clock.now());
  AwaitedLanding refused(rig, rig.land({4096}));
  ASSERT_TRUE(refused.done());
  EXPECT_EQ(refused.status().code(), Code::resource_exhausted);
  EXPECT_NE(refused.status().what().find("quarantine_bytes_max"), std::string_view::npos);
  alignas(4096) static std::byte memory[8192];
  const Result<Region> region = Region::create(rig.pool, memory, nullptr);
  EXPECT_EQ(Landing::into_region(*region, 0, 4096).status().code(), Code::resource_exhausted);
  EXPECT_TRUE(rig.pool.try_acquire(4096).ok()) << "buffers to lend are no transfers";
  rig.advance(3600s);
  EXPECT_EQ(rig.pool.stats().bytes_quarantined, 64 * kKiB) << "time releases nothing";
  rig.give(landing);
  AwaitedLanding again(rig, rig.land({4096}));
  EXPECT_TRUE(again.ok());
}

TEST(MemoryQuarantine, ALeaseThatSettlesLaterHoldsItsMemoryUntilTheProof) {
  PoolRig rig(small_pool(64 * kKiB));
  Block block = block_of(rig.pool, 64 * kKiB);
  memory::LeaseHandle lease =
      std::move(*lend(rig.pool, std::span(&block, 1), rig.clock.now(), nullptr,
                      /*settles_later=*/true, Guard::window));
  std::move(block).retire();
  EXPECT_FALSE(lease->live());
  lease->set_quarantine(QuarantineReason::cancel_unacked, rig.clock.now());
  EXPECT_EQ(rig.pool.stats().bytes_quarantined, 64 * kKiB);
  AwaitedBuffer waiter(rig, rig.acquire(64 * kKiB, 3600s));
  rig.advance(1800s);
  EXPECT_FALSE(waiter.done());
  lease->settle();
  rig.turn();
  EXPECT_TRUE(waiter.ok());
  EXPECT_EQ(rig.pool.stats().bytes_quarantined, 0u);
}

TEST(MemoryQuarantine, ABlockUnderAnUnsettledLeaseIsNotUnique) {
  PoolRig rig(small_pool());
  Block block = block_of(rig.pool, 4096);
  memory::LeaseHandle lease = std::move(
      *lend(rig.pool, std::span(&block, 1), rig.clock.now(), nullptr, true, Guard::window));
  lease->end(memory::LeaseEnd::timeout);
  EXPECT_EQ(std::move(block).unique().status().code(), Code::failed_precondition);
  lease->settle();
  EXPECT_TRUE(std::move(block).unique().ok());  // NOLINT(bugprone-use-after-move): unchanged
}

TEST(MemoryLanding, OneAcrossTwoBlocksOfARegionMakesBothStale) {
  Pool pool(small_pool());
  std::vector<std::byte> memory(64 * kKiB);
  const Region region =
      std::move(*Region::create(pool, memory, nullptr, {.block_bytes = 4 * kKiB}));
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < 4; ++i) blocks.push_back(*region.block(i));
  const Landing landing = std::move(*Landing::into_region(region, 6 * kKiB, 4 * kKiB));
  EXPECT_TRUE(BufferAccess::present(blocks[0]).ok());
  EXPECT_EQ(BufferAccess::present(blocks[1]).code(), Code::stale);
  EXPECT_EQ(BufferAccess::present(blocks[2]).code(), Code::stale);
  EXPECT_TRUE(BufferAccess::present(blocks[3]).ok());
}

}  // namespace
}  // namespace pawl
