// SPDX-License-Identifier: Apache-2.0
// What a connection and its channel do when something ends: a data endpoint, the peer's patience,
// the peer itself, the lease. One frame, completion or instant in, and what comes out.
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "protocol/connection_fixture.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {
namespace {

class RecoveryTest : public ConnectionTest {
 protected:
  /// A download whose two READs are posted on the data endpoint.
  std::uint64_t start_reading(Ended& ended) {
    connect();
    const std::uint64_t call = call_get(ended);
    answer_with_descriptor(call);
    data_endpoint_up();
    EXPECT_EQ(fabric().reads.size(), 2u);
    return call;
  }
  /// Fails the READs that are out, and then, in the same turn, says that their endpoint failed, as
  /// fabrics do.
  void lose_data_endpoint() {
    while (!fabric().reads.empty()) {
      fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
    }
    fabric().failed(data_);
    turn();
    EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  }
  void expect_confirmed_and_ok(std::uint64_t call, const Ended& ended) {
    finish_reads();
    EXPECT_FALSE(ended.outcome) << "no bytes before the answer";
    ASSERT_TRUE(take(FrameType::confirm));
    answer_confirm(call, true);
    ASSERT_TRUE(ended.outcome);
    ASSERT_TRUE(ended.outcome->ok()) << ended.outcome->to_string();
    EXPECT_EQ((*ended.outcome)->part()->size(), kBytes);
  }
};

// --- data endpoints ----------------------------------------------------------------------------

TEST_F(RecoveryTest, LostReadsAreTriedAgainOverAnotherEndpoint) {
  Ended ended;
  const std::uint64_t call = start_reading(ended);
  const fabric::EndpointId first = data_;
  lose_data_endpoint();
  const auto lost = take_body<DataLost>(FrameType::data_lost);
  ASSERT_TRUE(lost) << "the peer is told at once";
  EXPECT_EQ(lost->role, DataRole::connecting_side_reads);
  EXPECT_EQ(lost->incarnation, 1u);
  EXPECT_FALSE(take(FrameType::confirm));
  EXPECT_FALSE(ended.outcome);
  EXPECT_EQ(fabric().connecting.size(), 2u) << "after a delay, not at once";
  advance_to_next_timer();
  data_endpoint_up(3);
  ASSERT_EQ(fabric().connects.size(), 3u);
  EXPECT_EQ(decode_handshake(fabric().connects[2])->endpoint_incarnation, 2u);
  ASSERT_EQ(fabric().reads.size(), 2u) << "both again";
  std::set<std::uint64_t> addresses;
  for (const ScriptedFabric::Read& read : fabric().reads) {
    EXPECT_EQ(read.endpoint, data_);
    EXPECT_NE(read.endpoint, first);
    EXPECT_EQ(read.remote.key, 77u);
    addresses.insert(read.remote.address);
  }
  EXPECT_EQ(addresses, (std::set<std::uint64_t>{4096, 4096 + 65536}));
  expect_confirmed_and_ok(call, ended);
}

TEST_F(RecoveryTest, LostReadsAreTriedAgainOnce) {
  Ended ended;
  start_reading(ended);
  lose_data_endpoint();
  advance_to_next_timer();
  data_endpoint_up(3);
  ASSERT_EQ(fabric().reads.size(), 2u);
  lose_data_endpoint();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::data_lost) << ended.outcome->to_string();
  EXPECT_FALSE(take(FrameType::confirm));
  clock_.advance(std::chrono::seconds(5));
  turn();
  EXPECT_TRUE(fabric().reads.empty());
  EXPECT_EQ(fabric().connecting.size(), 3u) << "nothing needs it any more";
  EXPECT_FALSE(over()) << "the connection goes on";
}

TEST_F(RecoveryTest, DataLostOfThePeerClosesOurHalfAndTheReadsGoOnOverTheNext) {
  Ended ended;
  const std::uint64_t call = start_reading(ended);
  feed(FrameType::data_lost, 0, DataLost{0, DataRole::connecting_side_reads, 1});
  EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  EXPECT_TRUE(fabric().reads.empty()) << "they were flushed";
  EXPECT_FALSE(ended.outcome);
  EXPECT_FALSE(over());
  advance_to_next_timer();
  data_endpoint_up(3);
  ASSERT_EQ(fabric().reads.size(), 2u);
  expect_confirmed_and_ok(call, ended);
}

TEST_F(RecoveryTest, DataLostOfAnotherIncarnationOrRoleChangesNothing) {
  Ended ended;
  const std::uint64_t call = start_reading(ended);
  feed(FrameType::data_lost, 0, DataLost{0, DataRole::connecting_side_reads, 2});
  feed(FrameType::data_lost, 0, DataLost{0, DataRole::connecting_side_reads, 0});
  feed(FrameType::data_lost, 0, DataLost{1, DataRole::accepting_side_reads, 1});
  EXPECT_FALSE(fabric().closed_endpoints[data_.value]);
  EXPECT_EQ(fabric().reads.size(), 2u);
  EXPECT_FALSE(take(FrameType::data_lost));
  expect_confirmed_and_ok(call, ended);
}

// --- goaway ------------------------------------------------------------------------------------

TEST_F(RecoveryTest, AfterAGoawayNewCallsGoOverANewConnection) {
  connect();
  Echoed old, next;
  const std::uint64_t call = call_echo(old);
  ASSERT_NE(call, 0u);
  feed(FrameType::goaway, 0, Goaway{5'000'000});
  EXPECT_FALSE(over()) << "the call that is under way goes on";
  EXPECT_EQ(call_echo(next), 0u) << "nothing new goes over this connection";
  ASSERT_EQ(fabric().connecting.size(), 2u);
  EXPECT_EQ(decode_handshake(fabric().connects[1])->kind, EndpointKind::control);
  fabric().connected(fabric().connecting[1], encode_handshake(peer_hello()));
  turn();
  const auto request = take(FrameType::request);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->endpoint, fabric().connecting[1]);

  EXPECT_FALSE(old.outcome);
  Response response;
  response.payload = std::as_bytes(std::span("ok", 2));
  response.payload_bytes = 2;
  feed(FrameType::response, call, response);
  ASSERT_TRUE(old.outcome);
  EXPECT_TRUE(old.outcome->ok()) << old.outcome->to_string();
  EXPECT_FALSE(next.outcome);
}

TEST_F(RecoveryTest, AGoawayIsAcknowledgedBehindTheLastRequest) {
  connect();
  Echoed under_way;
  ASSERT_NE(call_echo(under_way), 0u);
  feed(FrameType::goaway, 0, Goaway{5'000'000});
  ASSERT_TRUE(take(FrameType::goaway_ack));
  EXPECT_FALSE(under_way.outcome) << "it goes on";
  feed(FrameType::goaway, 0, Goaway{5'000'000});
  EXPECT_FALSE(take(FrameType::goaway_ack)) << "once";
}

TEST_F(RecoveryTest, ARequestThatWaitsForCreditsIsSentBeforeTheAcknowledgement) {
  connect();
  std::deque<Echoed> calls;
  do {
    calls.emplace_back();
  } while (call_echo(calls.back()) != 0);  // the last one finds no credit
  feed(FrameType::goaway, 0, Goaway{5'000'000});
  EXPECT_FALSE(take(FrameType::goaway_ack));
  feed_bytes(FrameType::credit, 0, {}, 1);
  const auto request = take(FrameType::request);
  ASSERT_TRUE(request);
  turn();
  EXPECT_TRUE(take(FrameType::goaway_ack));
}

TEST_F(RecoveryTest, WhereTheLastRequestIsDroppedUnsentTheAcknowledgementFollows) {
  connect();
  std::deque<Echoed> calls;
  do {
    calls.emplace_back();
  } while (call_echo(calls.back()) != 0);
  feed(FrameType::goaway, 0, Goaway{5'000'000});
  EXPECT_FALSE(take(FrameType::goaway_ack));
  calls.back().call.drop();
  turn();
  EXPECT_TRUE(take(FrameType::goaway_ack));
}

TEST_F(RecoveryTest, ADrainedServerClosesAfterTheAcknowledgementOnly) {
  server_.emplace(*node_->serve("here", service_));
  peer_connects();
  std::optional<Status> drained;
  Operation<Status> drain = server_->drain();
  drain.begin({[](void* to, Status status) {
                 static_cast<std::optional<Status>*>(to)->emplace(std::move(status));
               },
               &drained});
  turn();
  ASSERT_TRUE(take(FrameType::goaway));
  EXPECT_FALSE(drained) << "a request may be on its way";
  EXPECT_FALSE(over());
  Request request;
  request.method = kEcho.hash;
  feed(FrameType::request, 1, request);
  const auto answer = take(FrameType::response);
  ASSERT_TRUE(answer);
  Response response;
  const char* why = "";
  ASSERT_TRUE(decode(answer->body, response, why)) << why;
  EXPECT_EQ(response.code, Code::unavailable);
  EXPECT_EQ(response.ran, Ran::no);
  EXPECT_FALSE(over());
  feed_bytes(FrameType::goaway_ack, 0, {});
  turn();
  EXPECT_TRUE(over());
  ASSERT_TRUE(drained);
  EXPECT_TRUE(drained->ok()) << drained->to_string();
}

TEST_F(RecoveryTest, WithoutAnAcknowledgementTheGraceEndsIt) {
  server_.emplace(*node_->serve("here", service_));
  peer_connects();
  std::optional<Status> drained;
  Operation<Status> drain = server_->drain();
  drain.begin({[](void* to, Status status) {
                 static_cast<std::optional<Status>*>(to)->emplace(std::move(status));
               },
               &drained});
  turn();
  clock_.advance(5s - 1ns);
  turn();
  EXPECT_FALSE(drained);
  clock_.advance(1ns);
  turn();
  ASSERT_TRUE(drained);
  EXPECT_EQ(drained->code(), Code::deadline);
  EXPECT_TRUE(over());
}

TEST_F(RecoveryTest, AnAcknowledgementOfNoGoawayEndsTheConnection) {
  connect();
  feed_bytes(FrameType::goaway_ack, 0, {});
  EXPECT_TRUE(over());
}

// --- leases ------------------------------------------------------------------------------------

TEST_F(RecoveryTest, UnderHoldUntilAckTheAcknowledgementGivesTheMemoryBack) {
  ChannelOptions channel;
  channel.hold_until_ack = true;
  connect(channel);
  Result<Buffer> buffer = node_->pool().try_acquire(kBytes);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->bytes().data(), 1, buffer->size());
  std::optional<Outcome<Payload>> outcome;
  CallOptions options;
  options.deadline = 10ms;
  Started call;
  {
    const Poller::Scope scope(node_->poller());
    call = start(channel_.call(kPut, Payload(), pawl::lend((*std::move(buffer)).freeze()), options),
                 Callback<Outcome<Payload>>{
                     [](void* to, Outcome<Payload> got) {
                       static_cast<std::optional<Outcome<Payload>>*>(to)->emplace(std::move(got));
                     },
                     &outcome});
  }
  turn();
  const auto request = take_body<Request>(FrameType::request);
  ASSERT_TRUE(request && request->lease);
  const std::uint64_t id = last_->header.call;
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status().code(), Code::deadline);
  ASSERT_TRUE(take(FrameType::cancel));
  call.drop();
  EXPECT_GT(node_->pool().stats().bytes_in_use, 0u) << "the peer may still read";
  feed(FrameType::cancel_ack, id + 1, CancelAck{Ran::no});
  EXPECT_GT(node_->pool().stats().bytes_in_use, 0u) << "that was another call";
  clock_.advance(std::chrono::seconds(2));
  turn();
  EXPECT_GT(node_->pool().stats().bytes_in_use, 0u) << "time alone gives nothing back";
  feed(FrameType::cancel_ack, id, CancelAck{Ran::no});
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
  feed(FrameType::cancel_ack, id, CancelAck{Ran::no});
  EXPECT_FALSE(over()) << "again is harmless";
}

TEST_F(RecoveryTest, AResponseOfAnotherAttemptIsIgnoredAndWhatItLendsReleased) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call, Guard::verify, 2);
  EXPECT_FALSE(ended.outcome);
  EXPECT_EQ(fabric().connecting.size(), 1u) << "nothing is read for it";
  const auto release = take_body<Release>(FrameType::release);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->lease, (LeaseName{5, 9}));
  answer_with_descriptor(call, Guard::verify, 1);
  EXPECT_FALSE(take(FrameType::release));
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 2u);
  expect_confirmed_and_ok(call, ended);
}

// --- liveness ----------------------------------------------------------------------------------

TEST_F(RecoveryTest, ASilentPeerIsAskedAndThenGivenUp) {
  ChannelOptions channel;
  channel.liveness = 9s;
  connect(channel);
  Echoed echo;
  ASSERT_NE(call_echo(echo), 0u);
  clock_.advance(3s - 1ns);
  turn();
  EXPECT_FALSE(take(FrameType::ping));
  clock_.advance(1ns);
  turn();
  ASSERT_TRUE(take(FrameType::ping));
  feed(FrameType::pong, 0, Ping{});  // heard of at 3 s
  for (int i = 0; i < 2; ++i) {
    clock_.advance(3s);
    turn();
    EXPECT_TRUE(take(FrameType::ping));
  }
  clock_.advance(3s - 1ns);
  turn();
  EXPECT_FALSE(over());
  EXPECT_FALSE(echo.outcome);
  clock_.advance(1ns);
  turn();
  EXPECT_TRUE(over());
  ASSERT_TRUE(echo.outcome);
  EXPECT_EQ(echo.outcome->status().code(), Code::connection_lost);
  EXPECT_NE(echo.outcome->status().what().find("liveness"), std::string_view::npos)
      << echo.outcome->to_string();
  EXPECT_EQ(echo.outcome->ran(), Ran::unknown);
}

// --- connecting again --------------------------------------------------------------------------

class BackoffTest : public RecoveryTest {
 protected:
  static constexpr int kAttempts = 24;

  /// The address is dead: the time from each refusal to the next attempt.
  std::vector<Duration> delays_of_refusals(int count) {
    std::vector<Duration> delays;
    for (int i = 0; i < count; ++i) {
      const std::size_t attempts = fabric().connecting.size();
      fabric().connect_failed(fabric().connecting.back(), {});
      turn();
      const TimePoint refused = clock_.now();
      EXPECT_EQ(fabric().connecting.size(), attempts) << "not at once";
      while (fabric().connecting.size() == attempts && !HasFatalFailure()) advance_to_next_timer();
      EXPECT_EQ(fabric().connecting.size(), attempts + 1);
      delays.push_back(clock_.now() - refused);
    }
    return delays;
  }

  /// The connection that is being made comes to be, `waiting` goes out, and it is lost; the time
  /// to the next attempt, which is made for `next`.
  Duration delay_after_one_that_stood(Duration stands, Echoed& waiting, Echoed& next) {
    control_ = fabric().connecting.back();
    fabric().connected(control_, encode_handshake(peer_hello()));
    turn();
    EXPECT_TRUE(take(FrameType::request));
    clock_.advance(stands);
    fabric().failed(control_);
    turn();
    EXPECT_TRUE(waiting.outcome);
    const TimePoint lost = clock_.now();
    EXPECT_EQ(call_echo(next), 0u);
    const std::size_t attempts = fabric().connecting.size();
    while (fabric().connecting.size() == attempts && !HasFatalFailure()) advance_to_next_timer();
    return clock_.now() - lost;
  }
  Duration delay_after_ten_refusals_and_one_that_stood(Duration stands) {
    channel_ = node_->channel("peer");
    Echoed waiting, next;
    EXPECT_EQ(call_echo(waiting), 0u);
    delays_of_refusals(10);
    return delay_after_one_that_stood(stands, waiting, next);
  }
};

TEST_F(BackoffTest, DelaysDoubleUpToTheirBoundAndAreJittered) {
  channel_ = node_->channel("peer");
  Echoed waiting;
  ASSERT_EQ(call_echo(waiting), 0u);
  ASSERT_EQ(fabric().connecting.size(), 1u);
  const std::vector<Duration> delays = delays_of_refusals(kAttempts);
  std::set<std::int64_t> of_the_bound;
  Duration full = 10ms;
  for (const Duration delay : delays) {
    EXPECT_GE(delay, full / 2);
    EXPECT_LE(delay, full);
    if (full == 1s) of_the_bound.insert(delay.count());
    full = std::min<Duration>(full * 2, 1s);
  }
  EXPECT_EQ(of_the_bound.size(), kAttempts - 7u) << "each was drawn";
  EXPECT_FALSE(waiting.outcome) << "the call waits on";
}

// The tenth delay was a second.
TEST_F(BackoffTest, DelaysStartAgainAfterAConnectionThatStood) {
  const Duration delay = delay_after_ten_refusals_and_one_that_stood(1s);
  EXPECT_GE(delay, 5ms);
  EXPECT_LE(delay, 10ms);
}

TEST_F(BackoffTest, DelaysGoOnAfterAConnectionThatWasLostBefore) {
  const Duration delay = delay_after_ten_refusals_and_one_that_stood(999ms);
  EXPECT_GE(delay, 500ms);
  EXPECT_LE(delay, 1s);
}

// case 18
TEST_F(BackoffTest, APeerThatAcceptsAndBreaksIsNotMetInAStorm) {
  channel_ = node_->channel("peer");
  std::deque<Echoed> calls;
  ASSERT_EQ(call_echo(calls.emplace_back()), 0u);
  const TimePoint begin = clock_.now();
  std::size_t in_first_second = 0;
  while (clock_.now() - begin < 10s && !HasFatalFailure()) {
    Echoed& waiting = calls.back();
    (void)delay_after_one_that_stood(Duration{0}, waiting, calls.emplace_back());
    if (clock_.now() - begin < 1s) ++in_first_second;
  }
  EXPECT_LE(in_first_second, 8u);
  EXPECT_LE(calls.size() - in_first_second, 20u) << "two in a second";
}

}  // namespace
}  // namespace pawl::rpc
