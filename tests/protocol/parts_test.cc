// SPDX-License-Identifier: Apache-2.0
// Bodies in parts after the hello, both ways, and one-way requests: the frames of calls that are
// not one request and one response.
#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

constexpr std::uint64_t kCall = 7;

class PartsTest : public ConnectionTest {
 protected:
  static std::vector<std::byte> text(std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 >> 3);
    return made;
  }
  static std::vector<std::byte> request_body(std::span<const std::byte> payload) {
    Request request;
    request.method = kEcho.hash;
    request.remaining_us = 1'000'000;
    request.payload = payload;
    request.payload_bytes = static_cast<std::uint32_t>(payload.size());
    std::vector<std::byte> bytes(encoded_bytes(request));
    encode(request, bytes);
    return bytes;
  }
  /// Bytes [from, to) of a body arrive as one part.
  void feed_part(FrameType type, std::span<const std::byte> body, std::size_t from, std::size_t to,
                 std::uint8_t flags, std::uint64_t call = kCall) {
    Fragment part;
    part.offset = static_cast<std::uint32_t>(from);
    part.body_bytes = static_cast<std::uint32_t>(body.size());
    part.bytes = body.subspan(from, to - from);
    std::vector<std::byte> bytes(Fragment::kFixedBytes + part.bytes.size());
    encode(part, bytes);
    FrameHeader frame;
    frame.type = type;
    frame.flags = flags;
    frame.attempt = 1;
    frame.call = call;
    feed_frame(frame, bytes);
  }
  void expect_protocol_error() {
    EXPECT_TRUE(over());
    EXPECT_EQ(node_->stats().protocol_errors, 1u);
    EXPECT_EQ(node_->stats().served_started, 0u);
  }
};

TEST_F(PartsTest, ARequestInThreePartsIsServedAfterTheLast) {
  accept();
  const std::vector<std::byte> payload = text(6000);
  const std::vector<std::byte> body = request_body(payload);
  feed_part(FrameType::request, body, 0, 2000, kFrameMore);
  feed(FrameType::ping, 0, Ping{1});  // other frames may come between
  feed_part(FrameType::fragment, body, 2000, 4000, kFrameMore);
  EXPECT_EQ(node_->stats().served_started, 0u);
  EXPECT_FALSE(over());
  feed_part(FrameType::fragment, body, 4000, body.size(), 0);
  EXPECT_EQ(node_->stats().served_started, 1u);
  const auto response = take_body<Response>(FrameType::response);
  ASSERT_TRUE(response);
  EXPECT_EQ(last_->header.call, kCall);
  EXPECT_TRUE(std::equal(response->payload.begin(), response->payload.end(), payload.begin(),
                         payload.end()));
}

TEST_F(PartsTest, AResponseInPartsEndsItsCallAfterTheLast) {
  connect();
  Echoed echo;
  const std::uint64_t call = call_echo(echo);
  const std::vector<std::byte> payload = text(6000);
  Response response;
  response.payload = payload;
  response.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> body(encoded_bytes(response));
  encode(response, body);
  feed_part(FrameType::response, body, 0, 3000, kFrameMore, call);
  EXPECT_FALSE(echo.outcome);
  feed_part(FrameType::fragment, body, 3000, body.size(), kFrameResponse, call);
  ASSERT_TRUE(echo.outcome);
  ASSERT_TRUE(echo.outcome->ok()) << echo.outcome->to_string();
  const std::span<const std::byte> got = std::as_const(**echo.outcome).bytes();
  EXPECT_TRUE(std::equal(got.begin(), got.end(), payload.begin(), payload.end()));
}

TEST_F(PartsTest, ALongRequestGoesOutInPartsThatJoinToIt) {
  connect();
  const std::vector<std::byte> payload = text(20'000);
  Echoed echo;
  {
    const Poller::Scope scope(node_->poller());
    echo.call = start(channel_.call(kEcho, Payload(std::span<const std::byte>(payload))),
                      Callback<Outcome<Payload>>{[](void*, Outcome<Payload>) {}, nullptr});
  }
  turn();
  std::vector<std::byte> joined;
  std::uint64_t call = 0;
  std::size_t parts = 0;
  for (const SentFrame& frame : fabric().sent) {
    ASSERT_EQ(frame.header.type, parts == 0 ? FrameType::request : FrameType::fragment);
    if (parts++ == 0) call = frame.header.call;
    EXPECT_EQ(frame.header.call, call);
    EXPECT_EQ(frame.header.attempt, 1u);
    Fragment part;
    const char* why = "";
    ASSERT_TRUE(decode(frame.body, part, why)) << why;
    EXPECT_EQ(part.offset, joined.size());
    joined.insert(joined.end(), part.bytes.begin(), part.bytes.end());
    const bool last = joined.size() == part.body_bytes;
    EXPECT_EQ(frame.header.flags, last ? 0 : kFrameMore);
  }
  EXPECT_GE(parts, 3u) << "receives of 8192 bytes";
  Request request;
  const char* why = "";
  ASSERT_TRUE(decode(joined, request, why)) << why;
  EXPECT_TRUE(
      std::equal(request.payload.begin(), request.payload.end(), payload.begin(), payload.end()));
}

TEST_F(PartsTest, ANewFirstPartGivesUpTheBodyBefore) {
  accept();
  const std::vector<std::byte> given_up = request_body(text(3000));
  feed_part(FrameType::request, given_up, 0, 1000, kFrameMore);
  const std::vector<std::byte> payload = text(5000);
  const std::vector<std::byte> body = request_body(payload);
  feed_part(FrameType::request, body, 0, 2500, kFrameMore, kCall + 1);
  feed_part(FrameType::fragment, body, 2500, body.size(), 0, kCall + 1);
  const auto response = take_body<Response>(FrameType::response);
  ASSERT_TRUE(response);
  EXPECT_EQ(last_->header.call, kCall + 1);
  EXPECT_EQ(response->payload.size(), payload.size());
  EXPECT_EQ(node_->stats().served_started, 1u);
}

TEST_F(PartsTest, AfterACancelNoPartOfThatRequestComes) {
  accept();
  const std::vector<std::byte> body = request_body(text(3000));
  feed_part(FrameType::request, body, 0, 1000, kFrameMore);
  feed(FrameType::cancel, kCall, Cancel{});
  EXPECT_TRUE(take(FrameType::cancel_ack));
  EXPECT_FALSE(over());
  feed_part(FrameType::fragment, body, 1000, body.size(), 0);
  expect_protocol_error();
}

// A peer may have replies of 64 MiB waiting here; those of calls that it cancelled do not count.
TEST_F(PartsTest, RepliesOfCancelledCallsAreHeldNoMore) {
  constexpr Method kLong = make_method("test.Parts/Long");
  service_.add(kLong,
               [](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
                 co_return Payload(std::size_t{1'000'000});
               });
  accept();
  Request request;
  request.method = kLong.hash;
  request.remaining_us = 1'000'000'000;
  for (std::uint64_t call = 1; call <= 80; ++call) {  // more than its credit lets go out
    returns_credit_ = true;
    feed(FrameType::request, call, request);
    feed(FrameType::cancel, call, Cancel{});
    ASSERT_TRUE(take(FrameType::cancel_ack));
    fabric().sent.clear();
  }
  EXPECT_EQ(node_->stats().served_started, 80u);
  EXPECT_EQ(node_->stats().served_shed, 0u);
}

TEST_F(PartsTest, APartOfNoBodyEndsTheConnection) {
  accept();
  feed_part(FrameType::fragment, request_body(text(3000)), 1000, 2000, kFrameMore);
  expect_protocol_error();
}

TEST_F(PartsTest, APartOfAnotherCallEndsTheConnection) {
  accept();
  const std::vector<std::byte> body = request_body(text(3000));
  feed_part(FrameType::request, body, 0, 1000, kFrameMore);
  feed_part(FrameType::fragment, body, 1000, body.size(), 0, kCall + 1);
  expect_protocol_error();
}

TEST_F(PartsTest, APartWithAnotherOffsetEndsTheConnection) {
  accept();
  const std::vector<std::byte> body = request_body(text(3000));
  feed_part(FrameType::request, body, 0, 1000, kFrameMore);
  // As many bytes as are missing, under an offset that is not where the part before ended.
  std::vector<std::byte> rotated(body.size(), std::byte{0});
  std::copy(body.begin() + 1000, body.end(), rotated.begin() + 500);
  feed_part(FrameType::fragment, rotated, 500, body.size() - 500, 0);
  expect_protocol_error();
}

TEST_F(PartsTest, ALastPartThatIsNotTheLastEndsTheConnection) {
  accept();
  const std::vector<std::byte> body = request_body(text(3000));
  feed_part(FrameType::request, body, 0, 1000, kFrameMore);
  feed_part(FrameType::fragment, body, 1000, 2000, 0);
  expect_protocol_error();
}

TEST_F(PartsTest, ABodyBeyondTheLimitEndsTheConnectionAtItsFirstPart) {
  accept();
  Fragment part;
  part.body_bytes = (1u << 20) + 1;
  const std::vector<std::byte> some = text(100);
  part.bytes = some;
  std::vector<std::byte> bytes(Fragment::kFixedBytes + some.size());
  encode(part, bytes);
  FrameHeader frame;
  frame.type = FrameType::request;
  frame.flags = kFrameMore;
  frame.attempt = 1;
  frame.call = kCall;
  feed_frame(frame, bytes);
  expect_protocol_error();
}

// --- one-way -----------------------------------------------------------------------------------

class OneWayTest : public ConnectionTest {
 protected:
  void feed_note(std::uint64_t call, std::uint64_t method = kNote.hash) {
    Request request;
    request.method = method;
    request.remaining_us = 1'000'000;
    request.one_way = true;
    feed(FrameType::request, call, request);
  }
  /// Nothing that answers the call has gone out.
  void expect_no_answer() {
    EXPECT_FALSE(take(FrameType::response));
    EXPECT_FALSE(take(FrameType::cancel_ack));
  }
};

TEST_F(OneWayTest, TheHandlerRunsAndNothingIsAnswered) {
  int noted = 0;
  note_ = [&](std::span<const std::byte>) -> Task<Result<Payload>> {
    ++noted;
    co_return Payload::of("nobody hears this");
  };
  accept();
  feed_note(1);
  EXPECT_EQ(noted, 1);
  EXPECT_EQ(node_->stats().served_ok, 1u);
  expect_no_answer();
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_TRUE(log_.lines.empty()) << log_.lines[0];
  EXPECT_FALSE(over());
}

TEST_F(OneWayTest, AnErrorOfTheHandlerIsLoggedAndNotAnswered) {
  note_ = [](std::span<const std::byte>) -> Task<Result<Payload>> {
    co_return Status(Code::not_found, "there is no such notebook");
  };
  accept();
  for (std::uint64_t call = 1; call <= 4; ++call) feed_note(call);
  expect_no_answer();
  EXPECT_EQ(node_->stats().served_failed, 4u);
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_EQ(log_.count("test.Protocol/Note"), 4u);
  EXPECT_EQ(log_.count("there is no such notebook"), 4u);
}

TEST_F(OneWayTest, AnErrorOfACallThatIsAnsweredIsNotLogged) {
  put_ = [](Call&, Upload&) -> Task<Result<Payload>> {
    co_return Status(Code::not_found, "there is no such notebook");
  };
  connect();
  call_put(1);
  EXPECT_TRUE(take(FrameType::response));
  EXPECT_TRUE(log_.lines.empty()) << log_.lines[0];
}

TEST_F(OneWayTest, AnUnknownMethodIsNotAnsweredEither) {
  accept();
  feed_note(1, method_hash("test.Protocol/Nothing"));
  expect_no_answer();
  EXPECT_EQ(node_->stats().unknown_methods, 1u);
  EXPECT_EQ(node_->stats().served_live, 0u);
  EXPECT_FALSE(over());
}

TEST_F(OneWayTest, TheCallerIsDoneWhenItsRequestIsSentAndIgnoresAnswers) {
  connect();
  std::optional<Status> sent;
  Started sending;
  {
    const Poller::Scope scope(node_->poller());
    sending = start(
        channel_.send(kNote, Payload::of("note")),
        Callback<Status>{[](void* to, Status status) {
                           static_cast<std::optional<Status>*>(to)->emplace(std::move(status));
                         },
                         &sent});
  }
  turn();
  const auto request = take_body<Request>(FrameType::request);
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->one_way);
  EXPECT_EQ(request->method, kNote.hash);
  EXPECT_EQ(request->payload.size(), 4u);
  ASSERT_TRUE(sent);
  EXPECT_TRUE(sent->ok()) << sent->to_string();
  EXPECT_EQ(node_->stats().calls_live, 0u);
  feed(FrameType::response, last_->header.call, Response{});
  EXPECT_FALSE(over());
}

}  // namespace
}  // namespace pawl::rpc
