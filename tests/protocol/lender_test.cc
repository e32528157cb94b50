// SPDX-License-Identifier: Apache-2.0
// What runs inside the end of a lease may use the Lender: the keep-alive of a region is the user's.
#include "bulk/lender.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/pool_core.h"
#include "pawl/pool.h"
#include "pawl/region.h"
#include "protocol/scripted_fabric.h"
#include "support/log_lines.h"

namespace pawl::bulk {
namespace {

using memory::LeaseEnd;

class LenderTest : public ::testing::Test {
 protected:
  struct Host final : LendHost {
    [[nodiscard]] fabric::PeerGroup lend_group() const override { return {1}; }
    [[nodiscard]] const std::string& peer_address() const override { return address; }
    void break_connection(const char*) override {}
    const std::string address = "peer";
  };
  struct Owner final : LendOwner {
    void lease_over(std::uint64_t, LeaseEnd) override { ++told; }
    int told = 0;
  };

  LenderTest() : pool_(pool_options(), &clock_), poller_(poller_options(clock_)) {
    device_ = *pool_.core().attach(fabric_);
    Lender::Options options;
    options.leases_max = 8;
    lender_.emplace(poller_, fabric_, device_, pool_.core(), stats_, logger_, options);
  }
  ~LenderTest() override {
    lender_.reset();
    pool_.core().detach(device_);
  }
  static PoolOptions pool_options() {
    PoolOptions options;
    options.bytes_max = 1 << 20;
    options.grow_inline = true;
    return options;
  }
  static PollerOptions poller_options(const Clock& clock) {
    PollerOptions options;
    options.clock = &clock;
    return options;
  }
  /// Lends memory that only the lease keeps; `gone` runs inside the release of it.
  std::uint64_t lend(Owner& owner, std::uint64_t call, bool hold, std::function<void()> gone) {
    memory_.push_back(std::make_unique<std::vector<std::byte>>(4096));
    std::shared_ptr<void> keep_alive(nullptr, [gone](void*) { gone(); });
    const Region region = std::move(*Region::create(pool_, *memory_.back(), std::move(keep_alive)));
    const Block block = *region.block(0);
    Lender::Terms terms;
    terms.call = call;
    terms.hold_until_ack = hold;
    SegmentDescriptor out;
    return lender_->lend(host_, list_, &owner, {&block, 1}, terms, {&out, 1})->lease.id;
  }

  ManualClock clock_;
  testing::LogLines log_;
  Logger logger_{clock_, log_};
  testing::ScriptedFabric fabric_;
  Pool pool_;
  Poller poller_;
  NodeStats stats_;
  std::size_t device_ = 0;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  Host host_;
  LentList list_;
  std::optional<Lender> lender_;
};

TEST_F(LenderTest, AnOwnerThatLetGoInsideTheEndIsNotTold) {
  Owner owner;
  int gone = 0;
  std::uint64_t id = 0;
  id = lend(owner, 1, false, [&] {
    ++gone;
    lender_->end(id, LeaseEnd::cancelled);
  });
  lender_->end_all(list_, LeaseEnd::connection);
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(owner.told, 0) << "it may be gone";
  EXPECT_EQ(lender_->live(), 0u);
  EXPECT_TRUE(list_.empty());
}

TEST_F(LenderTest, TheConnectionMayEndInsideTheEnd) {
  Owner owner;
  int gone = 0;
  const std::uint64_t id = lend(owner, 1, false, [&] {
    ++gone;
    lender_->end_all(list_, LeaseEnd::connection);
  });
  lend(owner, 2, false, [&] { ++gone; });
  lender_->end(id, LeaseEnd::cancelled);
  EXPECT_EQ(gone, 2);
  EXPECT_EQ(owner.told, 1) << "of the other lease";
  EXPECT_EQ(lender_->live(), 0u);
}

TEST_F(LenderTest, AnotherCallMayBeCancelledInsideAnAcknowledgement) {
  Owner owner;
  int gone = 0;
  std::vector<std::uint64_t> others;
  const std::uint64_t first = lend(owner, 1, true, [&] {
    ++gone;
    for (const std::uint64_t id : others) lender_->end(id, LeaseEnd::cancelled);
  });
  for (std::uint64_t call = 2; call < 6; ++call) {
    others.push_back(lend(owner, call, true, [&] { ++gone; }));
  }
  lender_->end(first, LeaseEnd::cancelled);
  EXPECT_EQ(gone, 0) << "held until it is acknowledged";
  lender_->acknowledge(list_, 1);
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(lender_->live(), 0u);
  for (std::uint64_t call = 2; call < 6; ++call) lender_->acknowledge(list_, call);
  EXPECT_EQ(gone, 5);
}

}  // namespace
}  // namespace pawl::bulk
