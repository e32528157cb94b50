// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input.h"
#include "pawl/node.h"
#include "protocol/scripted_fabric.h"
#include "rpc/handshake.h"
#include "rpc/wire.h"

namespace pawl::fuzz {

/// A node in virtual time over a scripted fabric: the other end of every connection is ours.
class Bench {
 public:
  static constexpr std::size_t kReceiveBytes = 2048;
  static constexpr std::size_t kInlineBytesMax = 1024;
  static constexpr std::size_t kMessageBytesMax = 32768;

  Bench();

  [[nodiscard]] Node& node() { return *node_; }
  [[nodiscard]] testing::ScriptedFabric& fabric() { return *source_.fabric; }
  void serve(Service& service);
  void stop_serving() { server_ = Server(); }
  /// Destroys the node, whatever is under way.
  void destroy() {
    server_ = Server();
    node_.reset();
  }
  /// Until the node is at rest.
  void turn();
  void pass(Duration time);
  /// A message on its way to the node. False: no receive of that size waits there.
  bool arrive(fabric::EndpointId endpoint, Input message);

 private:
  class Quiet final : public LogSink {
    void write(Severity, std::string_view) noexcept override {}
  };

  Quiet log_;
  ManualClock clock_;
  testing::ScriptedSource source_;
  std::optional<Node> node_;
  Server server_;
};

/// What one side offers in its handshake; a node accepts it.
rpc::Handshake usual_offer();

/// One frame with its body.
std::vector<std::byte> frame_bytes(rpc::FrameHeader header, Input body);
template <class Body>
std::vector<std::byte> body_bytes(const Body& body) {
  std::vector<std::byte> bytes(4096);
  bytes.resize(encode(body, bytes));
  return bytes;
}

/// Our end of one connection.
class Peer {
 public:
  /// Connects to the node with this handshake.
  Peer(Bench& bench, const rpc::Handshake& offer);
  /// Answers a connect of the node.
  Peer(Bench& bench, fabric::EndpointId endpoint, const std::vector<std::byte>& their_hello,
       const rpc::Handshake& offer);

  [[nodiscard]] bool over() { return bench_->fabric().closed_endpoints[control_.value]; }
  [[nodiscard]] fabric::EndpointId control() const { return control_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] const rpc::Handshake& offer() const { return offer_; }
  [[nodiscard]] const rpc::Handshake& theirs() const { return theirs_; }

  [[nodiscard]] std::vector<std::byte> hello_frame() const;
  void say_hello();
  /// A message with these frames and the credit that is due.
  [[nodiscard]] std::vector<std::byte> message(const std::vector<std::byte>& frames,
                                               std::uint16_t count, bool call) const;
  /// One frame in a message of its own; the node takes its turns.
  template <class Body>
  void say(rpc::FrameType type, std::uint64_t call, const Body& body) {
    rpc::FrameHeader header;
    header.type = type;
    header.call = call;
    header.attempt = 1;
    const bool of_call = type <= rpc::FrameType::fragment;
    bench_->arrive(control_, message(frame_bytes(header, body_bytes(body)), 1, of_call));
    bench_->turn();
  }
  /// The oldest frame of a type that the node said here, taken out of what it said.
  std::optional<testing::SentFrame> heard(rpc::FrameType type);
  template <class Body>
  std::optional<Body> heard_body(rpc::FrameType type) {
    heard_ = heard(type);
    Body body;
    const char* why = nullptr;
    if (!heard_) return std::nullopt;
    require(decode(heard_->body, body, why), "what a node says is well formed");
    return body;
  }

 private:
  Bench* bench_;
  rpc::Handshake offer_, theirs_;
  fabric::EndpointId control_;
  std::uint64_t epoch_ = 0, transcript_ = 0;
  std::optional<testing::SentFrame> heard_;  // what the last body's views show
};

}  // namespace pawl::fuzz
