// SPDX-License-Identifier: Apache-2.0
// Memory of the user's own: who may write a block of it, and when it may be unmapped.
#include <algorithm>
#include <condition_variable>
#include <thread>

#include "memory_fixture.h"
#include "support/interrupted_memory.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::Landing;
using memory::LeaseEnd;
using memory::LeaseHandle;

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kBlocks = 300;  // more than the lists by block

class MemoryRegion : public ::testing::Test {
 protected:
  MemoryRegion() : memory_(kBlock * kBlocks), rig_(small_pool()) {
    keep_alive_ = std::make_shared<int>(1);
    region_ = std::move(*Region::create(rig_.pool, memory_, keep_alive_));
  }
  Pool& pool() { return rig_.pool; }
  LeaseHandle lend_blocks(std::size_t first, std::size_t count = 1) {
    return std::move(*lend(pool(), *region_.block(first, count), rig_.clock.now()));
  }
  Landing land(std::size_t first, std::size_t count = 1) {
    return std::move(*Landing::into_region(region_, first * kBlock, count * kBlock));
  }
  static void expect_refused(const Status& status, std::string_view remedy) {
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_NE(status.what().find(remedy), std::string_view::npos) << status.what();
  }
  static void expect_stale(const Status& status) {
    EXPECT_EQ(status.code(), Code::stale);
    EXPECT_NE(status.what().find("again with Region::block"), std::string_view::npos)
        << status.what();
  }
  static Status copy(const Block& block, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> to(bytes);
    return block.copy_out(offset, to);
  }

  std::vector<std::byte> memory_;
  std::shared_ptr<int> keep_alive_;
  PoolRig rig_;
  Region region_;
};

TEST_F(MemoryRegion, IsDividedInBlocks) {
  EXPECT_EQ(region_.block_bytes(), kBlock);
  EXPECT_EQ(region_.blocks(), kBlocks);
  EXPECT_EQ(region_.size(), kBlock * kBlocks);
  const Block block = *region_.block(7, 3);
  EXPECT_EQ(block.bytes().data(), memory_.data() + 7 * kBlock);
  EXPECT_EQ(block.size(), 3 * kBlock);
}

TEST_F(MemoryRegion, ASizeThatIsNoNumberOfBlocksIsNamed) {
  const Status odd = Region::create(pool(), std::span(memory_).first(5000), nullptr).status();
  EXPECT_EQ(odd.code(), Code::invalid_argument);
  EXPECT_NE(odd.what().find("block_bytes"), std::string_view::npos) << odd.what();
  EXPECT_EQ(Region::create(pool(), {}, nullptr).status().code(), Code::invalid_argument);
  EXPECT_EQ(Region::create(pool(), memory_, nullptr, {.block_bytes = 0}).status().code(),
            Code::invalid_argument);
}

TEST_F(MemoryRegion, BlocksOutOfRangeAreNamed) {
  EXPECT_EQ(region_.block(kBlocks).status().code(), Code::invalid_argument);
  EXPECT_EQ(region_.block(0, 0).status().code(), Code::invalid_argument);
  EXPECT_EQ(region_.block(kBlocks - 1, 2).status().code(), Code::invalid_argument);
  EXPECT_EQ(region_.block(1, SIZE_MAX).status().code(), Code::invalid_argument);
  EXPECT_EQ(region_.reuse(kBlocks).status().code(), Code::invalid_argument);
  EXPECT_EQ(Landing::into_region(region_, kBlocks * kBlock, 1).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(Landing::into_region(region_, 1, SIZE_MAX).status().code(), Code::invalid_argument);
}

TEST_F(MemoryRegion, ADefaultConstructedOneSaysSo) {
  Region none;
  expect_refused(none.block(0).status(), "Region::create");
  expect_refused(none.reuse(0).status(), "Region::create");
  expect_refused(Landing::into_region(none, 0, 1).status(), "no memory");
  Awaited<Status> closed(rig_, none.close());
  EXPECT_EQ(closed.value->code(), Code::failed_precondition);
}

// Mutation: without the withdrawal in reuse this fails.
TEST_F(MemoryRegion, ReuseEndsTheLeasesThatTouchTheBlocksAndNoOther) {
  const LeaseHandle before = lend_blocks(0, 2), in = lend_blocks(2), wide = lend_blocks(1, 260),
                    behind = lend_blocks(4), alias = lend_blocks(2 + 256);
  const Result<std::span<std::byte>> span = region_.reuse(2, 2);
  ASSERT_TRUE(span.ok());
  EXPECT_EQ(span->data(), memory_.data() + 2 * kBlock);
  EXPECT_EQ(span->size(), 2 * kBlock);
  EXPECT_FALSE(in->live());
  EXPECT_EQ(in->end_reason(), LeaseEnd::withdrawn);
  EXPECT_FALSE(wide->live());
  EXPECT_TRUE(before->live());
  EXPECT_TRUE(behind->live());
  EXPECT_TRUE(alias->live()) << "its block shares a list with the one that was reused";
}

TEST_F(MemoryRegion, OfALeaseOfManyOnlyTheSegmentIsWithdrawn) {
  const std::vector<Block> blocks = {*region_.block(1), *region_.block(5), *region_.block(9)};
  const LeaseHandle lease = std::move(*lend(pool(), blocks));
  ASSERT_TRUE(region_.reuse(5).ok());
  EXPECT_TRUE(lease->live());
  EXPECT_TRUE(lease->segment_valid(lease->generation(), 0));
  EXPECT_FALSE(lease->segment_valid(lease->generation(), 1));
  EXPECT_TRUE(lease->segment_valid(lease->generation(), 2));
  ASSERT_TRUE(region_.reuse(0, 10).ok());
  EXPECT_FALSE(lease->live()) << "the last segments went";
}

TEST_F(MemoryRegion, ABlockOfAnEarlierUseIsStaleForEver) {
  const Block old = *region_.block(3);
  EXPECT_TRUE(copy(old, 0, kBlock).ok());
  ASSERT_TRUE(region_.reuse(3).ok());
  expect_stale(lend(pool(), old).status());
  expect_stale(copy(old, 0, kBlock));
  const Block again = *region_.block(3);
  EXPECT_TRUE(lend(pool(), again).ok());
  EXPECT_TRUE(copy(again, 0, kBlock).ok());
  expect_stale(lend(pool(), old).status());
  expect_stale(copy(old, 0, kBlock));
  EXPECT_TRUE(copy(old, 0, 0).ok()) << "nothing is nothing of any use";
  EXPECT_TRUE(lend(pool(), again).ok());
  ASSERT_TRUE(region_.reuse(4).ok());
  ASSERT_TRUE(region_.block(3).ok());
  EXPECT_TRUE(lend(pool(), again).ok()) << "neither began a new use of block 3";
}

TEST_F(MemoryRegion, CopiesAndSlicesAreOfTheUseOfTheirBlock) {
  const Block wide = *region_.block(4, 4);
  const Block first = wide.slice(0, kBlock);
  const Block third = wide.slice(2 * kBlock + 100, 200);
  ASSERT_TRUE(region_.reuse(6).ok());  // the third
  ASSERT_TRUE(region_.block(0, kBlocks).ok());
  expect_stale(lend(pool(), wide).status());
  expect_stale(lend(pool(), third).status());
  expect_stale(copy(third, 0, 1));
  Block copied = third;
  expect_stale(lend(pool(), copied).status());
  Block moved = std::move(copied);
  expect_stale(lend(pool(), moved).status());
  copied = *region_.block(6);
  EXPECT_TRUE(lend(pool(), copied).ok());
  copied = moved;
  expect_stale(lend(pool(), copied).status());
  // What touches none of the third is good, whenever it was cut.
  EXPECT_TRUE(lend(pool(), first).ok());
  EXPECT_TRUE(lend(pool(), wide.slice(0, 2 * kBlock)).ok());
  EXPECT_TRUE(lend(pool(), wide.slice(3 * kBlock, kBlock)).ok());
  expect_stale(lend(pool(), wide.slice(0, 2 * kBlock + 1)).status());
  expect_stale(lend(pool(), wide.slice(3 * kBlock - 1, 2)).status());
  EXPECT_TRUE(copy(wide, 0, 2 * kBlock).ok());
  expect_stale(copy(wide, kBlock, kBlock + 1));
  expect_stale(copy(wide, 3 * kBlock - 1, 1));
  EXPECT_TRUE(copy(wide, 3 * kBlock, kBlock).ok());
  // A range of several.
  const Block before = *region_.block(9), last = *region_.block(12), behind = *region_.block(13);
  ASSERT_TRUE(region_.reuse(10, 3).ok());
  EXPECT_TRUE(lend(pool(), before).ok());
  expect_stale(lend(pool(), last).status());
  EXPECT_TRUE(lend(pool(), behind).ok());
}

TEST_F(MemoryRegion, OneStaleSegmentRefusesALeaseAndNothingStaysLent) {
  const std::vector<Block> blocks = {*region_.block(1), *region_.block(5), *region_.block(9)};
  ASSERT_TRUE(region_.reuse(5).ok());
  ASSERT_TRUE(region_.block(5).ok());
  expect_stale(lend(pool(), blocks).status());
  EXPECT_EQ(pool().stats().leases_live, 0u);
  EXPECT_EQ(blocks[0].live_leases(), 0u);
  EXPECT_TRUE(region_.reuse(0, 10).ok());
}

// Mutation: without the look after the copy this fails.
TEST_F(MemoryRegion, ACopyThatReuseInterruptedIsStale) {
  testing::InterruptedMemory kind;
  region_ = Region();  // the same bytes, of another kind
  Region region = std::move(*Region::create(pool(), memory_, nullptr, {.kind = &kind}));
  const Block block = *region.block(0, 2);
  kind.meanwhile = [&] {
    std::thread writer([&] { std::ranges::fill(*region.reuse(1), std::byte{7}); });
    writer.join();
    EXPECT_TRUE(region.block(1).ok());
  };
  expect_stale(copy(block, 0, 2 * kBlock));
  EXPECT_TRUE(copy(block, 0, kBlock).ok()) << "the other block was not reused";
  kind.meanwhile = nullptr;
  EXPECT_TRUE(copy(*region.block(0, 2), 0, 2 * kBlock).ok());
  region = Region();
}

// Mutation: looking once, before the withdrawal, or at the first block only, this fails.
TEST_F(MemoryRegion, ReuseGivesNoSpanOverALeaseThatAnotherThreadMadeMeanwhile) {
  struct Lender final : memory::LeaseListener {
    void lease_ended(memory::Lease&, LeaseEnd) override {
      std::thread other([this] {
        block = *region.block(2);
        lease = std::move(*lend(pool, block));
      });
      other.join();
    }
    void segment_withdrawn(memory::Lease&, std::size_t) override {}
    Lender(Pool& of, const Region& in) : pool(of), region(in) {}
    Pool& pool;
    const Region& region;
    Block block;
    LeaseHandle lease;
  } lender(pool(), region_);
  const Block block = *region_.block(2);
  const LeaseHandle first =
      std::move(*lend(pool(), std::span(&block, 1), rig_.clock.now(), &lender));
  const Result<std::span<std::byte>> span = region_.reuse(1, 2);  // 2 is not the first
  EXPECT_FALSE(first->live());
  ASSERT_TRUE(lender.lease);
  EXPECT_FALSE(lender.lease->live());
  EXPECT_TRUE(span.ok()) << span.status().to_string();
  expect_stale(lend(pool(), lender.block).status());
}

TEST_F(MemoryRegion, ReuseUnderAnUnsettledLeaseAsksToTryAgain) {
  const Block block = *region_.block(3);
  const LeaseHandle lease = std::move(
      *lend(pool(), std::span(&block, 1), rig_.clock.now(), nullptr, true, Guard::window));
  const Status status = region_.reuse(3).status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_NE(status.what().find("hold_until_ack"), std::string_view::npos) << status.what();
  expect_stale(lend(pool(), block).status());
  EXPECT_FALSE(lease->live()) << "ended all the same";
  expect_refused(Landing::into_region(region_, 3 * kBlock, 1).status(), "lent");
  lease->settle();
  EXPECT_TRUE(region_.reuse(3).ok());
}

TEST_F(MemoryRegion, WhereAReadLandsNothingElseHappens) {
  const Block old = *region_.block(8);
  const LeaseHandle elsewhere = lend_blocks(20);
  Landing landing = land(7, 3);
  expect_stale(lend(pool(), old).status());
  expect_stale(copy(old, 0, 1));
  expect_refused(region_.block(9).status(), "a READ lands");
  expect_refused(region_.reuse(6, 2).status(), "a READ lands");
  expect_refused(Landing::into_region(region_, 9 * kBlock + 100, 1).status(), "another READ");
  EXPECT_TRUE(region_.block(10).ok());
  EXPECT_TRUE(elsewhere->live());
  const Block accepted = std::move(landing).accept(3 * kBlock);
  EXPECT_TRUE(lend(pool(), accepted).ok());
  EXPECT_TRUE(copy(accepted, 0, 3 * kBlock).ok());
  expect_stale(lend(pool(), old).status());
  ASSERT_TRUE(region_.reuse(9).ok());
  expect_stale(lend(pool(), accepted).status());
}

TEST_F(MemoryRegion, SegmentsOfOneCallMayLandInOneBlock) {
  const std::size_t at = 7 * kBlock;
  Landing one = std::move(*Landing::into_region(region_, at, 100));
  Landing two = std::move(*Landing::into_region(region_, at + 100, 100));
  const Block first = std::move(one).accept(100);
  const Block second = std::move(two).accept(100);
  EXPECT_TRUE(lend(pool(), first).ok());
  EXPECT_TRUE(lend(pool(), second).ok());
  // A later one begins a new use of the block.
  (void)std::move(*Landing::into_region(region_, at + 200, 100)).discard();
  expect_stale(lend(pool(), first).status());
}

TEST_F(MemoryRegion, WhatIsLentIsNotLandedInto) {
  const LeaseHandle lease = lend_blocks(7, 2);
  expect_refused(Landing::into_region(region_, 8 * kBlock + 100, 50).status(), "Region::reuse");
  EXPECT_TRUE(lease->live()) << "landing ends no lease";
  ASSERT_TRUE(region_.reuse(7, 2).ok());
  EXPECT_TRUE(Landing::into_region(region_, 8 * kBlock + 100, 50).ok());
}

// Mutation: if a landing began no new use, the bytes of a failed attempt could be lent.
TEST_F(MemoryRegion, AFailedAttemptLeavesTheRangeWithItsWriter) {
  const Block old = *region_.block(7);
  Landing landing = land(7);
  const Buffer empty = std::move(landing).discard();
  EXPECT_FALSE(static_cast<bool>(empty));
  expect_stale(lend(pool(), old).status());
  EXPECT_TRUE(region_.reuse(7).ok());
}

TEST_F(MemoryRegion, ABlockOfItIsNoBuffer) {
  expect_refused(region_.block(0).value().slice(0, 10).size() == 10
                     ? std::move(*region_.block(0)).unique().status()
                     : Status(),
                 "Region::reuse");
  Landing landing = land(0);
  expect_refused(std::move(landing).accept_buffer(10).status(), "Region::reuse");
}

// --- the end --------------------------------------------------------------------------------

TEST_F(MemoryRegion, TheKeepAliveGoesWithTheLastThatHoldsTheMemory) {
  std::weak_ptr<int> watch = keep_alive_;
  keep_alive_.reset();
  Block block = *region_.block(0);
  LeaseHandle lease = lend_blocks(1);
  Landing landing = land(2);
  region_ = Region();
  EXPECT_FALSE(watch.expired());
  block = Block();
  EXPECT_FALSE(watch.expired());
  lease->end(LeaseEnd::released);
  EXPECT_FALSE(watch.expired()) << "a READ may still land";
  (void)std::move(landing).discard();
  EXPECT_TRUE(watch.expired());
}

TEST_F(MemoryRegion, ClosingItDropsTheKeepAliveNoEarlier) {
  std::weak_ptr<int> watch = keep_alive_;
  keep_alive_.reset();
  Landing landing = land(2);
  {
    const Poller::Scope scope(rig_.poller);
    const Started closing = start(region_.close(), Callback<Status>{[](void*, Status) {}, nullptr});
    EXPECT_FALSE(watch.expired()) << "a READ may still land";
    region_ = Region();
    EXPECT_FALSE(watch.expired());
    (void)std::move(landing).discard();
    while (rig_.poller.run_once()) {
    }
  }
  EXPECT_TRUE(watch.expired());
}

TEST_F(MemoryRegion, TheKeepAliveOutlivesThePoolsRegistrations) {
  FakeDevice device;
  ASSERT_TRUE(pool().core().attach(device).ok());
  const std::size_t with = device.registered.size();
  bool registered_at_drop = true;
  region_ = Region();  // the same bytes, with another keep-alive
  region_ = std::move(*Region::create(pool(), memory_, std::shared_ptr<void>(&device, [&](void*) {
                                        registered_at_drop = device.registered.size() > with - 1;
                                      })));
  EXPECT_EQ(device.registered.size(), with);  // one region came, one went
  region_ = Region();
  EXPECT_FALSE(registered_at_drop) << "deregistered first";
  pool().core().detach(0);
}

TEST_F(MemoryRegion, CloseEndsTheLeasesAndCompletesWhenNothingIsInFlight) {
  FakeDevice device;
  ASSERT_TRUE(pool().core().attach(device).ok());
  const std::size_t with = device.registered.size();
  const Block block = *region_.block(0);
  const LeaseHandle lease = lend_blocks(1);
  Landing landing = land(2);
  Awaited<Status> closed(rig_, region_.close());
  Awaited<Status> twice(rig_, region_.close());
  EXPECT_FALSE(lease->live());
  EXPECT_EQ(lease->end_reason(), LeaseEnd::withdrawn);
  EXPECT_FALSE(closed.done()) << "a READ may still land";
  expect_refused(lend(pool(), block).status(), "closed");
  expect_refused(region_.block(5).status(), "closed");
  expect_refused(Landing::into_region(region_, 5 * kBlock, 1).status(), "closed");
  (void)std::move(landing).discard();
  rig_.turn();
  ASSERT_TRUE(closed.done() && twice.done());
  EXPECT_TRUE(closed.value->ok());
  EXPECT_EQ(device.registered.size(), with - 1);
  Awaited<Status> again(rig_, region_.close());
  EXPECT_TRUE(again.done());
  pool().core().detach(0);
}

TEST_F(MemoryRegion, CloseWaitsForTheProofOfALeaseThatSettlesLater) {
  const Block block = *region_.block(0);
  const LeaseHandle lease = std::move(
      *lend(pool(), std::span(&block, 1), rig_.clock.now(), nullptr, true, Guard::window));
  Awaited<Status> closed(rig_, region_.close());
  EXPECT_FALSE(lease->live());
  EXPECT_FALSE(closed.done());
  lease->settle();
  rig_.turn();
  EXPECT_TRUE(closed.done());
}

TEST_F(MemoryRegion, ACloseThatIsDroppedClosesAllTheSame) {
  Landing landing = land(2);
  Awaited<Status> closed(rig_, region_.close());
  closed.started.drop();
  (void)std::move(landing).discard();
  rig_.turn();
  EXPECT_FALSE(closed.done());
  expect_refused(region_.block(5).status(), "closed");
}

/// A device that deregisters when it is told to.
class SlowDevice final : public Registrar {
 public:
  [[nodiscard]] std::string_view registrar_name() const override { return "slow:0"; }
  Result<MemoryHandle> register_memory(std::span<std::byte>, MemoryKind&, MemoryUse) override {
    ++registered;
    return MemoryHandle{1};
  }
  Status deregister_memory(MemoryHandle) override {
    std::unique_lock lock(mutex_);
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --registered;
    thread = std::this_thread::get_id();
    return {};
  }

  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_; });
  }
  void let() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::atomic<int> registered{0};
  std::thread::id thread;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false, open_ = false;
};

// Found: the helper's thread held the pool longer than its owner did, and destroyed it while the
// process ended.
TEST(MemoryRegionEnd, APoolIsGoneAfterWhatItsHelperHasToDo) {
  SlowDevice device;
  std::vector<std::byte> memory(kBlock);
  PoolOptions options = small_pool();
  options.grow_inline = false;
  std::optional<Pool> pool(std::in_place, options);
  ASSERT_TRUE(pool->core().attach(device).ok());
  const int before = device.registered;
  ASSERT_TRUE(Region::create(*pool, memory, nullptr).ok()) << "and dropped";
  device.wait_until_asked();
  std::thread later([&] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    device.let();
  });
  pool.reset();
  EXPECT_EQ(device.registered, before - 1) << "the words of leases went too";
  EXPECT_NE(device.thread, std::thread::id());
  later.join();
}

TEST(MemoryRegionEnd, OneThatOutlivesThePoolIsDeregisteredByWhoDropsIt) {
  SlowDevice device;
  device.let();
  std::vector<std::byte> memory(kBlock);
  PoolOptions options = small_pool();
  options.grow_inline = false;
  std::optional<Pool> pool(std::in_place, options);
  ASSERT_TRUE(pool->core().attach(device).ok());
  Region region = std::move(*Region::create(*pool, memory, nullptr));
  pool.reset();
  EXPECT_GT(device.registered, 0);
  region = Region();
  EXPECT_EQ(device.registered, 0);
  EXPECT_EQ(device.thread, std::this_thread::get_id());
}

}  // namespace
}  // namespace pawl
