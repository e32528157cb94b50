// SPDX-License-Identifier: Apache-2.0
// What becomes of calls under guard `window` when an endpoint, a window or the caller's patience is
// lost on the way: the node as caller of uploads and as callee of downloads.
#include "protocol/connection_fixture.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {
namespace {

class WindowLoss : public ConnectionTest {
 protected:
  struct Put {
    Started call;
    std::optional<Outcome<Payload>> outcome;
  };

  WindowLoss() : ConnectionTest(true) {}

  /// The peer's hello over a data endpoint, which is connected.
  void say_data_hello(fabric::EndpointId endpoint) {
    Hello hello;
    hello.epoch = epoch_;
    hello.incarnation = peer_hello().incarnation;
    hello.transcript = 1;
    std::vector<std::byte> bytes(64);
    bytes.resize(encode(hello, bytes));
    FrameHeader frame;
    frame.type = FrameType::hello;
    ASSERT_TRUE(fabric().arrive(endpoint, message_of(frame, bytes)));
    turn();
  }
  /// Connected, with both data endpoints: `reads_` and `lends_`.
  void connect_data() {
    ChannelOptions options;
    options.guard = Guard::window;
    connect(options);
    ASSERT_EQ(fabric().connecting.size(), 3u);
    reads_ = fabric().connecting[1];
    lends_ = fabric().connecting[2];
    for (const fabric::EndpointId each : {reads_, lends_}) {
      fabric().connected(each, {});
      turn();
      say_data_hello(each);
    }
    fabric().sent.clear();
  }
  void start_put(Put& put, const Block& block, Duration deadline = std::chrono::hours(1),
                 std::size_t segments = 1) {
    CallOptions options;
    options.deadline = deadline;
    const Poller::Scope scope(node_->poller());
    put.call = start(
        channel_.call(kPut, Payload(), Lend(detail::FrameVector<Block>(segments, block)), options),
        Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                     static_cast<Put*>(to)->outcome.emplace(std::move(outcome));
                                   },
                                   &put});
    turn();
  }
  Block block() {
    Buffer buffer = *node_->pool().try_acquire(kBytes);
    (void)buffer.resize(kBytes);
    return std::move(buffer).freeze();
  }

  fabric::EndpointId reads_, lends_;
};

TEST_F(WindowLoss, OfTheReadingEndpointIsNoneOfCallsThatWentOverTheOther) {
  connect_data();
  Put put;
  start_put(put, block());
  const auto request = take(FrameType::request);
  ASSERT_TRUE(request);
  ASSERT_EQ(request->endpoint, lends_);
  fabric().failed(reads_);
  turn();
  EXPECT_FALSE(put.outcome);
  EXPECT_FALSE(take(FrameType::cancel));
  feed(FrameType::response, request->header.call, Response{});
  ASSERT_TRUE(put.outcome);
  EXPECT_TRUE(put.outcome->ok()) << put.outcome->to_string();
}

TEST_F(WindowLoss, ABindThatIsNotAcceptedCostsItsEndpointAndNoMore) {
  connect_data();
  fabric().refused_window_work[lends_.value] = {Code::resource_exhausted, "the queue is full"};
  Put put;
  start_put(put, block());
  ASSERT_TRUE(put.outcome);
  EXPECT_EQ(put.outcome->status().code(), Code::data_lost);
  EXPECT_TRUE(fabric().closed_endpoints[lends_.value]);
  EXPECT_FALSE(over());
  EXPECT_EQ(node_->stats().pool.bytes_in_use, 0u);
}

// The answer is here: what becomes of the windows does not change it.
TEST_F(WindowLoss, AnAnsweredCallIsOkThoughItsInvalidateIsNotAccepted) {
  connect_data();
  Put put;
  start_put(put, block());
  const auto request = take(FrameType::request);
  ASSERT_TRUE(request);
  fabric().refused_window_work[lends_.value] = {Code::failed_precondition, "it is in ERR"};
  feed(FrameType::response, request->header.call, Response{});
  ASSERT_TRUE(put.outcome);
  EXPECT_TRUE(put.outcome->ok()) << put.outcome->to_string();
  EXPECT_TRUE(fabric().closed_endpoints[lends_.value]);
  EXPECT_FALSE(over());
}

// Calls that were given windows and never went out leave them to those that wait.
TEST_F(WindowLoss, WindowsOfCallsThatNeverWentOutGoToThoseThatWait) {
  connect_data();
  const Block lent = block();
  std::deque<Put> gone, short_lived;
  for (int i = 0; i < 8; ++i) start_put(gone.emplace_back(), lent);
  EXPECT_EQ(fabric().messages[lends_.value].call, 8u) << "and no credit is left";
  for (int i = 0; i < 200; ++i) start_put(short_lived.emplace_back(), lent, 10ms);
  Put waits;
  start_put(waits, lent);
  fabric().sent.clear();
  clock_.advance(10ms);
  turn();
  EXPECT_EQ(short_lived.back().outcome->status().code(), Code::deadline);
  EXPECT_EQ(short_lived.back().outcome->ran(), Ran::no);
  FrameHeader frame;
  frame.type = FrameType::credit;
  ASSERT_TRUE(fabric().arrive(lends_, message_of(frame, {}, 8)));
  turn();
  EXPECT_TRUE(take(FrameType::request)) << "its windows were there, and nobody told it";
}

// 116 windows fit into the send queue.
TEST_F(WindowLoss, WhoGivesUpInFrontOfOthersDoesNotHoldThemUp) {
  connect_data();
  const Block lent = block();
  std::deque<Put> sent, big;
  for (int i = 0; i < 110; ++i) start_put(sent.emplace_back(), lent);
  start_put(big.emplace_back(), lent, 10ms, 16);
  Put behind;
  start_put(behind, lent);
  const std::size_t before = fabric().sent.size();
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(big.back().outcome);
  FrameHeader frame;
  frame.type = FrameType::credit;
  ASSERT_TRUE(fabric().arrive(lends_, message_of(frame, {}, 8)));
  turn();
  const auto requests =
      std::count_if(fabric().sent.begin(), fabric().sent.end(),
                    [](const SentFrame& each) { return each.header.type == FrameType::request; });
  EXPECT_EQ(before, 8u);
  EXPECT_EQ(requests, 111);
}

TEST_F(WindowLoss, OfWhoAcknowledgesNothingOverADataEndpointIsOfThatAlone) {
  connect_data();
  fabric().silent.insert(lends_.value);
  Put put;
  start_put(put, block());
  for (int seconds = 0; seconds < 14; ++seconds) {
    clock_.advance(1s);
    turn();
    feed(FrameType::ping, 0, Ping{1});  // it is heard all the time
  }
  EXPECT_TRUE(fabric().errored[lends_.value]);
  fabric().flush(lends_);
  turn();
  EXPECT_TRUE(fabric().closed_endpoints[lends_.value]);
  EXPECT_FALSE(over());
  ASSERT_TRUE(put.outcome);
  EXPECT_EQ(put.outcome->status().code(), Code::data_lost);
}

// --- as callee of a download --------------------------------------------------------------------

constexpr Method kLong = make_method("test.Protocol/Long", BulkDirection::download);

class WindowAnswerLoss : public ConnectionTest {
 protected:
  WindowAnswerLoss() : ConnectionTest(true, Guard::window) {
    service_.add(kLong,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   out.add(std::move(buffer).freeze());
                   co_return Payload(200'000);
                 });
  }
  void request(std::uint64_t call) {
    Request body;
    body.method = kLong.hash;
    body.remaining_us = 1'000'000;
    feed(FrameType::request, call, body);
  }
  /// The endpoint on which the node lends.
  void data_up() {
    Handshake hello = peer_hello();
    const std::vector<std::byte>& reply = fabric().accepted[control_.value];
    const Handshake theirs = *decode_handshake(reply);
    hello.kind = EndpointKind::data;
    hello.epoch = epoch_;
    hello.connection = theirs.connection;
    hello.connection_secret = theirs.connection_secret;
    hello.role = DataRole::connecting_side_reads;
    hello.endpoint_incarnation = 1;
    data_ = fabric().connect_request(encode_handshake(hello));
    turn();
    Hello first;
    first.epoch = epoch_;
    first.incarnation = peer_hello().incarnation;
    first.transcript = 1;
    std::vector<std::byte> bytes(64);
    bytes.resize(encode(first, bytes));
    FrameHeader frame;
    frame.type = FrameType::hello;
    ASSERT_TRUE(fabric().arrive(data_, message_of(frame, bytes)));
    turn();
  }
};

TEST_F(WindowAnswerLoss, ACancelledAnswerThatWaitsForItsEndpointHoldsNothing) {
  accept();
  request(1);
  EXPECT_EQ(node_->stats().served_live, 1u);
  EXPECT_FALSE(take(FrameType::response)) << "there is no endpoint for its keys";
  feed(FrameType::cancel, 1, Cancel{});
  EXPECT_TRUE(take(FrameType::cancel_ack));
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_EQ(node_->stats().pool.bytes_in_use, 0u);
}

TEST_F(WindowAnswerLoss, ACancelledAnswerOfWhichAPartWentOutEndsWithItsEndpoint) {
  accept();
  data_up();
  request(1);
  ASSERT_TRUE(take(FrameType::response)) << "its first part; there is no credit for more";
  EXPECT_EQ(node_->stats().served_live, 1u);
  feed(FrameType::cancel, 1, Cancel{});
  EXPECT_TRUE(take(FrameType::cancel_ack));
  fabric().failed(data_);
  turn();
  clock_.advance(20ms);
  turn();
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_EQ(node_->stats().pool.bytes_in_use, 0u);
  EXPECT_FALSE(over());
}

// The caller hears of it, once, over the control endpoint.
TEST_F(WindowAnswerLoss, AnAnswerOfWhichAPartWentOutIsGivenAgainWithoutBulk) {
  accept();
  data_up();
  request(1);
  ASSERT_TRUE(take(FrameType::response));
  fabric().failed(data_);
  turn();
  const auto again = take(FrameType::response);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->endpoint, control_);
  Response body;
  const char* why = "";
  ASSERT_TRUE(decode(again->body, body, why));
  EXPECT_EQ(body.code, Code::data_lost);
  EXPECT_EQ(body.ran, Ran::yes);
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_EQ(node_->stats().pool.bytes_in_use, 0u);
}

// Devices may take a minute to destroy an endpoint under windows that are bound through it.
TEST_F(WindowAnswerLoss, TheEndpointIsDestroyedAfterItsWindows) {
  accept();
  data_up();
  fabric().silent.insert(data_.value);
  request(1);
  ASSERT_TRUE(take(FrameType::response));
  fabric().failed(data_);
  turn();
  EXPECT_TRUE(fabric().errored[data_.value]);
  EXPECT_FALSE(fabric().closed_endpoints[data_.value]) << "a bind may still be executed";
  EXPECT_GT(node_->stats().pool.bytes_in_use, 0u);
  fabric().flush(data_);
  turn();
  EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  EXPECT_EQ(node_->stats().pool.bytes_in_use, 0u);
}

}  // namespace
}  // namespace pawl::rpc
