// SPDX-License-Identifier: Apache-2.0
// Messages with window keys travel over the data endpoint that the windows are bound on: the node
// as callee of an upload whose caller is the test.
#include "protocol/connection_fixture.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {
namespace {

class WindowFrames : public ConnectionTest {
 protected:
  WindowFrames() : ConnectionTest(true) {
    put_ = [this](Call& call, Upload& in) -> Task<Result<Payload>> {
      ++started_;
      auto buffer = co_await in.pull(call.pool());
      pulled_ = buffer.status().code();
      co_return Payload();
    };
  }
  /// Connected, and the data endpoint on which the node reads is up.
  void connect_data() {
    connect();
    ASSERT_EQ(fabric().connecting.size(), 3u) << "both are opened at once";
    data_ = fabric().connecting[1];
    ASSERT_EQ(decode_handshake(fabric().connects[1])->role, DataRole::connecting_side_reads);
    fabric().connected(data_, {});
    turn();
    const auto hello = take(FrameType::hello);
    ASSERT_TRUE(hello);
    Hello body;
    const char* why = "";
    ASSERT_TRUE(decode(hello->body, body, why));
    body.incarnation = peer_hello().incarnation;
    feed_over(data_, FrameType::hello, 0, body);
  }
  template <class Body>
  void feed_over(fabric::EndpointId endpoint, FrameType type, std::uint64_t call,
                 const Body& body) {
    std::vector<std::byte> bytes(4096);
    bytes.resize(encode(body, bytes));
    FrameHeader frame;
    frame.type = type;
    frame.call = call;
    frame.attempt = 1;
    ASSERT_TRUE(fabric().arrive(endpoint, message_of(frame, bytes)));
    turn();
  }
  /// A request that lends a window, as `way` and the descriptor's `index` say.
  void put_over(fabric::EndpointId way, std::uint64_t call, std::uint8_t index = 0,
                bool windows = true) {
    SegmentDescriptor segment;
    segment.kind = windows ? KeyKind::window : KeyKind::region;
    segment.length = kBytes;
    segment.key = 77;
    std::vector<std::byte> list(SegmentDescriptor::kBytes);
    segment.address = windows ? 0 : 4096;
    encode(segment, list);
    Request request;
    request.method = kPut.hash;
    request.remaining_us = 1'000'000;
    request.lease.emplace();
    request.lease->lease = {5, 9};
    request.lease->guard = windows ? Guard::window : Guard::verify;
    request.lease->endpoint = index;
    request.lease->segments = 1;
    request.segments = list;
    feed_over(way, FrameType::request, call, request);
  }
  void cancel(std::uint64_t call, std::uint32_t message, std::uint16_t incarnation = 1) {
    Cancel body;
    body.endpoint = 1;
    body.incarnation = incarnation;
    body.message = message;
    feed(FrameType::cancel, call, body);
  }
  /// The connection ended by the peer's fault, at the latest in this turn.
  [[nodiscard]] bool refused() { return over() && node_->stats().protocol_errors == 1; }

  int started_ = 0;
  std::optional<Code> pulled_;
};

TEST_F(WindowFrames, AnUploadIsReadOverItsEndpointAndNeedsNoCheck) {
  connect_data();
  put_over(data_, 1);
  ASSERT_EQ(fabric().reads.size(), 2u);
  EXPECT_EQ(fabric().reads[0].endpoint, data_);
  EXPECT_EQ(fabric().reads[0].remote.key, 77u);
  finish_reads();
  EXPECT_EQ(pulled_, Code::ok);
  EXPECT_FALSE(take(FrameType::confirm));
  const auto answer = take(FrameType::response);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->endpoint, control_) << "it carries no key";
}

TEST_F(WindowFrames, ItsReadsAreNotTriedOverAnotherEndpoint) {
  connect_data();
  put_over(data_, 1);
  ASSERT_FALSE(fabric().reads.empty());
  fabric().failed(data_);
  turn();
  advance_to_next_timer();
  EXPECT_EQ(pulled_, Code::data_lost);
  EXPECT_TRUE(fabric().reads.empty());
}

// Its endpoint went, and another came, before its handler pulled.
TEST_F(WindowFrames, ItsReadsArePostedOnNoOtherEndpoint) {
  put_ = [this](Call& call, Upload& in) -> Task<Result<Payload>> {
    co_await sleep_for(100ms);
    auto buffer = co_await in.pull(call.pool());
    pulled_ = buffer.status().code();
    co_return Payload();
  };
  connect_data();
  put_over(data_, 1);
  fabric().failed(data_);
  turn();
  clock_.advance(50ms);
  turn();
  ASSERT_EQ(fabric().connecting.size(), 4u);
  data_ = fabric().connecting[3];
  fabric().connected(data_, {});
  turn();
  Hello hello;
  hello.epoch = kEpoch;
  hello.incarnation = peer_hello().incarnation;
  hello.transcript = 2;
  feed_over(data_, FrameType::hello, 0, hello);
  clock_.advance(50ms);
  turn();
  EXPECT_EQ(pulled_, Code::data_lost);
  EXPECT_TRUE(fabric().reads.empty());
}

TEST_F(WindowFrames, AWindowKeyOverTheControlEndpointEndsTheConnection) {
  connect_data();
  put_over(control_, 1);
  EXPECT_TRUE(refused());
  EXPECT_EQ(started_, 0);
}

TEST_F(WindowFrames, ACallWithoutOneOverTheDataEndpointEndsTheConnection) {
  connect_data();
  put_over(data_, 1, 0, false);
  EXPECT_TRUE(refused());
  EXPECT_EQ(started_, 0);
}

TEST_F(WindowFrames, AKeyOfAnotherEndpointEndsTheConnection) {
  connect_data();
  put_over(data_, 1, 1);
  EXPECT_TRUE(refused());
}

TEST_F(WindowFrames, SessionFramesOverTheDataEndpointEndTheConnection) {
  connect_data();
  feed_over(data_, FrameType::ping, 0, Ping{1});
  EXPECT_TRUE(refused());
}

TEST_F(WindowFrames, ACancelThatCameFirstIsRemembered) {
  connect_data();
  cancel(8, 2);
  EXPECT_TRUE(take(FrameType::cancel_ack)) << "nothing is read for it, nor will be";
  put_over(data_, 7);
  EXPECT_EQ(started_, 1);
  put_over(data_, 8);
  EXPECT_EQ(started_, 1) << "its caller gave up";
  EXPECT_EQ(node_->stats().served_live, 1u);
  put_over(data_, 9);
  EXPECT_EQ(started_, 2);
}

TEST_F(WindowFrames, ACancelOfWhatCameAlreadyIsNotRemembered) {
  connect_data();
  put_over(data_, 7);
  cancel(99, 1);      // its request came, and is over
  cancel(99, 50, 3);  // its endpoint is gone
  put_over(data_, 99);
  EXPECT_EQ(started_, 2);
}

TEST_F(WindowFrames, CancelsOfRequestsThatNeverComeAreBounded) {
  connect_data();
  returns_credit_ = true;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    cancel(1000 + i, 1'000'000);
    fabric().sent.clear();
  }
  EXPECT_FALSE(over());
  cancel(9999, 1'000'000);
  EXPECT_TRUE(refused());
}

}  // namespace
}  // namespace pawl::rpc
