// SPDX-License-Identifier: Apache-2.0
// Endpoints that are gone before this side is done with their beginning: no connection stays
// behind.
#include "protocol/peers_fixture.h"

namespace pawl::rpc {
namespace {

class ConnectEnd : public PeersTest {
 protected:
  void serve_one() {
    NodeOptions options = small_node();
    options.connections_max = 1;
    serve(options);
  }
};

TEST_F(ConnectEnd, OfARequestThatFailedBeforeItWasTakenLeavesNothing) {
  serve_one();
  for (int i = 0; i < 3; ++i) {
    const fabric::EndpointId gone = fabric().connect_request(encode_handshake(offer()));
    fabric().connect_failed(gone, {});
    turn();
    EXPECT_FALSE(fabric().accepted.contains(gone.value));
  }
  const Peer peer = connect_peer();
  EXPECT_TRUE(ping(peer));
}

TEST_F(ConnectEnd, OfAChannelThatGoesWhileItsConnectFailsLeavesNothing) {
  serve_one();
  Channel channel = node_->channel("peer");
  const Poller::Scope scope(node_->poller());
  Started connecting = start(channel.connect(), Callback<Status>{[](void*, Status) {}, nullptr});
  turn();
  ASSERT_EQ(fabric().connecting.size(), 1u);
  fabric().connect_failed(fabric().connecting[0], {});
  connecting.drop();
  channel = Channel();
  turn();
  const Peer peer = connect_peer();
  EXPECT_TRUE(ping(peer));
}

TEST_F(ConnectEnd, BeyondConnectionsMaxIsARefusalThatNamesIt) {
  serve_one();
  const Peer first = connect_peer();
  const fabric::EndpointId second = fabric().connect_request(encode_handshake(offer()));
  turn();
  EXPECT_FALSE(fabric().accepted.contains(second.value));
  EXPECT_TRUE(over(second));
  EXPECT_TRUE(ping(first)) << "who is there is not harmed";
  fabric().failed(first.control);
  turn();
  EXPECT_TRUE(over(first.control));
  const Peer third = connect_peer();
  EXPECT_TRUE(ping(third)) << "a place came free";
}

TEST_F(ConnectEnd, ComesWhenTheFabricRefusesAMessageThatWouldBeLost) {
  serve_one();
  const Peer peer = connect_peer();
  fabric().refused_sends[peer.control.value] = Status(Code::too_large, "the test refuses it");
  EXPECT_FALSE(ping(peer));
  EXPECT_TRUE(over(peer.control));
  EXPECT_EQ(node_->stats().connections_lost, 1u);
}

}  // namespace
}  // namespace pawl::rpc
