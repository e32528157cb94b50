// SPDX-License-Identifier: Apache-2.0
// The memory layer never touches payload bytes but through the memory kind: here their pages cannot
// be touched otherwise.
#include "memory_fixture.h"
#include "pawl/testing.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::Landing;
using memory::LeaseEnd;
using memory::LeaseHandle;

class MemoryProtected : public ::testing::Test {
 protected:
  static PoolOptions options(MemoryKind& kind) {
    PoolOptions options = small_pool();
    options.kind = &kind;
    options.landing_reserve_bytes = 256 * kKiB;
    return options;
  }
  Block filled(std::size_t bytes, int value) {
    Buffer buffer = must(rig_.pool.try_acquire(bytes));
    EXPECT_TRUE(buffer.copy_in(0, std::vector<std::byte>(bytes, std::byte(value))).ok());
    return std::move(buffer).freeze();
  }
  static bool holds(const Block& block, int value) {
    std::vector<std::byte> bytes(block.size());
    EXPECT_TRUE(block.copy_out(0, bytes).ok());
    return bytes == std::vector<std::byte>(block.size(), std::byte(value));
  }

  testing::ProtectedMemory memory_;  // outlives the pool
  PoolRig rig_{options(memory_)};
};

TEST_F(MemoryProtected, CannotBeTouchedOtherwise) {
  Buffer buffer = must(rig_.pool.try_acquire(4096));
  EXPECT_FALSE(buffer.host_accessible());
  EXPECT_DEATH(buffer.bytes()[0] = std::byte{1}, "");
  EXPECT_TRUE(buffer.copy_in(10, std::array{std::byte{1}}).ok());
  EXPECT_DEATH(buffer.bytes()[0] = std::byte{1}, "");
}

TEST_F(MemoryProtected, AcquireFreezeSliceLendRetire) {
  Block block = filled(10'000, 3);
  EXPECT_TRUE(holds(block, 3));
  EXPECT_TRUE(holds(block.slice(5000, 100), 3));
  LeaseHandle lease = std::move(*lend(rig_.pool, block));
  EXPECT_TRUE(lease->valid(lease->generation()));
  EXPECT_EQ(std::move(block).unique().status().code(), Code::failed_precondition);
  lease->end(LeaseEnd::timeout);
  Buffer again = must(std::move(block).unique());  // NOLINT(bugprone-use-after-move): unchanged
  block = std::move(again).freeze();
  lease = std::move(*lend(rig_.pool, block));
  std::move(block).retire();
  EXPECT_FALSE(lease->live());
  const Result<Block> copy = rig_.pool.copy_of(std::vector<std::byte>(100, std::byte{9}));
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(holds(*copy, 9));
}

TEST_F(MemoryProtected, ItIsNotForVerifyRead) {
  const Block block = filled(4096, 1);
  EXPECT_EQ(lend(rig_.pool, std::span(&block, 1), TimePoint{0}, nullptr, false, Guard::verify_read)
                .status()
                .code(),
            Code::invalid_argument);
}

TEST_F(MemoryProtected, LandAcceptDiscardAndQuarantine) {
  detail::FrameVector<Buffer> buffers =
      std::move(*rig_.pool.core().try_acquire_landing(std::array{kMiB / 4, std::size_t{5000}}));
  Landing whole = std::move(*Landing::into_buffer(std::move(buffers[0]), kMiB / 4));
  Landing part = std::move(*Landing::into_buffer(std::move(buffers[1]), 5000));
  part.copy_in(0, std::vector<std::byte>(5000, std::byte{4}));
  whole.set_quarantine(QuarantineReason::read_in_flight, rig_.clock.now());
  const Block block = std::move(part).accept(4000);
  EXPECT_TRUE(holds(block, 4));
  const LeaseHandle onward = std::move(*lend(rig_.pool, block));
  EXPECT_TRUE(onward->live());
  EXPECT_TRUE(std::move(whole).discard().empty());
}

TEST_F(MemoryProtected, ARegionOfIt) {
  const std::span<std::byte> bytes = *memory_.allocate(16 * 4096);
  {
    const Region region = std::move(*Region::create(rig_.pool, bytes, nullptr, {.kind = &memory_}));
    const LeaseHandle lease = std::move(*lend(rig_.pool, *region.block(1, 2)));
    const Result<std::span<std::byte>> span = region.reuse(2);
    ASSERT_TRUE(span.ok());
    EXPECT_FALSE(lease->live());
    memory_.copy_in(span->data(), std::vector<std::byte>(4096, std::byte{6}));
    EXPECT_TRUE(holds(*region.block(2), 6));
    Landing landing = std::move(*Landing::into_region(region, 5 * 4096, 8192));
    landing.copy_in(0, std::vector<std::byte>(8192, std::byte{7}));
    EXPECT_TRUE(holds(std::move(landing).accept(8192), 7));
  }
  memory_.free(bytes);
}

TEST_F(MemoryProtected, MergingSplittingAndWaitingTouchNothing) {
  detail::FrameVector<Buffer> small;
  for (int i = 0; i < 100; ++i) small.push_back(must(rig_.pool.try_acquire(4096)));
  AwaitedBuffer large(rig_, rig_.acquire(512 * kKiB));
  small.clear();
  rig_.turn();
  EXPECT_TRUE(large.ok());
  EXPECT_EQ(memory_.bytes_copied_in() + memory_.bytes_copied_out(), 0u);
}

}  // namespace
}  // namespace pawl
