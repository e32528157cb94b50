// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pawl/node.h"
#include "protocol/scripted_fabric.h"
#include "support/function_service.h"

namespace pawl::rpc {

using testing::FunctionService;
using testing::ScriptedFabric;
using testing::ScriptedSource;
using testing::SentFrame;

inline constexpr Method kEcho = make_method("test.Protocol/Echo");
inline constexpr Method kGet = make_method("test.Protocol/Get", BulkDirection::download);
inline constexpr Method kPut = make_method("test.Protocol/Put", BulkDirection::upload);
inline constexpr std::uint64_t kEpoch = 0xe90c;
inline constexpr std::size_t kBytes = 100'000;

/// A node on a scripted fabric whose other side is the test.
class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    NodeOptions options;
    options.clock = &clock_;
    options.fabric_source = &source_;
    options.pool.grow_inline = true;
    options.seed = 7;
    node_.emplace(options);
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   lent_ = std::move(buffer).freeze();
                   out.add(lent_);
                   co_return Payload();
                 });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
  }
  ScriptedFabric& fabric() { return *source_.fabric; }
  void turn() {
    while (node_->run_once()) {
    }
  }

  /// What the test, as the other side, offers.
  Handshake peer_hello() const {
    Handshake hello;
    hello.incarnation = 0x1ca4;
    hello.epoch = kEpoch;
    hello.connection = 1;
    hello.connection_secret = 2;
    hello.guards = guard_bit(Guard::verify);
    hello.limits = {.receive_bytes = 8192,
                    .call_messages = 4,
                    .session_messages = 8,
                    .message_bytes_max = 1 << 20,
                    .read_depth = 16};
    hello.node_name = "peer";
    return hello;
  }

  /// The node as connecting side, ready, hellos exchanged.
  void connect() {
    channel_ = node_->channel("peer", {}, service_);
    const Poller::Scope scope(node_->poller());
    connecting_ = start(channel_.connect(), Callback<Status>{[](void*, Status) {}, nullptr});
    turn();
    ASSERT_EQ(fabric().connects.size(), 1u);
    control_ = fabric().connecting[0];
    const std::vector<std::byte> reply = encode_handshake(peer_hello());
    fabric().connected(control_, reply);
    turn();
    transcript_ = handshake_transcript(fabric().connects[0], reply);
    epoch_ = kEpoch;
    say_hello();
  }
  /// The node as accepting side.
  void accept() {
    server_.emplace(*node_->serve("here", service_));
    peer_connects();
  }
  void peer_connects() {
    const std::vector<std::byte> hello = encode_handshake(peer_hello());
    control_ = fabric().connect_request(hello);
    turn();
    const std::vector<std::byte>& reply = fabric().accepted[control_.value];
    epoch_ = decode_handshake(reply)->epoch;
    transcript_ = handshake_transcript(hello, reply);
    say_hello();
  }
  void say_hello() {
    ASSERT_EQ(fabric().sent.size(), 1u);
    EXPECT_EQ(fabric().sent[0].header.type, FrameType::hello);
    fabric().sent.clear();
    Hello hello;
    hello.epoch = epoch_;
    hello.incarnation = peer_hello().incarnation;
    hello.transcript = transcript_;
    feed(FrameType::hello, 0, hello);
  }

  /// A message with one frame arrives, and the node takes its turns.
  template <class Body>
  void feed(FrameType type, std::uint64_t call, const Body& body) {
    std::vector<std::byte> bytes(4096);
    bytes.resize(encode(body, bytes));
    feed_bytes(type, call, bytes);
  }
  void feed_bytes(FrameType type, std::uint64_t call, std::span<const std::byte> body,
                  std::uint32_t call_credit = 0) {
    std::vector<std::byte> message(MessageHeader::kBytes + FrameHeader::kBytes + body.size());
    MessageHeader header;
    const bool of_call = type == FrameType::request || type == FrameType::response;
    header.message_class = of_call ? MessageHeader::Class::call : MessageHeader::Class::session;
    header.frames = 1;
    header.bytes = static_cast<std::uint32_t>(FrameHeader::kBytes + body.size());
    header.call_messages_returned = call_credit;
    encode(header, message);
    FrameHeader frame;
    frame.type = type;
    frame.call = call;
    frame.attempt = 1;
    frame.bytes = static_cast<std::uint32_t>(body.size());
    encode(frame, std::span(message).subspan(MessageHeader::kBytes));
    std::copy(body.begin(), body.end(),
              message.begin() + MessageHeader::kBytes + FrameHeader::kBytes);
    ASSERT_TRUE(fabric().arrive(control_, message));
    turn();
  }
  /// The oldest frame of this type that the node sent.
  std::optional<SentFrame> take(FrameType type) {
    auto& sent = fabric().sent;
    for (auto it = sent.begin(); it != sent.end(); ++it) {
      if (it->header.type != type) continue;
      SentFrame frame = std::move(*it);
      sent.erase(it);
      return frame;
    }
    return std::nullopt;
  }
  template <class Body>
  std::optional<Body> take_body(FrameType type) {
    last_ = take(type);
    if (!last_) return std::nullopt;
    Body body;
    const char* why = "";
    EXPECT_TRUE(decode(last_->body, body, why)) << why;
    return body;
  }
  bool over() { return fabric().closed_endpoints[control_.value]; }

  // --- the node as callee of a download -------------------------------------------------------

  LeaseDescriptor lend() {
    accept();
    Request request;
    request.method = kGet.hash;
    request.remaining_us = 1'000'000;
    feed(FrameType::request, 1, request);
    const auto response = take_body<Response>(FrameType::response);
    EXPECT_TRUE(response && response->lease);
    return *response->lease;
  }
  std::optional<bool> confirm(const LeaseName& name, bool release, std::uint64_t epoch) {
    Confirm body;
    body.lease = name;
    body.epoch = epoch;
    body.release = release;
    feed(FrameType::confirm, 1, body);
    const auto answer = take_body<ConfirmAnswer>(FrameType::confirm_answer);
    if (!answer) return std::nullopt;
    EXPECT_EQ(answer->lease, name);
    return answer->valid;
  }

  // --- the node as caller of a download ---------------------------------------------------------

  struct Ended {
    std::optional<Outcome<Pulled<Payload>>> outcome;
  };
  std::uint64_t call_get(Ended& ended, Duration deadline = 1s) {
    CallOptions options;
    options.deadline = deadline;
    const Poller::Scope scope(node_->poller());
    call_ = start(channel_.call(kGet, Payload(), into(node_->pool()), options),
                  Callback<Outcome<Pulled<Payload>>>{
                      [](void* to, Outcome<Pulled<Payload>> outcome) {
                        static_cast<Ended*>(to)->outcome.emplace(std::move(outcome));
                      },
                      &ended});
    turn();
    const auto request = take(FrameType::request);
    EXPECT_TRUE(request);
    return request->header.call;
  }
  void answer_with_descriptor(std::uint64_t call, Guard guard = Guard::verify) {
    SegmentDescriptor segment;
    segment.kind = KeyKind::region;
    segment.length = kBytes;
    segment.key = 77;
    segment.address = 4096;
    std::vector<std::byte> list(SegmentDescriptor::kBytes);
    encode(segment, list);
    Response response;
    response.lease.emplace();
    response.lease->lease = {5, 9};
    response.lease->guard = guard;
    response.lease->segments = 1;
    response.segments = list;
    feed(FrameType::response, call, response);
  }
  /// The data endpoint that the node opens for READs comes up.
  void data_endpoint_up() {
    ASSERT_EQ(fabric().connecting.size(), 2u);
    data_ = fabric().connecting[1];
    fabric().connected(data_, {});
    turn();
    const auto hello = take(FrameType::hello);
    ASSERT_TRUE(hello);
    std::vector<std::byte> message(MessageHeader::kBytes + FrameHeader::kBytes +
                                   hello->body.size());
    Hello body;
    const char* why = "";
    ASSERT_TRUE(decode(hello->body, body, why));
    body.incarnation = peer_hello().incarnation;
    MessageHeader header;
    header.message_class = MessageHeader::Class::session;
    header.frames = 1;
    header.bytes = static_cast<std::uint32_t>(message.size() - MessageHeader::kBytes);
    encode(header, message);
    FrameHeader frame = hello->header;
    encode(frame, std::span(message).subspan(MessageHeader::kBytes));
    encode(body, std::span(message).subspan(MessageHeader::kBytes + FrameHeader::kBytes));
    ASSERT_TRUE(fabric().arrive(data_, message));
    turn();
  }
  /// The peer calls back with an upload of kBytes that it lends as {5, 9}.
  void call_put(std::uint64_t call) {
    SegmentDescriptor segment;
    segment.kind = KeyKind::region;
    segment.length = kBytes;
    segment.key = 77;
    segment.address = 4096;
    std::vector<std::byte> list(SegmentDescriptor::kBytes);
    encode(segment, list);
    Request request;
    request.method = kPut.hash;
    request.remaining_us = 1'000'000;
    request.lease.emplace();
    request.lease->lease = {5, 9};
    request.lease->segments = 1;
    request.segments = list;
    feed(FrameType::request, call, request);
  }
  void answer_confirm(std::uint64_t call, bool valid) {
    ConfirmAnswer answer;
    answer.lease = {5, 9};
    answer.valid = valid;
    feed(FrameType::confirm_answer, call, answer);
  }
  void finish_reads() {
    while (!fabric().reads.empty()) {
      fabric().complete_read();
      turn();
    }
  }

  ManualClock clock_;
  ScriptedSource source_;
  std::function<Task<Result<Payload>>(Call&, Upload&)> put_;
  FunctionService service_;
  std::optional<Node> node_;
  std::optional<Server> server_;
  Channel channel_;
  Started connecting_, call_;
  Block lent_;
  fabric::EndpointId control_, data_;
  std::uint64_t epoch_ = 0, transcript_ = 0;
  std::optional<SentFrame> last_;
};

}  // namespace pawl::rpc
