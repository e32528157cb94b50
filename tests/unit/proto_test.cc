// SPDX-License-Identifier: Apache-2.0
// The codec, and the way from bytes to handlers and back, without a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pawl/blocking.h"
#include "pawl/completer.h"
#include "pawl/poller.h"
#include "pawl/proto/client.h"
#include "pawl/proto/server.h"
#include "sample.pawl.h"

namespace {

using pawl::Code;
using pawl::Method;
using pawl::Operation;
using pawl::Outcome;
using pawl::Payload;
using pawl::Ran;
using pawl::Result;
using pawl::Status;
using pawl::Task;
using pawl::proto::Protobuf;
using pawl::proto::Role;
using sample::v1::EverythingMethods;
using testing::HasSubstr;
using Request = sample::v1::Outer_Request;
using Reply = sample::v1::Outer_Reply;

static_assert(pawl::proto::Codec<Protobuf, Request>);
static_assert(!pawl::proto::Codec<Protobuf, int>);

Payload encoded(const Request& request) {
  auto payload = Protobuf::encode(EverythingMethods::plain, Role::request, request);
  EXPECT_TRUE(payload.ok());
  return *std::move(payload);
}

Status decode(std::string_view bytes, Role role = Role::request) {
  Request request;
  return Protobuf::decode(EverythingMethods::plain, role,
                          std::as_bytes(std::span(bytes.data(), bytes.size())), request);
}

TEST(Codec, RoundTrip) {
  Request request;
  request.set_text("text");
  request.add_children()->set_number(7);
  const Payload payload = encoded(request);
  Request back;
  ASSERT_TRUE(
      Protobuf::decode(EverythingMethods::plain, Role::request, payload.bytes(), back).ok());
  EXPECT_EQ(back.SerializeAsString(), request.SerializeAsString());
}

TEST(Codec, AnEmptyMessageIsAnEmptyPayload) {
  EXPECT_EQ(encoded(Request()).size(), 0u);
  EXPECT_TRUE(decode("").ok());
}

TEST(Codec, SaysWhereARequestStopsMakingSense) {
  const Status status = decode(
      "\x0a\x05"
      "abc");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.ran(), Ran::no);
  EXPECT_EQ(status.what(),
            "request of sample.v1.Everything/Plain is not a valid sample.v1.Outer.Request: field 1 "
            "at byte 0 of 5: wants 5 bytes where 3 are left");
  EXPECT_THAT(std::string(decode("\x10\xff").what()), HasSubstr("a number is cut off"));
  EXPECT_THAT(std::string(decode("\x0f").what()), HasSubstr("there is no wire type 7"));
  EXPECT_THAT(std::string(decode(std::string(3, '\0')).what()), HasSubstr("no such field number"));
  EXPECT_THAT(std::string(decode("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").what()),
              HasSubstr("at byte 0 of 11: a tag is cut off or too long"));
  EXPECT_THAT(std::string(decode("\x0a\x01\xff").what()), HasSubstr("UTF-8"));
}

TEST(Codec, AReplyThatIsNoReplyIsABugOfAHandlerThatRan) {
  const Status status = decode(
      "\x0a\x05"
      "abc",
      Role::reply);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_EQ(status.ran(), Ran::yes);
  EXPECT_THAT(std::string(status.what()), HasSubstr("reply of sample.v1.Everything/Plain"));
}

TEST(Codec, RequiredFieldsAreNamed) {
  legacy::Record record;
  const auto payload = Protobuf::encode(EverythingMethods::put_block, Role::request, record);
  ASSERT_FALSE(payload.ok());
  EXPECT_EQ(payload.status().code(), Code::invalid_argument);
  EXPECT_EQ(payload.status().what(),
            "request of sample.v1.Everything/PutBlock is no complete legacy.Record: required but "
            "not set: id");
  const Status status = Protobuf::decode(EverythingMethods::put_block, Role::request, {}, record);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(status.what()), HasSubstr("required but not set: id"));
}

/// A poller that the test turns itself.
class ProtoTest : public testing::Test {
 protected:
  template <class A>
  auto run(A awaitable) {
    return pawl::run_until(poller_, std::move(awaitable));
  }

  pawl::SteadyClock clock_;
  pawl::Poller poller_{pawl::PollerOptions{.clock = &clock_}};
};

class Typed : public ProtoTest {
 protected:
  using Untyped = Outcome<Payload>;

  Typed() {
    auto [operation, completer] = pawl::make_completer<Untyped>();
    typed_ =
        pawl::proto::detail::typed<Protobuf, Reply>(EverythingMethods::plain, std::move(operation));
    answer_ = std::move(completer);
  }
  static Untyped text(std::string_view text) {
    Reply reply;
    reply.set_text(std::string(text));
    pawl::CallInfo info;
    info.attempts = 3;
    return Untyped(Protobuf::encode(EverythingMethods::plain, Role::reply, reply), info);
  }

  Operation<Outcome<Reply>> typed_;
  pawl::Completer<Untyped> answer_;
};

Task<Outcome<Reply>> await(Operation<Outcome<Reply>> operation) {
  co_return co_await std::move(operation);
}

TEST_F(Typed, Awaited) {
  answer_.complete(text("hello"));
  const auto outcome = run(await(std::move(typed_)));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->text(), "hello");
  EXPECT_EQ(outcome.info().attempts, 3);
}

TEST_F(Typed, StartedOffAnyPoller) {
  std::optional<Outcome<Reply>> got;
  auto started =
      start(std::move(typed_),
            pawl::Callback<Outcome<Reply>>{
                [](void* context, Outcome<Reply> outcome) {
                  static_cast<std::optional<Outcome<Reply>>*>(context)->emplace(std::move(outcome));
                },
                &got});
  EXPECT_FALSE(got.has_value());
  answer_.complete(text("hello"));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ((*got)->text(), "hello");
}

TEST_F(Typed, Blocked) {
  std::thread other([this] { answer_.complete(text("hello")); });
  const auto outcome = block(std::move(typed_));
  other.join();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->text(), "hello");
}

TEST_F(Typed, FailuresPassThrough) {
  answer_.complete(Untyped(Status(Code::deadline, "too slow", Ran::unknown)));
  const auto outcome = run(std::move(typed_));
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_EQ(outcome.ran(), Ran::unknown);
}

TEST_F(Typed, AnAnswerThatIsNoReplyFails) {
  answer_.complete(Untyped(Payload::of("\x0a\x05"
                                       "abc"),
                           pawl::CallInfo()));
  const auto outcome = run(std::move(typed_));
  EXPECT_EQ(outcome.status().code(), Code::internal);
  EXPECT_EQ(outcome.ran(), Ran::yes);
}

TEST_F(Typed, DroppingItDropsTheCall) {
  auto started = start(std::move(typed_), pawl::Callback<Outcome<Reply>>{
                                              [](void*, Outcome<Reply>) { FAIL(); }, nullptr});
  EXPECT_FALSE(answer_.dropped());
  started.drop();
  EXPECT_TRUE(answer_.dropped());
  answer_.complete(text("late"));
}

TEST_F(Typed, ADroppedCompleterAborts) {
  answer_ = {};
  EXPECT_EQ(run(std::move(typed_)).status().code(), Code::aborted);
}

/// Answers, fails, throws or suspends as the request says.
class Everything final : public sample::v1::EverythingService {
 public:
  Task<Result<Reply>> plain(pawl::Call&, const Request& request) override {
    if (request.text() == "throw") throw std::runtime_error("thrown");
    if (request.text() == "fail") co_return Status(Code::not_found, "failed");
    if (request.text() == "wait") co_await ok(gate_.operation());
    Reply reply;
    reply.set_text(request.text() + "!");  // the request is still there
    co_return reply;
  }
  Task<Result<legacy::Record>> get_http_block2(pawl::Call&, const Request&,
                                               pawl::Download&) override {
    co_return legacy::Record();  // without its id
  }
  Task<Result<Reply>> put_block(pawl::Call&, const legacy::Record&, pawl::Upload&) override {
    throw std::runtime_error("thrown before there is a coroutine");
  }
  Task<Status> note(pawl::Call&, const Request& request) override {
    co_return request.text().empty() ? Status() : Status(Code::aborted, "no");
  }

  class Gate {
   public:
    Operation<Status> operation() {
      auto [operation, completer] = pawl::make_completer<Status>();
      completer_ = std::move(completer);
      return std::move(operation);
    }
    pawl::Completer<Status>& completer() { return completer_; }

   private:
    pawl::Completer<Status> completer_;
  };
  Gate gate_;
};

class Handlers : public ProtoTest {
 protected:
  Operation<Result<Payload>> handle(std::size_t index, std::span<const std::byte> bytes) {
    return service_.handle(index, call_, bytes, in_, out_);
  }
  Operation<Result<Payload>> say(const std::string& text) {
    Request request;
    request.set_text(text);
    return handle(0, encoded(request).bytes());  // decoded before handle returns
  }

  alignas(64) std::byte nobody_[64] = {};  // no handler here looks at its call
  pawl::detail::ServerCall& none_ = reinterpret_cast<pawl::detail::ServerCall&>(nobody_);
  pawl::Call call_{none_};
  pawl::Upload in_{none_};
  pawl::Download out_{none_};
  Everything service_;
};

TEST_F(Handlers, Answer) {
  const auto result = run(say("hello"));
  ASSERT_TRUE(result.ok());
  Reply reply;
  ASSERT_TRUE(Protobuf::decode(EverythingMethods::plain, Role::reply, result->bytes(), reply).ok());
  EXPECT_EQ(reply.text(), "hello!");
}

TEST_F(Handlers, FailuresSayThatTheHandlerRan) {
  const auto result = run(say("fail"));
  EXPECT_EQ(result.status().code(), Code::not_found);
  EXPECT_EQ(result.status().ran(), Ran::yes);
}

TEST_F(Handlers, ExceptionsAreCaught) {
  const auto result = run(say("throw"));
  EXPECT_EQ(result.status().code(), Code::handler_threw);
  EXPECT_THAT(std::string(result.status().what()), HasSubstr("thrown"));

  legacy::Record record;
  record.set_id(1);
  const auto bytes = Protobuf::encode(EverythingMethods::put_block, Role::request, record);
  EXPECT_EQ(run(handle(2, bytes->bytes())).status().code(), Code::handler_threw);
}

TEST_F(Handlers, ARequestThatIsNoneDoesNotReachTheHandler) {
  const auto result = run(handle(0, Payload::of("\x0a\x05"
                                                "abc")
                                        .bytes()));
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
  EXPECT_EQ(result.status().ran(), Ran::no);
}

TEST_F(Handlers, AReplyThatCannotBeEncodedIsABug) {
  const auto result = run(handle(1, {}));
  EXPECT_EQ(result.status().code(), Code::internal);
  EXPECT_EQ(result.status().ran(), Ran::yes);
  EXPECT_THAT(std::string(result.status().what()), HasSubstr("required but not set: id"));
}

TEST_F(Handlers, OneWayGivesNothing) {
  const auto result = run(handle(3, {}));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->size(), 0u);
}

TEST_F(Handlers, UnknownIndex) {
  EXPECT_EQ(run(handle(4, {})).status().code(), Code::unimplemented);
}

TEST_F(Handlers, KeepTheirRequestWhileTheyWait) {
  const pawl::Poller::Scope scope(poller_);
  std::optional<Result<Payload>> got;
  auto started =
      start(say("wait"),
            pawl::Callback<Result<Payload>>{
                [](void* context, Result<Payload> result) {
                  static_cast<std::optional<Result<Payload>>*>(context)->emplace(std::move(result));
                },
                &got});
  EXPECT_FALSE(got.has_value());
  service_.gate_.completer().complete(Status());
  while (!got.has_value()) poller_.run_once();
  EXPECT_TRUE(got->ok());
}

TEST_F(Handlers, DroppingEndsTheHandler) {
  const pawl::Poller::Scope scope(poller_);
  auto started = start(say("wait"), pawl::Callback<Result<Payload>>{
                                        [](void*, Result<Payload>) { FAIL(); }, nullptr});
  started.drop();
  EXPECT_TRUE(service_.gate_.completer().dropped());
}

}  // namespace
