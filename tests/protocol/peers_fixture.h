// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pawl/node.h"
#include "protocol/scripted_fabric.h"
#include "support/function_service.h"

namespace pawl::rpc {

/// A node that serves, and any number of peers of it, all of which are the test.
class PeersTest : public ::testing::Test {
 protected:
  struct Peer {
    fabric::EndpointId control;
    Handshake theirs;
  };
  static constexpr std::uint32_t kReceiveBytes = 1024;

  /// Receives are small, so that hundreds of peers cost little.
  NodeOptions small_node() {
    NodeOptions options;
    options.clock = &clock_;
    options.fabric_source = &source_;
    options.pool.grow_inline = true;
    options.receive_bytes = kReceiveBytes;
    options.receive_messages = 8;
    options.seed = 7;
    return options;
  }
  void serve() { serve(small_node()); }
  void serve(const NodeOptions& options) {
    node_.emplace(options);
    Result<Server> serving = node_->serve("here", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    server_.emplace(*std::move(serving));
  }
  testing::ScriptedFabric& fabric() { return *source_.fabric; }
  void turn() {
    while (node_->run_once()) {
    }
  }
  void pass(Duration time) {
    clock_.advance(time);
    turn();
  }

  /// With credit for all that a test makes the node send.
  static Handshake offer() {
    Handshake hello;
    hello.incarnation = 0x1ca4;
    hello.guards = guard_bit(Guard::verify);
    hello.limits = {.receive_bytes = kReceiveBytes,
                    .call_messages = 4096,
                    .session_messages = 4096,
                    .message_bytes_max = 1 << 20,
                    .read_depth = 16};
    hello.node_name = "peer";
    return hello;
  }
  bool accepted(fabric::EndpointId endpoint) {
    return fabric().accepted.contains(endpoint.value) && !over(endpoint);
  }
  bool over(fabric::EndpointId endpoint) { return fabric().closed_endpoints[endpoint.value]; }

  /// A connection, with the hellos of both sides. `silent`: its peer acknowledges nothing.
  Peer connect_peer(bool silent = false) {
    Peer peer;
    const std::vector<std::byte> hello = encode_handshake(offer());
    peer.control = fabric().connect_request(hello);
    if (silent) fabric().silent.insert(peer.control.value);
    turn();
    EXPECT_TRUE(accepted(peer.control));
    const std::vector<std::byte>& answer = fabric().accepted[peer.control.value];
    peer.theirs = *decode_handshake(answer);
    say_hello(peer, peer.control, handshake_transcript(hello, answer));
    return peer;
  }
  /// The peer asks for a data endpoint; the node's next turn answers.
  fabric::EndpointId ask_for_data(const Peer& peer, DataRole role, std::uint32_t incarnation) {
    Handshake hello = offer();
    hello.kind = EndpointKind::data;
    hello.connection = peer.theirs.connection;
    hello.connection_secret = peer.theirs.connection_secret;
    hello.role = role;
    hello.endpoint_index = static_cast<std::uint8_t>(role);
    hello.endpoint_incarnation = incarnation;
    return fabric().connect_request(encode_handshake(hello));
  }
  void say_hello(const Peer& peer, fabric::EndpointId endpoint, std::uint64_t transcript) {
    Hello hello;
    hello.epoch = peer.theirs.epoch;
    hello.incarnation = offer().incarnation;
    hello.transcript = transcript;
    say(endpoint, FrameType::hello, hello);
  }
  /// A session frame arrives in a message of its own.
  template <class Body>
  void say(fabric::EndpointId endpoint, FrameType type, const Body& body) {
    std::vector<std::byte> bytes(kReceiveBytes);
    constexpr std::size_t kHeaders = MessageHeader::kBytes + FrameHeader::kBytes;
    FrameHeader frame;
    frame.type = type;
    frame.bytes = static_cast<std::uint32_t>(encode(body, std::span(bytes).subspan(kHeaders)));
    encode(frame, std::span(bytes).subspan(MessageHeader::kBytes));
    MessageHeader header;
    header.message_class = MessageHeader::Class::session;
    header.frames = 1;
    header.bytes = FrameHeader::kBytes + frame.bytes;
    encode(header, bytes);
    bytes.resize(kHeaders + frame.bytes);
    ASSERT_TRUE(fabric().arrive(endpoint, bytes));
    turn();
  }
  /// True if the node answers the ping in the same turns.
  bool ping(const Peer& peer) {
    say(peer.control, FrameType::ping, Ping{++nonce_});
    return ponged(peer);
  }
  /// True if the last answer of the node to this peer is a pong that nobody asked about yet.
  bool ponged(const Peer& peer) {
    return std::erase_if(fabric().sent, [&](const testing::SentFrame& frame) {
             return frame.header.type == FrameType::pong && frame.endpoint == peer.control;
           }) > 0;
  }

  ManualClock clock_;
  testing::ScriptedSource source_;
  testing::FunctionService service_;
  std::optional<Node> node_;
  std::optional<Server> server_;
  std::uint64_t nonce_ = 0;
};

}  // namespace pawl::rpc
