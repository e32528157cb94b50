// SPDX-License-Identifier: Apache-2.0
// What no later try can mend is told at once: a handshake that cannot work, at either side.
#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

class RefusedHandshake : public ConnectionTest {
 protected:
  /// A call that would wait for a connection as long as it takes.
  void call() {
    channel_ = node_->channel("peer");
    EXPECT_EQ(call_echo(echoed_), 0u);
    ASSERT_EQ(fabric().connecting.size(), 1u);
    EXPECT_FALSE(echoed_.outcome);
  }
  void expect_told_at_once(std::string_view sentence) {
    ASSERT_TRUE(echoed_.outcome);
    const Status& status = echoed_.outcome->status();
    EXPECT_EQ(status.code(), Code::protocol_error);
    EXPECT_EQ(status.what(), sentence);
    EXPECT_EQ(status.ran(), Ran::no);
    EXPECT_FALSE(status.retryable(true));
    clock_.advance(1h);
    turn();
    EXPECT_EQ(fabric().connecting.size(), 1u) << "nobody waits: nobody connects";
  }
  Echoed echoed_;
};

TEST_F(RefusedHandshake, WithLimitsOfThePeerThatCannotWorkEndsTheCall) {
  call();
  Handshake tiny = peer_hello();
  tiny.limits.receive_bytes = 100;
  fabric().connected(fabric().connecting[0], encode_handshake(tiny));
  turn();
  expect_told_at_once("handshake: receive_bytes is 100, the least is 1024");
}

TEST_F(RefusedHandshake, WithLimitsOfOursThatThePeerRefusesEndsTheCall) {
  call();
  Handshake answer = peer_hello();
  answer.refusal = Status(Code::protocol_error, "handshake: call_messages is 0");
  fabric().connect_failed(fabric().connecting[0], encode_handshake(answer));
  turn();
  expect_told_at_once("handshake: call_messages is 0");
}

TEST_F(RefusedHandshake, BecauseOfTheMomentIsTriedAgain) {
  call();
  Handshake answer = peer_hello();
  answer.refusal = Status(Code::resource_exhausted, "the server has connections_max connections");
  fabric().connect_failed(fabric().connecting[0], encode_handshake(answer));
  turn();
  EXPECT_FALSE(echoed_.outcome);
  advance_to_next_timer();
  EXPECT_EQ(fabric().connecting.size(), 2u);
}

TEST_F(RefusedHandshake, IsNotWhatEndsAConnectionThatWorked) {
  connect();
  fabric().sent.clear();
  fabric().messages.clear();
  feed(FrameType::hello, 0, Hello{});  // a second one
  EXPECT_TRUE(over());
  EXPECT_EQ(call_echo(echoed_), 0u);
  EXPECT_FALSE(echoed_.outcome) << "it waits for the next connection";
  advance_to_next_timer();
  EXPECT_EQ(fabric().connecting.size(), 2u);
}

}  // namespace
}  // namespace pawl::rpc
