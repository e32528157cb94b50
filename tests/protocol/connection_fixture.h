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
#include "support/log_lines.h"

namespace pawl::rpc {

using testing::FunctionService;
using testing::LogLines;
using testing::ScriptedFabric;
using testing::ScriptedSource;
using testing::SentFrame;

inline constexpr Method kEcho = make_method("test.Protocol/Echo");
inline constexpr Method kGet = make_method("test.Protocol/Get", BulkDirection::download);
inline constexpr Method kPut = make_method("test.Protocol/Put", BulkDirection::upload);
inline constexpr Method kNote = make_method("test.Protocol/Note", BulkDirection::none, false, true);
inline constexpr std::uint64_t kEpoch = 0xe90c;
inline constexpr std::size_t kBytes = 100'000;

/// What a node logged.
/// A node on a scripted fabric whose other side is the test.
class ConnectionTest : public ::testing::Test {
 protected:
  /// `windows`: both ends offer window guards. `guard`: what the node lends under as callee.
  explicit ConnectionTest(bool windows = false, std::optional<Guard> guard = {}) {
    source_.windows = windows;
    NodeOptions options;
    options.guard = guard;
    options.memory_windows = windows;
    options.clock = &clock_;
    options.fabric_source = &source_;
    options.pool.grow_inline = true;
    options.seed = 7;
    options.log = &log_;
    node_.emplace(options);
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   if (get_) {
                     get_(out);
                     co_return Payload();
                   }
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   lent_ = std::move(buffer).freeze();
                   out.add(lent_);
                   co_return Payload();
                 });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
    service_.add(kNote, [this](Call&, std::span<const std::byte> request, Upload&, Download&) {
      return note_(request);
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
    if (source_.windows) {
      hello.guards |= guard_bit(Guard::window) | guard_bit(Guard::window_verify);
    }
    hello.limits = {.receive_bytes = 8192,
                    .call_messages = 4,
                    .session_messages = 8,
                    .message_bytes_max = 4 << 20,
                    .read_depth = 16};
    hello.node_name = "peer";
    return hello;
  }

  /// The node as connecting side, ready, hellos exchanged.
  void connect(const ChannelOptions& options = {}) {
    channel_ = node_->channel("peer", options, service_);
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
    FrameHeader frame;
    frame.type = type;
    frame.call = call;
    frame.attempt = 1;
    feed_frame(frame, body, call_credit);
  }
  void feed_frame(const FrameHeader& frame, std::span<const std::byte> body,
                  std::uint32_t call_credit = 0) {
    std::vector<std::byte> message = message_of(frame, body, call_credit);
    if (returns_credit_) return_credit(message);
    ASSERT_TRUE(fabric().arrive(control_, message));
    turn();
  }
  static std::vector<std::byte> message_of(FrameHeader frame, std::span<const std::byte> body,
                                           std::uint32_t call_credit = 0) {
    std::vector<std::byte> message(MessageHeader::kBytes + FrameHeader::kBytes + body.size());
    MessageHeader header;
    const bool of_call = frame.type < FrameType::hello;
    header.message_class = of_call ? MessageHeader::Class::call : MessageHeader::Class::session;
    header.frames = 1;
    header.bytes = static_cast<std::uint32_t>(FrameHeader::kBytes + body.size());
    header.call_messages_returned = call_credit;
    encode(header, message);
    frame.bytes = static_cast<std::uint32_t>(body.size());
    encode(frame, std::span(message).subspan(MessageHeader::kBytes));
    std::copy(body.begin(), body.end(),
              message.begin() + MessageHeader::kBytes + FrameHeader::kBytes);
    return message;
  }
  /// For all that the node sent.
  void return_credit(std::span<std::byte> message) {
    MessageHeader header;
    const char* why = "";
    ASSERT_TRUE(decode(message, header, why)) << why;
    header.call_messages_returned = fabric().messages[control_.value].call;
    header.session_messages_returned = fabric().messages[control_.value].session;
    encode(header, message);
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
  void release(const LeaseName& name) {
    Release body;
    body.lease = name;
    body.epoch = epoch_;
    feed(FrameType::release, 1, body);
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
    return call_get(ended, into(node_->pool()), deadline);
  }
  std::uint64_t call_get(Ended& ended, Into into, Duration deadline) {
    CallOptions options;
    options.deadline = deadline;
    const Poller::Scope scope(node_->poller());
    call_ = start(channel_.call(kGet, Payload(), std::move(into), options),
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
  /// An echo that ends in `ended`; gives its call id, or 0 if no request went out.
  struct Echoed {
    Started call;
    std::optional<Outcome<Payload>> outcome;
  };
  std::uint64_t call_echo(Echoed& ended, Payload request = Payload::of("x"),
                          Duration deadline = std::chrono::hours(1)) {
    CallOptions options;
    options.deadline = deadline;
    {
      const Poller::Scope scope(node_->poller());
      ended.call = start(channel_.call(kEcho, std::move(request), options),
                         Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                                      static_cast<Echoed*>(to)->outcome.emplace(
                                                          std::move(outcome));
                                                    },
                                                    &ended});
    }
    turn();
    const auto sent = take(FrameType::request);
    return sent ? sent->header.call : 0;
  }
  void answer_with_descriptor(std::uint64_t call, Guard guard = Guard::verify,
                              std::uint16_t attempt = 1) {
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
    std::vector<std::byte> bytes(4096);
    bytes.resize(encode(response, bytes));
    FrameHeader frame;
    frame.type = FrameType::response;
    frame.call = call;
    frame.attempt = attempt;
    feed_frame(frame, bytes);
  }
  /// The data endpoint that the node opens for READs comes up: its `number`th connect.
  void data_endpoint_up(std::size_t number = 2) {
    ASSERT_EQ(fabric().connecting.size(), number);
    data_ = fabric().connecting[number - 1];
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
  /// The peer calls back with an upload of segments of kBytes each that it lends as {5, 9}.
  void call_put(std::uint64_t call, std::uint16_t segments = 1) {
    SegmentDescriptor segment;
    segment.kind = KeyKind::region;
    segment.length = kBytes;
    segment.key = 77;
    segment.address = 4096;
    std::vector<std::byte> list(segments * SegmentDescriptor::kBytes);
    for (std::uint16_t i = 0; i < segments; ++i) {
      encode(segment, std::span(list).subspan(i * SegmentDescriptor::kBytes));
    }
    Request request;
    request.method = kPut.hash;
    request.remaining_us = 1'000'000;
    request.lease.emplace();
    request.lease->lease = {5, 9};
    request.lease->segments = segments;
    request.segments = list;
    feed(FrameType::request, call, request);
  }
  void answer_confirm(std::uint64_t call, bool valid, std::vector<std::byte> bitmap = {}) {
    ConfirmAnswer answer;
    answer.lease = {5, 9};
    answer.valid = valid;
    answer.bitmap = bitmap;
    feed(FrameType::confirm_answer, call, answer);
  }
  void finish_reads() {
    while (!fabric().reads.empty()) {
      fabric().complete_read();
      turn();
    }
  }

  /// Time goes on to the next thing that the node waits for.
  void advance_to_next_timer() {
    ASSERT_NE(node_->next_timer(), TimePoint::never());
    clock_.set(node_->next_timer());
    turn();
  }

  ManualClock clock_;
  ScriptedSource source_;
  LogLines log_;
  std::function<void(Download&)> get_;  // in place of a new buffer of kBytes
  std::function<Task<Result<Payload>>(Call&, Upload&)> put_;
  std::function<Task<Result<Payload>>(std::span<const std::byte>)> note_;
  FunctionService service_;
  std::optional<Node> node_;
  std::optional<Server> server_;
  Channel channel_;
  Started connecting_, call_;
  Block lent_;
  fabric::EndpointId control_, data_;
  bool returns_credit_ = false;  // with every message
  std::uint64_t epoch_ = 0, transcript_ = 0;
  std::optional<SentFrame> last_;
};

}  // namespace pawl::rpc
