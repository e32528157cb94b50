// SPDX-License-Identifier: Apache-2.0
// A connection put into a state, one frame or completion fed in, and what comes out. No network.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "pawl/node.h"
#include "protocol/scripted_fabric.h"
#include "support/function_service.h"

namespace pawl {
namespace {

using namespace rpc;  // NOLINT: the frames under test
using testing::FunctionService;
using testing::ScriptedFabric;
using testing::ScriptedSource;
using testing::SentFrame;

constexpr Method kEcho = make_method("test.Protocol/Echo");
constexpr Method kGet = make_method("test.Protocol/Get", BulkDirection::download);
constexpr std::uint64_t kEpoch = 0xe90c;
constexpr std::size_t kBytes = 100'000;

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
    channel_ = node_->channel("peer");
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
  void finish_reads() {
    while (!fabric().reads.empty()) {
      fabric().complete_read();
      turn();
    }
  }

  ManualClock clock_;
  ScriptedSource source_;
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

TEST_F(ConnectionTest, AFrameBeforeTheHelloEndsTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  control_ = fabric().connect_request(encode_handshake(peer_hello()));
  turn();
  feed(FrameType::ping, 0, Ping{1});
  EXPECT_TRUE(over());
  EXPECT_EQ(node_->stats().protocol_errors, 1u);
}

TEST_F(ConnectionTest, CreditsAndPartsBeforeTheHelloEndTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  for (const FrameType type : {FrameType::credit, FrameType::fragment}) {
    control_ = fabric().connect_request(encode_handshake(peer_hello()));
    turn();
    constexpr std::byte kBody[9] = {};
    feed_bytes(type, 1, std::span(kBody).first(type == FrameType::credit ? 0 : 9));
    EXPECT_TRUE(over());
  }
}

TEST_F(ConnectionTest, EveryBodyHasItsLengthAlsoWhereItSaysNothing) {
  server_.emplace(*node_->serve("here", service_));
  for (const FrameType type : {FrameType::goaway, FrameType::pong, FrameType::data_lost_answer}) {
    peer_connects();
    constexpr std::byte kBody[9] = {};
    feed_bytes(type, 0, std::span(kBody).first(8));
    EXPECT_FALSE(over());
    feed_bytes(type, 0, kBody);
    EXPECT_TRUE(over());
    fabric().sent.clear();
  }
}

TEST_F(ConnectionTest, ALeaseWithAGuardThatWasNotNegotiatedEndsTheConnection) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call, Guard::none);  // which the reader would not confirm
  EXPECT_TRUE(over());
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::protocol_error);
}

TEST_F(ConnectionTest, AHelloThatSawAnotherHandshakeEndsTheConnection) {
  server_.emplace(*node_->serve("here", service_));
  control_ = fabric().connect_request(encode_handshake(peer_hello()));
  turn();
  Hello hello;
  hello.epoch = decode_handshake(fabric().accepted[control_.value])->epoch;
  hello.incarnation = peer_hello().incarnation;
  hello.transcript = 12345;
  feed(FrameType::hello, 0, hello);
  EXPECT_TRUE(over());
}

TEST_F(ConnectionTest, ConfirmIsValidOnceAndStaleAfterTheRelease) {
  const LeaseDescriptor lease = lend();
  EXPECT_EQ(confirm(lease.lease, false, epoch_), true);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), true) << "as often as the reader likes";
  EXPECT_EQ(confirm(lease.lease, true, epoch_), true);
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(confirm(lease.lease, true, epoch_), false);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
}

TEST_F(ConnectionTest, ConfirmWithAnotherEpochIdOrGenerationIsStaleAndChangesNothing) {
  const LeaseDescriptor lease = lend();
  EXPECT_EQ(confirm(lease.lease, true, epoch_ + 1), false);
  EXPECT_EQ(confirm({lease.lease.id, lease.lease.generation + 2}, true, epoch_), false);
  EXPECT_EQ(confirm({lease.lease.id + 1, lease.lease.generation}, true, epoch_), false);
  EXPECT_EQ(lent_.live_leases(), 1u);
  EXPECT_EQ(confirm(lease.lease, true, epoch_), true);
}

TEST_F(ConnectionTest, AnotherConnectionCannotConfirmOrReleaseALease) {
  const LeaseDescriptor lease = lend();
  const fabric::EndpointId first = control_;
  fabric().sent.clear();
  const std::vector<std::byte> hello = encode_handshake(peer_hello());
  control_ = fabric().connect_request(hello);
  turn();
  const std::uint64_t first_epoch = epoch_;
  const std::vector<std::byte>& reply = fabric().accepted[control_.value];
  epoch_ = decode_handshake(reply)->epoch;
  transcript_ = handshake_transcript(hello, reply);
  say_hello();
  EXPECT_EQ(confirm(lease.lease, true, epoch_), false);
  Release release;
  release.lease = lease.lease;
  release.epoch = epoch_;
  feed(FrameType::release, 1, release);
  EXPECT_EQ(node_->stats().releases_ignored, 1u);
  EXPECT_EQ(lent_.live_leases(), 1u);
  control_ = first;
  EXPECT_EQ(confirm(lease.lease, true, first_epoch), true);
}

TEST_F(ConnectionTest, ReleaseTwiceIsHarmless) {
  const LeaseDescriptor lease = lend();
  Release release;
  release.lease = lease.lease;
  release.epoch = epoch_;
  feed(FrameType::release, 1, release);
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(node_->stats().leases_released, 1u);
  feed(FrameType::release, 1, release);
  EXPECT_EQ(node_->stats().releases_ignored, 1u);
  EXPECT_FALSE(over());
}

TEST_F(ConnectionTest, TheLeaseEndsAtItsDeadlinePlusGrace) {
  const LeaseDescriptor lease = lend();
  clock_.advance(1s + 50ms - 1ns);
  turn();
  EXPECT_EQ(lent_.live_leases(), 1u);
  clock_.advance(1ns);
  turn();
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
}

TEST_F(ConnectionTest, CancelTakesTheLeaseBackAndIsAcknowledged) {
  const LeaseDescriptor lease = lend();
  feed(FrameType::cancel, 1, Cancel{});
  EXPECT_EQ(lent_.live_leases(), 0u);
  EXPECT_TRUE(take(FrameType::cancel_ack));
  EXPECT_EQ(confirm(lease.lease, false, epoch_), false);
  feed(FrameType::cancel, 1, Cancel{});  // again, and for a call that never was
  EXPECT_TRUE(take(FrameType::cancel_ack));
  feed(FrameType::cancel, 99, Cancel{});
  EXPECT_TRUE(take(FrameType::cancel_ack));
}

TEST_F(ConnectionTest, ReadsThenConfirmThenTheBytes) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  EXPECT_TRUE(fabric().reads.empty()) << "there is no endpoint to READ on yet";
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 2u) << "100 000 bytes in chunks of 64 KiB";
  EXPECT_EQ(fabric().reads[0].remote.key, 77u);
  EXPECT_EQ(fabric().reads[0].remote.address, 4096u);
  fabric().complete_read();
  turn();
  EXPECT_FALSE(take(FrameType::confirm)) << "one READ is still out";
  fabric().complete_read();
  turn();
  const auto check = take_body<Confirm>(FrameType::confirm);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->lease, (LeaseName{5, 9}));
  EXPECT_EQ(check->epoch, kEpoch);
  EXPECT_TRUE(check->release);
  EXPECT_FALSE(ended.outcome) << "no bytes before the answer";
  ConfirmAnswer answer;
  answer.lease = {5, 9};
  answer.valid = true;
  feed(FrameType::confirm_answer, call, answer);
  ASSERT_TRUE(ended.outcome);
  EXPECT_TRUE(ended.outcome->ok());
  EXPECT_EQ((*ended.outcome)->part()->size(), kBytes);
}

TEST_F(ConnectionTest, AStaleAnswerDiscardsTheBytes) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  finish_reads();
  ConfirmAnswer answer;
  answer.lease = {5, 9};
  answer.valid = false;
  feed(FrameType::confirm_answer, call, answer);
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::stale);
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
}

TEST_F(ConnectionTest, AnAnswerForAnotherLeaseConfirmsNothing) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  finish_reads();
  ConfirmAnswer answer;
  answer.lease = {5, 11};
  answer.valid = true;
  feed(FrameType::confirm_answer, call, answer);
  EXPECT_FALSE(ended.outcome);
  clock_.advance(1s);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::deadline);
}

TEST_F(ConnectionTest, AtTheDeadlineLandingMemoryStaysUntilTheLastRead) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended, 10ms);
  answer_with_descriptor(call);
  data_endpoint_up();
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::deadline);
  EXPECT_TRUE(take(FrameType::cancel));
  EXPECT_GT(node_->pool().stats().bytes_quarantined, 0u);
  fabric().complete_read();
  turn();
  EXPECT_GT(node_->pool().stats().bytes_in_use, 0u);
  fabric().complete_read();
  turn();
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
  EXPECT_EQ(node_->pool().stats().bytes_quarantined, 0u);
  EXPECT_FALSE(take(FrameType::confirm)) << "nobody wants the bytes";
}

TEST_F(ConnectionTest, ADescriptorForACallThatIsOverIsReleasedUnread) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended, 10ms);
  clock_.advance(10ms);
  turn();
  ASSERT_TRUE(ended.outcome);
  answer_with_descriptor(call);
  const auto release = take_body<Release>(FrameType::release);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->lease, (LeaseName{5, 9}));
  EXPECT_EQ(fabric().connecting.size(), 1u) << "no endpoint is opened for it";
}

TEST_F(ConnectionTest, ALostReadIsTriedOnceOverAnotherEndpoint) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
  turn();
  EXPECT_FALSE(take(FrameType::confirm));
  EXPECT_FALSE(ended.outcome);
}

TEST_F(ConnectionTest, ARequestedMessageWaitsForCredit) {
  connect();
  std::vector<Started> calls;
  for (int i = 0; i < 6; ++i) {
    {
      const Poller::Scope scope(node_->poller());
      calls.push_back(start(channel_.call(kEcho, Payload()),
                            Callback<Outcome<Payload>>{[](void*, Outcome<Payload>) {}, nullptr}));
    }
    turn();  // a message each
  }
  std::size_t requests = 0;
  while (take(FrameType::request)) ++requests;
  EXPECT_EQ(requests, 4u) << "the peer posted four receives for calls";
  feed_bytes(FrameType::credit, 0, {}, 2);
  while (take(FrameType::request)) ++requests;
  EXPECT_EQ(requests, 6u);
}

TEST_F(ConnectionTest, CreditForMessagesThatWereNeverSentEndsTheConnection) {
  connect();
  feed_bytes(FrameType::credit, 0, {}, 1);
  EXPECT_TRUE(over());
}

TEST_F(ConnectionTest, ReceivesAreRepostedBeforeTheirCreditReturns) {
  accept();
  const std::size_t posted = fabric().receives(control_);
  for (std::uint64_t i = 0; i < 20; ++i) feed(FrameType::ping, 0, Ping{i});
  EXPECT_EQ(fabric().receives(control_), posted);
  std::size_t pongs = 0;
  while (take(FrameType::pong)) ++pongs;
  // The peer gave no credit back: its eight session messages, one of which is kept for returning
  // credits, and its four call messages, which carry session frames when those are short.
  EXPECT_LE(pongs, 7u + 4u);
  EXPECT_GE(pongs, 7u);
}

TEST_F(ConnectionTest, ACallIdInUseEndsTheConnection) {
  const LeaseDescriptor lease = lend();
  Request request;
  request.method = kGet.hash;
  request.remaining_us = 1'000'000;
  feed(FrameType::request, 1, request);
  EXPECT_TRUE(over());
  EXPECT_EQ(lent_.live_leases(), 0u) << "leases end with their connection: " << lease.lease.id;
}

TEST_F(ConnectionTest, AnExpiredRequestIsDroppedBeforeItsHandler) {
  accept();
  Request request;
  request.method = kEcho.hash;
  request.remaining_us = 0;
  feed(FrameType::request, 1, request);
  EXPECT_EQ(node_->stats().served_started, 0u);
  EXPECT_EQ(node_->stats().served_expired, 1u);
}

}  // namespace
}  // namespace pawl
