// SPDX-License-Identifier: Apache-2.0
// The node as callee: what calls hold here, and that it is given back.
#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

constexpr Method kWait = make_method("test.Served/Wait");

class ServedTest : public ConnectionTest {
 protected:
  ServedTest() {
    service_.add(
        kWait, [](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          co_await sleep_for(std::chrono::hours(1));
          co_return Payload();
        });
  }
  static std::vector<std::byte> request_body(const Method& method,
                                             std::span<const std::byte> payload = {}) {
    Request request;
    request.method = method.hash;
    request.remaining_us = UINT64_MAX;
    request.payload = payload;
    request.payload_bytes = static_cast<std::uint32_t>(payload.size());
    std::vector<std::byte> body(encoded_bytes(request));
    encode(request, body);
    return body;
  }
  static FrameHeader header(FrameType type, std::uint64_t call) {
    FrameHeader frame;
    frame.type = type;
    frame.call = call;
    frame.attempt = 1;
    return frame;
  }
  /// A body of several messages.
  void feed_in_parts(std::uint64_t call, std::span<const std::byte> body) {
    constexpr std::size_t kPart = 8000;
    for (std::size_t at = 0; at < body.size(); at += kPart) {
      Fragment part;
      part.offset = static_cast<std::uint32_t>(at);
      part.body_bytes = static_cast<std::uint32_t>(body.size());
      part.bytes = body.subspan(at, std::min(kPart, body.size() - at));
      std::vector<std::byte> bytes(Fragment::kFixedBytes + part.bytes.size());
      encode(part, bytes);
      FrameHeader frame = header(at == 0 ? FrameType::request : FrameType::fragment, call);
      if (at + kPart < body.size()) frame.flags = kFrameMore;
      feed_frame(frame, bytes);
    }
  }
};

// 64 MiB of one peer's, while their handlers are at work.
TEST_F(ServedTest, RequestsThatAreHeldCount) {
  accept();
  returns_credit_ = true;
  const std::vector<std::byte> payload(1'000'000);
  const std::vector<std::byte> body = request_body(kWait, payload);
  for (std::uint64_t call = 1; call <= 70; ++call) feed_in_parts(call, body);
  EXPECT_GT(node_->stats().served_started, 60u);
  EXPECT_LT(node_->stats().served_started, 70u);
  EXPECT_EQ(node_->stats().served_shed, 70u - node_->stats().served_started);
}

TEST_F(ServedTest, ACallThatIsCancelledInTheQueueGivesItsPlaceUp) {
  accept();
  const std::vector<std::byte> request = request_body(kEcho);
  std::vector<std::byte> cancel(Cancel::kBytes);
  encode(Cancel{}, cancel);
  const std::uint64_t places = NodeOptions().handler_queue_max;
  for (std::uint64_t call = 1; call <= places + 1; ++call) {  // both in one turn
    for (const FrameType type : {FrameType::request, FrameType::cancel}) {
      const bool first = type == FrameType::request;
      std::vector<std::byte> message = message_of(header(type, call), first ? request : cancel);
      return_credit(message);
      ASSERT_TRUE(fabric().arrive(control_, message));
    }
    turn();
    ASSERT_TRUE(take(FrameType::cancel_ack));
    fabric().sent.clear();
  }
  EXPECT_EQ(node_->stats().served_cancelled, places + 1);
  EXPECT_EQ(node_->stats().served_shed, 0u);
}

// Endpoints in ERR whose `failed` is still to come take no message: its slot is everybody's.
TEST_F(ServedTest, SlotsOfMessagesThatWereNotTakenComeBack) {
  accept();
  for (int i = 0; i < 200; ++i) {
    fabric().refused_sends[control_.value] = Status(Code::failed_precondition, "in ERR");
    for (std::uint64_t ping = 0; ping < 10; ++ping) feed(FrameType::ping, 0, Ping{ping});
    fabric().failed(control_);
    turn();
    fabric().forget();
    peer_connects();
  }
  feed(FrameType::ping, 0, Ping{1});
  EXPECT_TRUE(take(FrameType::pong));
}

}  // namespace
}  // namespace pawl::rpc
