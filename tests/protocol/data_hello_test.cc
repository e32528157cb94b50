// SPDX-License-Identifier: Apache-2.0
// Data endpoints that never say their hello: for how long, and how many of them, on both sides.
#include "protocol/connection_fixture.h"
#include "protocol/peers_fixture.h"

namespace pawl::rpc {
namespace {

constexpr DataRole kRoles[] = {DataRole::connecting_side_reads, DataRole::accepting_side_reads};

class DataHello : public PeersTest {};
class DataHelloOfConnectingSide : public ConnectionTest {};

TEST_F(DataHello, HasFiveSecondsOnTheAcceptingSide) {
  serve();
  const Peer peer = connect_peer();
  const fabric::EndpointId mute = ask_for_data(peer, DataRole::connecting_side_reads, 1);
  const fabric::EndpointId good = ask_for_data(peer, DataRole::accepting_side_reads, 1);
  turn();
  say_hello(peer, good, 1);
  pass(4999ms);
  EXPECT_TRUE(accepted(mute));
  pass(1ms);
  EXPECT_TRUE(over(mute));
  EXPECT_FALSE(over(good));
  EXPECT_TRUE(ping(peer)) << "the connection goes on";
  const fabric::EndpointId again = ask_for_data(peer, DataRole::connecting_side_reads, 2);
  turn();
  say_hello(peer, again, 2);
  pass(8s);
  EXPECT_TRUE(accepted(again));
}

TEST_F(DataHelloOfConnectingSide, HasFiveSecondsAndIsTriedAgain) {
  connect();
  Ended ended;
  answer_with_descriptor(call_get(ended, 20s));
  ASSERT_EQ(fabric().connecting.size(), 2u);
  const fabric::EndpointId mute = fabric().connecting[1];
  fabric().connected(mute, {});
  turn();
  ASSERT_TRUE(take(FrameType::hello));
  clock_.advance(4999ms);
  turn();
  EXPECT_FALSE(fabric().closed_endpoints[mute.value]);
  clock_.advance(1ms);
  turn();
  EXPECT_TRUE(fabric().closed_endpoints[mute.value]);
  EXPECT_FALSE(take(FrameType::data_lost)) << "it was never usable";
  EXPECT_FALSE(over());
  EXPECT_FALSE(ended.outcome);
  EXPECT_EQ(fabric().connecting.size(), 2u);
  clock_.advance(2ms);
  turn();
  EXPECT_EQ(fabric().connecting.size(), 3u) << "the call is still to be read";
}

// Their receives come out of the message slots; a part of those stays for sending.
TEST_F(DataHello, EndpointsThatWaitForOneLeaveSlotsForMessages) {
  serve();
  std::vector<Peer> peers;
  std::vector<fabric::EndpointId> mute;
  for (int i = 0; i < 450; ++i) {
    peers.push_back(connect_peer());
    for (const DataRole role : kRoles) mute.push_back(ask_for_data(peers.back(), role, 1));
    turn();
  }
  const auto waiting = [&] {
    return std::count_if(mute.begin(), mute.end(), [&](auto each) { return accepted(each); });
  };
  EXPECT_EQ(waiting(), 768) << "three quarters of 1024";
  for (const Peer& peer : peers) ASSERT_TRUE(ping(peer));
  pass(5s);
  EXPECT_EQ(waiting(), 0);
  const fabric::EndpointId data = ask_for_data(peers[0], kRoles[0], 2);
  turn();
  say_hello(peers[0], data, 2);
  EXPECT_TRUE(accepted(data));
}

}  // namespace
}  // namespace pawl::rpc
