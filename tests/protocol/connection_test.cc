// SPDX-License-Identifier: Apache-2.0
// A connection put into a state, one frame or completion fed in, and what comes out. No network.
#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

TEST_F(ConnectionTest, AFrameBeforeTheHelloEndsTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  control_ = fabric().connect_request(encode_handshake(peer_hello()));
  turn();
  feed(FrameType::ping, 0, Ping{1});
  EXPECT_TRUE(over());
  EXPECT_EQ(node_->stats().protocol_errors, 1u);
}

TEST_F(ConnectionTest, CreditsAndPartsBeforeTheHelloEndTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  for (const FrameType type : {FrameType::credit, FrameType::fragment}) {
    control_ = fabric().connect_request(encode_handshake(peer_hello()));
    turn();
    constexpr std::byte kBody[9] = {};
    feed_bytes(type, 1, std::span(kBody).first(type == FrameType::credit ? 0 : 9));
    EXPECT_TRUE(over());
  }
}

TEST_F(ConnectionTest, EveryBodyHasItsLengthAlsoWhereItSaysNothing) {
  server_.emplace(*node_->serve("here", service_));
  for (const FrameType type : {FrameType::goaway, FrameType::pong, FrameType::data_lost_answer}) {
    peer_connects();
    constexpr std::byte kBody[9] = {};
    feed_bytes(type, 0, std::span(kBody).first(8));
    EXPECT_FALSE(over());
    feed_bytes(type, 0, kBody);
    EXPECT_TRUE(over());
    fabric().sent.clear();
  }
}

TEST_F(ConnectionTest, ALeaseWithAGuardThatWasNotNegotiatedEndsTheConnection) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call, Guard::none);  // which the reader would not confirm
  EXPECT_TRUE(over());
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::protocol_error);
}

TEST_F(ConnectionTest, AHelloThatSawAnotherHandshakeEndsTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  control_ = fabric().connect_request(encode_handshake(peer_hello()));
  turn();
  Hello hello;
  hello.epoch = decode_handshake(fabric().accepted[control_.value])->epoch;
  hello.incarnation = peer_hello().incarnation;
  hello.transcript = 12345;
  feed(FrameType::hello, 0, hello);
  EXPECT_TRUE(over());
}

TEST_F(ConnectionTest, ConfirmIsValidOnceAndStaleAfterTheRelease) {
  const LeaseDescriptor lease = lend();
  EXPECT_EQ(confirm(lease.lease, false, epoch_), true);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), true) << "as often as the reader likes";
  EXPECT_EQ(confirm(lease.lease, true, epoch_), true);
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(confirm(lease.lease, true, epoch_), false);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
}

TEST_F(ConnectionTest, ConfirmWithAnotherEpochIdOrGenerationIsStaleAndChangesNothing) {
  const LeaseDescriptor lease = lend();
  EXPECT_EQ(confirm(lease.lease, true, epoch_ + 1), false);
  EXPECT_EQ(confirm({lease.lease.id, lease.lease.generation + 2}, true, epoch_), false);
  EXPECT_EQ(confirm({lease.lease.id + 1, lease.lease.generation}, true, epoch_), false);
  EXPECT_EQ(lent_.live_leases(), 1u);
  EXPECT_EQ(confirm(lease.lease, true, epoch_), true);
}

TEST_F(ConnectionTest, AnotherConnectionCannotConfirmOrReleaseALease) {
  const LeaseDescriptor lease = lend();
  const fabric::EndpointId first = control_;
  fabric().sent.clear();
  const std::vector<std::byte> hello = encode_handshake(peer_hello());
  control_ = fabric().connect_request(hello);
  turn();
  const std::uint64_t first_epoch = epoch_;
  const std::vector<std::byte>& reply = fabric().accepted[control_.value];
  epoch_ = decode_handshake(reply)->epoch;
  transcript_ = handshake_transcript(hello, reply);
  say_hello();
  EXPECT_EQ(confirm(lease.lease, true, epoch_), false);
  Release release;
  release.lease = lease.lease;
  release.epoch = epoch_;
  feed(FrameType::release, 1, release);
  EXPECT_EQ(node_->stats().releases_ignored, 1u);
  EXPECT_EQ(lent_.live_leases(), 1u);
  control_ = first;
  EXPECT_EQ(confirm(lease.lease, true, first_epoch), true);
}

TEST_F(ConnectionTest, ReleaseTwiceIsHarmless) {
  const LeaseDescriptor lease = lend();
  Release release;
  release.lease = lease.lease;
  release.epoch = epoch_;
  feed(FrameType::release, 1, release);
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(node_->stats().leases_released, 1u);
  feed(FrameType::release, 1, release);
  EXPECT_EQ(node_->stats().releases_ignored, 1u);
  EXPECT_FALSE(over());
}

TEST_F(ConnectionTest, TheLeaseEndsAtItsDeadlinePlusGrace) {
  const LeaseDescriptor lease = lend();
  clock_.advance(1s + 50ms - 1ns);
  turn();
  EXPECT_EQ(lent_.live_leases(), 1u);
  clock_.advance(1ns);
  turn();
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
}

TEST_F(ConnectionTest, CancelTakesTheLeaseBackAndIsAcknowledged) {
  const LeaseDescriptor lease = lend();
  feed(FrameType::cancel, 1, Cancel{});
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_TRUE(take(FrameType::cancel_ack));
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
  feed(FrameType::cancel, 1, Cancel{});  // again, and for a call that never was
  EXPECT_TRUE(take(FrameType::cancel_ack));
  feed(FrameType::cancel, 99, Cancel{});
  EXPECT_TRUE(take(FrameType::cancel_ack));
}

TEST_F(ConnectionTest, ReadsThenConfirmThenTheBytes) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  EXPECT_TRUE(fabric().reads.empty()) << "there is no endpoint to READ on yet";
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 2u) << "100 000 bytes in chunks of 64 KiB";
  EXPECT_EQ(fabric().reads[0].remote.key, 77u);
  EXPECT_EQ(fabric().reads[0].remote.address, 4096u);
  fabric().complete_read();
  turn();
  EXPECT_FALSE(take(FrameType::confirm)) << "one READ is still out";
  fabric().complete_read();
  turn();
  const auto check = take_body<Confirm>(FrameType::confirm);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->lease, (LeaseName{5, 9}));
  EXPECT_EQ(check->epoch, kEpoch);
  EXPECT_TRUE(check->release);
  EXPECT_FALSE(ended.outcome) << "no bytes before the answer";
  ConfirmAnswer answer;
  answer.lease = {5, 9};
  answer.valid = true;
  feed(FrameType::confirm_answer, call, answer);
  ASSERT_TRUE(ended.outcome);
  EXPECT_TRUE(ended.outcome->ok());
  EXPECT_EQ((*ended.outcome)->part()->size(), kBytes);
}

TEST_F(ConnectionTest, AStaleAnswerDiscardsTheBytes) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  finish_reads();
  ConfirmAnswer answer;
  answer.lease = {5, 9};
  answer.valid = false;
  feed(FrameType::confirm_answer, call, answer);
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::stale);
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
}

TEST_F(ConnectionTest, AnAnswerForAnotherLeaseConfirmsNothing) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  finish_reads();
  ConfirmAnswer answer;
  answer.lease = {5, 11};
  answer.valid = true;
  feed(FrameType::confirm_answer, call, answer);
  EXPECT_FALSE(ended.outcome);
  clock_.advance(1s);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::deadline);
}

TEST_F(ConnectionTest, AtTheDeadlineLandingMemoryStaysUntilTheLastRead) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended, 10ms);
  answer_with_descriptor(call);
  data_endpoint_up();
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::deadline);
  EXPECT_TRUE(take(FrameType::cancel));
  EXPECT_GT(node_->pool().stats().bytes_quarantined, 0u);
  fabric().complete_read();
  turn();
  EXPECT_GT(node_->pool().stats().bytes_in_use, 0u);
  fabric().complete_read();
  turn();
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
  EXPECT_EQ(node_->pool().stats().bytes_quarantined, 0u);
  EXPECT_FALSE(take(FrameType::confirm)) << "nobody wants the bytes";
}

TEST_F(ConnectionTest, ADescriptorForACallThatIsOverIsReleasedUnread) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended, 10ms);
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(ended.outcome);
  answer_with_descriptor(call);
  const auto release = take_body<Release>(FrameType::release);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->lease, (LeaseName{5, 9}));
  EXPECT_EQ(fabric().connecting.size(), 1u) << "no endpoint is opened for it";
}

TEST_F(ConnectionTest, ALostReadIsTriedOnceOverAnotherEndpoint) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
  turn();
  EXPECT_FALSE(take(FrameType::confirm));
  EXPECT_FALSE(ended.outcome);
}

TEST_F(ConnectionTest, ARequestedMessageWaitsForCredit) {
  connect();
  std::vector<Started> calls;
  for (int i = 0; i < 6; ++i) {
    {
      const Poller::Scope scope(node_->poller());
      calls.push_back(start(channel_.call(kEcho, Payload()),
                            Callback<Outcome<Payload>>{[](void*, Outcome<Payload>) {}, nullptr}));
    }
    turn();  // a message each
  }
  std::size_t requests = 0;
  while (take(FrameType::request)) ++requests;
  EXPECT_EQ(requests, 4u) << "the peer posted four receives for calls";
  feed_bytes(FrameType::credit, 0, {}, 2);
  while (take(FrameType::request)) ++requests;
  EXPECT_EQ(requests, 6u);
}

TEST_F(ConnectionTest, CreditForMessagesThatWereNeverSentEndsTheConnection) {
  connect();
  feed_bytes(FrameType::credit, 0, {}, 1);
  EXPECT_TRUE(over());
}

TEST_F(ConnectionTest, ReceivesAreRepostedBeforeTheirCreditReturns) {
  accept();
  const std::size_t posted = fabric().receives(control_);
  for (std::uint64_t i = 0; i < 20; ++i) feed(FrameType::ping, 0, Ping{i});
  EXPECT_EQ(fabric().receives(control_), posted);
  std::size_t pongs = 0;
  while (take(FrameType::pong)) ++pongs;
  // The peer gave no credit back: its eight session messages, one of which is kept for returning
  // credits, and its four call messages, which carry session frames when those are short.
  EXPECT_LE(pongs, 7u + 4u);
  EXPECT_GE(pongs, 7u);
}

TEST_F(ConnectionTest, ACallIdInUseEndsTheConnection) {
  const LeaseDescriptor lease = lend();
  Request request;
  request.method = kGet.hash;
  request.remaining_us = 1'000'000;
  feed(FrameType::request, 1, request);
  EXPECT_TRUE(over());
  EXPECT_EQ(lent_.live_leases(), 0u) << "leases end with their connection: " << lease.lease.id;
}

TEST_F(ConnectionTest, AnExpiredRequestIsDroppedBeforeItsHandler) {
  accept();
  Request request;
  request.method = kEcho.hash;
  request.remaining_us = 0;
  feed(FrameType::request, 1, request);
  EXPECT_EQ(node_->stats().served_started, 0u);
  EXPECT_EQ(node_->stats().served_expired, 1u);
}

}  // namespace
}  // namespace pawl::rpc
