// SPDX-License-Identifier: Apache-2.0
// A Node is destroyed while another thread blocks on a call of it.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

#include "pawl/node.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.NodeEnd/Echo");

class NodeEndTcp : public ::testing::Test {
 protected:
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    return options;
  }
  /// Where nobody listens any more.
  static std::string refused_address() {
    Node other(tcp());
    Result<Server> server = other.serve("127.0.0.1:0");
    EXPECT_TRUE(server.ok()) << server.status().to_string();
    return server->address();
  }
};

TEST_F(NodeEndTcp, AThreadThatBlocksOnACallToARefusedPortReturns) {
  const std::string address = refused_address();
  for (int round = 0; round < 5; ++round) {
    std::optional<Node> node;
    node.emplace(tcp());
    node->run_background();
    std::optional<Outcome<Payload>> outcome;
    std::thread caller([&outcome, channel = node->channel(address)] {
      outcome.emplace(block(channel.call(kEcho, Payload())));
    });
    while (node->stats().connects_failed == 0) std::this_thread::yield();
    node.reset();
    caller.join();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->status().code(), Code::connection_lost) << outcome->to_string();
    EXPECT_EQ(outcome->ran(), Ran::no);
    EXPECT_NE(outcome->status().what().find("node was shut down"), std::string_view::npos)
        << outcome->to_string();
  }
}

}  // namespace
}  // namespace pawl
