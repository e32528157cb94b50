// SPDX-License-Identifier: Apache-2.0
// Quarantine as users meet it: a full one refuses new transfers of every kind, and what was lent
// under hold_until_ack is awaited.
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::Faults;

constexpr Method kGet = make_method("test.Quarantine/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Quarantine/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 100'000;
constexpr Duration kDeadline = std::chrono::milliseconds(10);
constexpr Duration kTimeout = std::chrono::seconds(3);  // NodeOptions::quarantine_timeout

class QuarantineUse : public testing::StackFixture {
 protected:
  QuarantineUse() {
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          out.add(block_of(*server_, 1, kBytes));
          co_return Payload();
        });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto buffer = co_await ok(in.pull(call.pool()));
          co_return Payload();
        });
    holding_.hold_until_ack = true;
  }
  Outcome<Pulled<Payload>> get(Into into, Duration deadline = std::chrono::seconds(2)) {
    return world_.run(*client_, channel_.call(kGet, Payload(), std::move(into), within(deadline)));
  }
  Outcome<Payload> put(const Channel& channel, Block block,
                       Duration deadline = std::chrono::seconds(2)) {
    return world_.run(*client_,
                      channel.call(kPut, Payload(), lend(std::move(block)), within(deadline)));
  }
  Block block() { return block_of(*client_, 2, kBytes); }
  /// READs that are posted from now on take longer than any call.
  void delay_reads() {
    Faults faults;
    faults.read_delay = 1;
    faults.read_delay_max = std::chrono::hours(1);
    world_.set_faults(faults);
  }

  ChannelOptions holding_;
};

// Found: into() buffers of the caller's own passed a full quarantine.
TEST_F(QuarantineUse, AFullOneRefusesTransfersOfEveryKind) {
  NodeOptions options;
  options.pool.quarantine_bytes_max = 64 << 10;
  options.memory_windows = true;
  NodeOptions server;
  server.memory_windows = true;
  start(server, options);
  const Channel holding = client_->channel("server:1", holding_);
  ChannelOptions guarded;
  guarded.guard = Guard::window;
  const Channel windowed = client_->channel("server:1", guarded);
  alignas(4096) static std::byte memory[32 * 4096];
  Region region = *Region::create(client_->pool(), memory, nullptr);
  ASSERT_TRUE(get(into(client_->pool())).ok());
  ASSERT_TRUE(put(holding, block()).ok());
  ASSERT_TRUE(put(windowed, block()).ok());
  delay_reads();
  ASSERT_EQ(get(into(client_->pool()), kDeadline).status().code(), Code::deadline);
  world_.set_faults({});
  ASSERT_GT(client_->stats().pool.bytes_quarantined_for(QuarantineReason::read_in_flight), 0u);

  Outcome<Pulled<Payload>> own = get(into(*client_->pool().try_acquire(kBytes)));
  EXPECT_EQ(own.status().code(), Code::resource_exhausted) << own.to_string();
  EXPECT_EQ(own.whereabouts(), Whereabouts::in_hand);
  EXPECT_EQ(world_.run(*client_, std::move(own.buffers_back())).size(), 1u) << "it comes back";
  EXPECT_EQ(get(into(region, {0, kBytes})).status().code(), Code::resource_exhausted);
  EXPECT_EQ(get(into(client_->pool())).status().code(), Code::resource_exhausted);
  EXPECT_EQ(put(holding, block()).status().code(), Code::resource_exhausted);
  EXPECT_EQ(put(windowed, block()).status().code(), Code::resource_exhausted);
  EXPECT_TRUE(put(channel_, block()).ok()) << "what comes back at once holds nothing";

  world_.run_for(2s);  // its endpoint was torn down at read_timeout
  EXPECT_EQ(client_->stats().pool.bytes_quarantined, 0u);
  EXPECT_TRUE(get(into(*client_->pool().try_acquire(kBytes))).ok());
  EXPECT_TRUE(get(into(region, {0, kBytes})).ok());
  EXPECT_TRUE(put(holding, block()).ok());
  expect_quiet();
}

TEST_F(QuarantineUse, WhatIsHeldForAnAcknowledgementCountsToo) {
  NodeOptions options;
  options.pool.quarantine_bytes_max = 64 << 10;
  start({}, options, holding_);
  ASSERT_TRUE(put(channel_, block()).ok());
  delay_reads();
  const Outcome<Payload> late = put(channel_, block(), kDeadline);
  EXPECT_EQ(late.whereabouts(), Whereabouts::quarantined);
  world_.set_faults({});
  EXPECT_EQ(client_->stats().pool.bytes_quarantined_for(QuarantineReason::cancel_unacked), kBytes);
  EXPECT_EQ(get(into(client_->pool())).status().code(), Code::resource_exhausted);
  expect_quiet();
}

TEST_F(QuarantineUse, ABlockIsItsOwnersAgainWhenItsAwaitableSaysSo) {
  start({}, {}, holding_);
  ASSERT_TRUE(put(channel_, block()).ok());
  delay_reads();
  Block mine = block();
  Outcome<Payload> late = put(channel_, mine, kDeadline);
  ASSERT_EQ(late.status().code(), Code::deadline);
  EXPECT_EQ(std::move(mine).unique().status().code(), Code::failed_precondition);
  EXPECT_TRUE(world_.run(*client_, std::move(late.lent_back())).ok());
  EXPECT_EQ(server_->stats().transfers_live, 0u) << "nothing is read for it any more";
  EXPECT_TRUE(std::move(mine).unique().ok());  // NOLINT(bugprone-use-after-move): unchanged
  expect_quiet();
}

// The peer answers pings, and its READs of what it was lent do not end: nor does it acknowledge.
TEST_F(QuarantineUse, APeerThatDoesNotAcknowledgeHoldsItNoLongerThanItsTime) {
  NodeOptions slow;
  slow.read_timeout = std::chrono::hours(1);
  slow.quarantine_timeout = std::chrono::hours(2);
  start(slow, {}, holding_);
  ASSERT_TRUE(put(channel_, block()).ok());
  delay_reads();
  Outcome<Payload> late = put(channel_, block(), kDeadline);
  EXPECT_EQ(late.quarantine(), QuarantineReason::cancel_unacked);
  const TimePoint ended = world_.now();
  EXPECT_TRUE(world_.run(*client_, std::move(late.lent_back())).ok());
  EXPECT_GE(world_.now(), ended + kTimeout);
  EXPECT_LE(world_.now(), ended + kTimeout + Duration(10ms)) << "and the flush";
  EXPECT_EQ(client_->stats().quarantine_breaks, 1u);
  EXPECT_EQ(client_->stats().quarantine_alarms, 0u);
  world_.set_faults({});
  ASSERT_TRUE(put(channel_, block()).ok()) << "over a new connection";
  expect_quiet();
}

TEST_F(QuarantineUse, ItsTimeIsLongerThanThatOfARead) {
  NodeOptions options;
  options.read_timeout = kTimeout;
  const Status refused = world_.add("server", options).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.what().find("quarantine_timeout"), std::string_view::npos) << refused.what();
  options.quarantine_timeout = kTimeout + Duration(1);
  EXPECT_TRUE(world_.add("client", options).status().ok());
}

}  // namespace
}  // namespace pawl
