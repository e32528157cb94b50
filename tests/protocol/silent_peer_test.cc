// SPDX-License-Identifier: Apache-2.0
// Peers that acknowledge nothing of what they are sent: they cost the others nothing, and are given
// up; a poller that lacks message slots for them sleeps.
#include "protocol/peers_fixture.h"

namespace pawl::rpc {
namespace {

class SilentPeer : public PeersTest {
 protected:
  /// Asks for answers, one by one, and acknowledges none, until no more come.
  Peer add_greedy() {
    const Peer peer = connect_peer(true);
    for (int i = 0; i < 64; ++i) {
      if (!ping(peer)) break;
    }
    return peer;
  }
  void expect_answers_for_the_honest() {
    const Peer honest = connect_peer();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(ping(honest)) << i;
    for (const DataRole role : {DataRole::connecting_side_reads, DataRole::accepting_side_reads}) {
      const fabric::EndpointId data = ask_for_data(honest, role, 1);
      turn();
      say_hello(honest, data, 1);
      EXPECT_TRUE(accepted(data)) << "a data endpoint has its hellos";
    }
  }
};

TEST_F(SilentPeer, ManyOfThemLeaveMessageSlotsForTheOthers) {
  serve();
  std::vector<Peer> greedy;
  for (const std::size_t count : {16, 100}) {
    while (greedy.size() < count) greedy.push_back(add_greedy());
    expect_answers_for_the_honest();
  }
  for (const Peer& peer : greedy) EXPECT_FALSE(over(peer.control));
}

TEST_F(SilentPeer, IsGivenUpWhenNothingIsAcknowledgedWithinTheLivenessTime) {
  serve();
  const Peer greedy = add_greedy();
  const Peer honest = connect_peer();
  for (int seconds = 0; seconds < 9; ++seconds) {
    pass(1s);
    EXPECT_FALSE(over(greedy.control));
    (void)ping(greedy);  // it is heard all the time
    EXPECT_TRUE(ping(honest));
  }
  for (int seconds = 0; seconds < 5; ++seconds) {
    pass(1s);
    if (over(greedy.control)) break;
    (void)ping(greedy);
    EXPECT_TRUE(ping(honest));
  }
  EXPECT_TRUE(over(greedy.control)) << "10 s, and a third of it between two looks";
  EXPECT_TRUE(ping(honest));
  EXPECT_EQ(node_->stats().connections_live, 1u);
}

TEST_F(SilentPeer, ThatAcknowledgesLateButAlwaysIsKept) {
  serve();
  const Peer slow = connect_peer(true);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(ping(slow));
    pass(1s);
    if (i > 5) fabric().acknowledge(slow.control, 1);  // each of them 6 s after it was sent
  }
  EXPECT_FALSE(over(slow.control));
}

TEST_F(SilentPeer, OfADataEndpointLosesThatAndNoMore) {
  serve();
  const Peer peer = connect_peer();
  const fabric::EndpointId data = ask_for_data(peer, DataRole::connecting_side_reads, 1);
  fabric().silent.insert(data.value);
  turn();
  say_hello(peer, data, 1);
  pass(4999ms);
  EXPECT_FALSE(over(data));
  pass(1ms);
  EXPECT_TRUE(over(data)) << "the node's hello keeps a message slot";
  EXPECT_TRUE(ping(peer));
}

TEST_F(SilentPeer, APollerThatLacksSlotsSleepsUntilOneComesBack) {
  serve();
  // Connected first: a hello needs a slot, too.
  std::vector<Peer> peers;
  for (int i = 0; i < 600; ++i) peers.push_back(connect_peer(true));
  std::optional<std::size_t> starved;
  for (std::size_t i = 0; i < peers.size() && !starved; ++i) {
    for (int pings = 0; pings < 2; ++pings) {  // one keeps a slot by its hello, and gets one more
      if (!ping(peers[i]) && pings == 0) starved = i;
    }
  }
  ASSERT_TRUE(starved) << "1024 slots are fewer than two for each";
  EXPECT_FALSE(node_->run_once());
  EXPECT_TRUE(node_->arm()) << "nothing can be done";
  EXPECT_GT(node_->next_timer(), clock_.now());
  EXPECT_FALSE(ping(peers[*starved + 1])) << "receives are still taken";
  EXPECT_TRUE(node_->arm());
  fabric().acknowledge(peers[0].control, 1);
  EXPECT_FALSE(node_->arm());
  turn();
  EXPECT_TRUE(ponged(peers[*starved])) << "first come, first served";
  EXPECT_FALSE(ponged(peers[*starved + 1]));
  fabric().acknowledge(peers[0].control, 1);
  turn();
  EXPECT_TRUE(ponged(peers[*starved + 1]));
  EXPECT_TRUE(node_->arm());
}

}  // namespace
}  // namespace pawl::rpc
