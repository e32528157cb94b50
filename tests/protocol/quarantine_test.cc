// SPDX-License-Identifier: Apache-2.0
// Memory whose call is over and which a device or the peer may still reach: what it is counted as,
// what ends it, and what its time limits do. Times are exact.
#include "pawl/region.h"
#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

using Why = QuarantineReason;

constexpr Duration kReadTimeout = std::chrono::seconds(1);  // the defaults of NodeOptions
constexpr Duration kTimeout = std::chrono::seconds(3);
constexpr Duration kInstant{1};
constexpr std::size_t kLandingBytes = 131072;  // the buffer that kBytes land in

template <class T>
class Awaited {
 public:
  Awaited(Node& node, Operation<T> operation) {
    const Poller::Scope scope(node.poller());
    started_ = start(std::move(operation),
                     Callback<T>{[](void* to, T got) {
                                   static_cast<std::optional<T>*>(to)->emplace(std::move(got));
                                 },
                                 &value});
  }
  std::optional<T> value;

 private:
  Started started_;
};

class QuarantineTest : public ConnectionTest {
 protected:
  PoolStats pool() { return node_->pool().stats(); }
  std::uint64_t bytes(Why why) { return pool().bytes_quarantined_for(why); }
  void expect_all(Why why, std::uint64_t count) {
    EXPECT_EQ(bytes(why), count);
    EXPECT_EQ(pool().bytes_quarantined, count) << "and for no other reason";
  }
  std::uint64_t alarms() { return node_->stats().quarantine_alarms; }
  std::uint64_t breaks() { return node_->stats().quarantine_breaks; }
  /// Time passes, and the peer answers pings.
  void pass(Duration duration) {
    constexpr Duration kStep = std::chrono::seconds(2);
    while (duration > kStep) {
      pass_at_once(kStep);
      duration -= kStep;
    }
    pass_at_once(duration);
  }
  void pass_at_once(Duration duration) {
    clock_.advance(duration);
    turn();
    turn();  // what was closed in a turn without work says so in the next
    while (!over() && !fabric().stuck && take(FrameType::ping)) feed(FrameType::pong, 0, Ping{});
  }

  // --- downloads ------------------------------------------------------------------------------

  Buffer own_buffer() { return *node_->pool().try_acquire(kBytes); }
  /// A download whose READs are posted and do not complete.
  void pull(Ended& ended, Into into, Duration deadline = 10ms) {
    connect();
    answer_with_descriptor(call_get(ended, std::move(into), deadline));
    data_endpoint_up();
    ASSERT_EQ(fabric().reads.size(), 2u);
  }

  // --- uploads under hold_until_ack -------------------------------------------------------------

  struct Upload {
    std::optional<Outcome<Payload>> outcome;
    std::optional<Awaited<Status>> back;
    Started call;
    std::uint64_t id = 0;
  };
  void connect_holding() {
    ChannelOptions options;
    options.hold_until_ack = true;
    connect(options);
  }
  void lend_to_peer(Upload& upload, Duration deadline = 10ms) {
    CallOptions options;
    options.deadline = deadline;
    {
      const Poller::Scope scope(node_->poller());
      upload.call = start(channel_.call(kPut, Payload(), pawl::lend(own_block()), options),
                          Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                                       static_cast<Upload*>(to)->outcome.emplace(
                                                           std::move(outcome));
                                                     },
                                                     &upload});
    }
    turn();
    const auto request = take(FrameType::request);
    ASSERT_TRUE(request);
    upload.id = request->header.call;
  }
  Block own_block() { return own_buffer().freeze(); }
  /// Ends it by its deadline and waits for what it lent.
  void time_out(Upload& upload, Duration deadline = 10ms) {
    pass(deadline);
    ASSERT_TRUE(upload.outcome);
    EXPECT_EQ(upload.outcome->status().code(), Code::deadline);
    EXPECT_TRUE(take(FrameType::cancel));
    await_back(upload);
  }
  void await_back(Upload& upload) {
    upload.back.emplace(*node_, std::move(upload.outcome->lent_back()));
    turn();
  }
  void acknowledge(const Upload& upload) {
    feed(FrameType::cancel_ack, upload.id, CancelAck{Ran::unknown});
  }
};

// --- READs into our memory -----------------------------------------------------------------------

TEST_F(QuarantineTest, ABufferWhoseEndpointIsTornDownSaysSoAndComesBackAfterwards) {
  Ended ended;
  pull(ended, into(own_buffer()), 1s);
  fabric().stuck = true;
  fabric().failed(control_);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::connection_lost);
  EXPECT_EQ(ended.outcome->whereabouts(), Whereabouts::quarantined);
  EXPECT_EQ(ended.outcome->quarantine(), Why::endpoint_drain);
  expect_all(Why::endpoint_drain, kLandingBytes);
  Awaited<std::vector<Buffer>> back(*node_, std::move(ended.outcome->buffers_back()));
  turn();
  EXPECT_FALSE(back.value);
  fabric().unstick();
  turn();
  ASSERT_TRUE(back.value);
  ASSERT_EQ(back.value->size(), 1u);
  EXPECT_EQ((*back.value)[0].size(), 0u);
  expect_all(Why::none, 0);
}

// Its READs are in flight when the call ends; then their time is up, and the endpoint goes.
TEST_F(QuarantineTest, TheReasonIsTheDrainOnceTheEndpointIsTakenDown) {
  Ended ended;
  pull(ended, into(own_buffer()));
  pass(10ms);
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->whereabouts(), Whereabouts::returning);
  EXPECT_EQ(ended.outcome->quarantine(), Why::read_in_flight);
  expect_all(Why::read_in_flight, kLandingBytes);
  fabric().stuck = true;
  pass(kReadTimeout - Duration(10ms) - kInstant);
  expect_all(Why::read_in_flight, kLandingBytes);
  pass(kInstant);
  EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  expect_all(Why::endpoint_drain, kLandingBytes);
  EXPECT_EQ(pool().quarantined_longest, kReadTimeout - Duration(10ms));
}

TEST_F(QuarantineTest, ADrainThatDoesNotEndIsOneAlarmAndReleasesNothing) {
  Ended ended;
  pull(ended, into(own_buffer()));
  pass(10ms);
  fabric().stuck = true;
  pass(kReadTimeout - Duration(10ms));
  ASSERT_TRUE(fabric().closed_endpoints[data_.value]);
  pass(kTimeout - kInstant);
  EXPECT_EQ(alarms(), 0u);
  pass(kInstant);
  EXPECT_EQ(alarms(), 1u);
  ASSERT_EQ(log_.errors, 1u);
  const std::string& line = log_.lines.back();
  EXPECT_NE(line.find("100000 bytes"), std::string::npos) << line;
  EXPECT_NE(line.find("pulled from peer"), std::string::npos) << line;
  pass(std::chrono::hours(1));
  EXPECT_EQ(alarms(), 1u);
  expect_all(Why::endpoint_drain, kLandingBytes);
  fabric().unstick();
  turn();
  expect_all(Why::none, 0);
  ended.outcome.reset();  // which has the buffer
  EXPECT_EQ(pool().bytes_in_use, 0u);
}

TEST_F(QuarantineTest, ADrainThatEndsIsNoAlarm) {
  Ended ended;
  pull(ended, into(own_buffer()));
  pass(kReadTimeout);
  expect_all(Why::none, 0);
  pass(2 * kTimeout);
  EXPECT_EQ(alarms(), 0u);
  EXPECT_EQ(log_.errors, 0u);
}

TEST_F(QuarantineTest, ARangeOfARegionHasAnAwaitableToo) {
  alignas(4096) static std::byte memory[32 * 4096];
  Region region = *Region::create(node_->pool(), memory, nullptr);
  Ended ended;
  pull(ended, into(region, {0, kBytes}));
  pass(10ms);
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->whereabouts(), Whereabouts::returning);
  expect_all(Why::read_in_flight, kBytes);
  EXPECT_FALSE(region.reuse(0).ok());
  Awaited<std::vector<Buffer>> back(*node_, std::move(ended.outcome->buffers_back()));
  finish_reads();
  ASSERT_TRUE(back.value);
  EXPECT_TRUE(back.value->empty()) << "a region's range is no Buffer";
  EXPECT_TRUE(region.reuse(0).ok());
}

TEST_F(QuarantineTest, MemoryOfALiveCallIsLandingAndInNoQuarantine) {
  Ended ended;
  pull(ended, into(own_buffer()), 30s);
  fabric().stuck = true;
  pass(kReadTimeout);
  EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  EXPECT_FALSE(ended.outcome);
  expect_all(Why::none, 0);
  EXPECT_EQ(pool().bytes_landing, kLandingBytes);
}

// --- what was lent under hold_until_ack ----------------------------------------------------------

TEST_F(QuarantineTest, WhatWasLentIsHeldUntilTheCancelIsAcknowledged) {
  connect_holding();
  Upload upload;
  lend_to_peer(upload);
  expect_all(Why::none, 0);
  time_out(upload);
  EXPECT_EQ(upload.outcome->whereabouts(), Whereabouts::quarantined);
  EXPECT_EQ(upload.outcome->quarantine(), Why::cancel_unacked);
  expect_all(Why::cancel_unacked, kBytes);
  EXPECT_FALSE(upload.back->value);
  acknowledge(upload);
  ASSERT_TRUE(upload.back->value);
  EXPECT_TRUE(upload.back->value->ok());
  expect_all(Why::none, 0);
  EXPECT_EQ(pool().bytes_in_use, 0u);
  pass(2 * kTimeout);
  EXPECT_EQ(breaks(), 0u);
  EXPECT_FALSE(over());
}

// The callee is done with it, whatever it answers.
TEST_F(QuarantineTest, AnErrorReplyGivesTheMemoryBackLikeAGoodOne) {
  connect_holding();
  for (const Code code : {Code::ok, Code::not_found}) {
    Upload upload;
    lend_to_peer(upload);
    Response response;
    response.code = code;
    response.ran = Ran::yes;
    feed(FrameType::response, upload.id, response);
    ASSERT_TRUE(upload.outcome);
    EXPECT_EQ(upload.outcome->status().code(), code);
    EXPECT_EQ(upload.outcome->whereabouts(), Whereabouts::in_hand);
    expect_all(Why::none, 0);
  }
}

TEST_F(QuarantineTest, WithoutTheOptionItIsInHandAtOnce) {
  connect();
  Upload upload;
  lend_to_peer(upload);
  time_out(upload);
  EXPECT_EQ(upload.outcome->whereabouts(), Whereabouts::in_hand);
  EXPECT_EQ(upload.outcome->quarantine(), Why::none);
  ASSERT_TRUE(upload.back->value);
  EXPECT_TRUE(upload.back->value->ok());
  EXPECT_EQ(pool().bytes_in_use, 0u);
}

// Found: a peer that answered pings and never acknowledged held the memory for ever.
TEST_F(QuarantineTest, APeerThatNeverAcknowledgesLosesItsConnection) {
  connect_holding();
  Upload upload;
  lend_to_peer(upload);
  time_out(upload);
  pass(kTimeout - kInstant);
  EXPECT_FALSE(over());
  EXPECT_EQ(breaks(), 0u);
  expect_all(Why::cancel_unacked, kBytes);
  pass(kInstant);
  EXPECT_TRUE(over());
  EXPECT_TRUE(fabric().errored[control_.value]);
  EXPECT_EQ(breaks(), 1u);
  ASSERT_TRUE(upload.back->value) << "its endpoints are closed, which is the proof";
  EXPECT_TRUE(upload.back->value->ok());
  expect_all(Why::none, 0);
  EXPECT_EQ(pool().bytes_in_use, 0u);
  EXPECT_EQ(alarms(), 0u);
}

TEST_F(QuarantineTest, EachHasItsOwnTime) {
  connect_holding();
  Upload first, second;
  lend_to_peer(first);
  time_out(first);
  lend_to_peer(second, 1s);
  time_out(second, 1s);
  pass(1s);
  acknowledge(first);
  EXPECT_TRUE(first.back->value);
  expect_all(Why::cancel_unacked, kBytes);
  pass(kTimeout - Duration(1s) - kInstant);
  EXPECT_FALSE(over());
  pass(kInstant);
  EXPECT_TRUE(over());
  EXPECT_TRUE(second.back->value);
}

TEST_F(QuarantineTest, EndpointsThatDoNotCloseAreOneAlarmAndReleaseNothing) {
  connect_holding();
  Upload upload;
  lend_to_peer(upload);
  time_out(upload);
  pass(kTimeout - kInstant);
  fabric().stuck = true;
  pass(kInstant);
  EXPECT_TRUE(over());
  expect_all(Why::endpoint_drain, kBytes);
  pass(kTimeout - kInstant);
  EXPECT_EQ(alarms(), 0u);
  pass(kInstant);
  EXPECT_EQ(alarms(), 1u);
  ASSERT_EQ(log_.errors, 1u);
  const std::string& line = log_.lines.back();
  EXPECT_NE(line.find("100000 bytes that were lent to peer"), std::string::npos) << line;
  pass(std::chrono::hours(1));
  EXPECT_EQ(alarms(), 1u);
  expect_all(Why::endpoint_drain, kBytes);
  EXPECT_FALSE(upload.back->value);
  fabric().unstick();
  turn();
  EXPECT_TRUE(upload.back->value);
  expect_all(Why::none, 0);
}

// Found: the memory was free before the endpoints were closed, so that a late READ of the peer
// could have the next use's bytes.
TEST_F(QuarantineTest, TheLossOfTheConnectionIsNoProofBeforeItsEndpointsAreClosed) {
  connect_holding();
  Upload upload, running;
  lend_to_peer(upload);
  time_out(upload);
  lend_to_peer(running, 30s);
  fabric().stuck = true;
  fabric().failed(control_);
  turn();
  ASSERT_TRUE(running.outcome);
  EXPECT_EQ(running.outcome->status().code(), Code::connection_lost);
  EXPECT_EQ(running.outcome->whereabouts(), Whereabouts::quarantined);
  EXPECT_EQ(running.outcome->quarantine(), Why::endpoint_drain);
  await_back(running);
  expect_all(Why::endpoint_drain, 2 * kBytes);
  EXPECT_FALSE(upload.back->value);
  EXPECT_FALSE(running.back->value);
  EXPECT_EQ(breaks(), 0u) << "it was lost by itself";
  fabric().unstick();
  turn();
  EXPECT_TRUE(upload.back->value);
  EXPECT_TRUE(running.back->value);
  expect_all(Why::none, 0);
}

TEST_F(QuarantineTest, AnAnsweredCallHoldsNothing) {
  connect_holding();
  Upload upload;
  lend_to_peer(upload);
  feed(FrameType::response, upload.id, Response());
  ASSERT_TRUE(upload.outcome);
  EXPECT_TRUE(upload.outcome->ok()) << upload.outcome->to_string();
  EXPECT_EQ(upload.outcome->whereabouts(), Whereabouts::in_hand);
  EXPECT_EQ(pool().bytes_in_use, 0u);
  expect_all(Why::none, 0);
}

}  // namespace
}  // namespace pawl::rpc
