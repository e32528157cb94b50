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

// What a lost peer was told opens nothing any more.
TEST_F(ConnectionTest, ItsKeysEndWithIt) {
  (void)lend();
  EXPECT_EQ(fabric().exposed_groups.size(), 1u);
  EXPECT_TRUE(fabric().closed_groups.empty());
  fabric().failed(control_);
  turn();
  EXPECT_EQ(fabric().closed_groups, fabric().exposed_groups);
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

TEST_F(ConnectionTest, ARequestThatWentOutByHalfIsCancelledWhenItIsDropped) {
  connect();
  const std::vector<std::byte> request(100'000);  // in more messages than the peer has room for
  {
    const Poller::Scope scope(node_->poller());
    call_ = start(channel_.call(kEcho, Payload(request)),
                  Callback<Outcome<Payload>>{[](void*, Outcome<Payload>) {}, nullptr});
  }
  turn();
  const auto first = take(FrameType::request);
  ASSERT_TRUE(first);
  EXPECT_NE(first->header.flags & kFrameMore, 0);
  {
    const Poller::Scope scope(node_->poller());
    call_.drop();
  }
  turn();
  const auto cancel = take(FrameType::cancel);
  ASSERT_TRUE(cancel) << "the peer keeps a part of a request that never goes on";
  EXPECT_EQ(cancel->header.call, first->header.call);
}

TEST_F(ConnectionTest, CreditForMessagesThatWereNeverSentEndsTheConnection) {
  connect();
  feed_bytes(FrameType::credit, 0, {}, 1);
  EXPECT_TRUE(over());
}

TEST_F(ConnectionTest, ReceivesAreRepostedBeforeTheirCreditReturns) {
  accept();
  const std::size_t posted = fabric().receives(control_);
  fabric().fewest_receives = SIZE_MAX;
  for (std::uint64_t i = 0; i < 20; ++i) feed(FrameType::ping, 0, Ping{i});
  EXPECT_EQ(fabric().receives(control_), posted);
  EXPECT_EQ(fabric().fewest_receives, posted) << "a message told of a receive that was not there";
  std::size_t pongs = 0;
  while (take(FrameType::pong)) ++pongs;
  // The peer gave no credit back: its eight session messages, one of which is kept for returning
  // credits, and its four call messages, which carry session frames when those are short.
  EXPECT_EQ(pongs, 6u + 4u) << "the hello took the first";
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

// However small and many the parts of a region are that a peer is lent, it gets a key a block.
TEST_F(ConnectionTest, PartsOfARegionsBlockAreLentByOneKey) {
  returns_credit_ = true;
  std::vector<std::byte> memory(4 * kBytes);
  Result<Region> region = Region::create(node_->pool(), memory, nullptr, {.block_bytes = kBytes});
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  ASSERT_TRUE(region->reuse(0, 4).ok());
  const Block whole = *region->block(0, 4);
  std::size_t offset = 0;
  get_ = [&](Download& out) { out.add(whole.slice(offset, 5000)); };
  accept();
  for (std::uint64_t call = 1; call <= 100; ++call) {
    offset = call * 2000;
    Request request;
    request.method = kGet.hash;
    request.remaining_us = 1'000'000;
    feed(FrameType::request, call, request);
    const auto response = take_body<Response>(FrameType::response);
    ASSERT_TRUE(response && response->lease);
    SegmentDescriptor segment;
    const char* why = "";
    ASSERT_TRUE(decode_segment(response->segments, 0, segment, why)) << why;
    EXPECT_EQ(segment.address, reinterpret_cast<std::uint64_t>(memory.data()) + offset);
    release(response->lease->lease);
  }
  ASSERT_EQ(fabric().exposed.size(), 3u);
  for (std::size_t block = 0; block < 3; ++block) {
    EXPECT_GE(fabric().exposed[memory.data() + block * kBytes], kBytes);
    EXPECT_LE(fabric().exposed[memory.data() + block * kBytes], 2 * kBytes);
  }
}

// Whatever ends a call, what it lent is nobody's any more when its caller hears of it.
TEST_F(ConnectionTest, TheLeaseIsOverWhenTheCallerHears) {
  connect();
  struct Heard {
    Pool& pool;
    std::optional<Code> code;
    std::uint64_t leases = 99;
  };
  const auto call_put = [&](Heard& heard) {
    Buffer buffer = std::move(*node_->pool().try_acquire(kBytes));
    std::memset(buffer.bytes().data(), 1, buffer.size());
    const Poller::Scope scope(node_->poller());
    CallOptions options;
    options.deadline = 10ms;
    call_ = start(channel_.call(kPut, Payload(), pawl::lend(std::move(buffer).freeze()), options),
                  Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                               auto* told = static_cast<Heard*>(to);
                                               told->code = outcome.status().code();
                                               told->leases = told->pool.stats().leases_live;
                                             },
                                             &heard});
    turn();
    EXPECT_EQ(node_->pool().stats().leases_live, 1u);
    const auto request = take(FrameType::request);
    EXPECT_TRUE(request);
    return request->header.call;
  };
  for (const Code how : {Code::ok, Code::not_found, Code::deadline, Code::connection_lost}) {
    Heard heard{node_->pool(), std::nullopt};
    const std::uint64_t id = call_put(heard);
    if (how == Code::deadline) {
      clock_.advance(10ms);
    } else if (how == Code::connection_lost) {
      fabric().failed(control_);
    } else {
      Response response;
      response.code = how;
      response.ran = Ran::yes;
      feed(FrameType::response, id, response);
    }
    turn();
    EXPECT_EQ(heard.code, how);
    EXPECT_EQ(heard.leases, 0u);
  }
}

}  // namespace
}  // namespace pawl::rpc
