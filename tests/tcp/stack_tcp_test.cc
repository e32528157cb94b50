// SPDX-License-Identifier: Apache-2.0
// The whole stack over real sockets, with poller threads of its own: order, content and counts.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/completer.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

using testing::FunctionService;

constexpr Method kEcho = make_method("test.Tcp/Echo");
constexpr Method kGet = make_method("test.Tcp/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Tcp/Put", BulkDirection::upload);

std::byte pattern(std::uint64_t tag, std::size_t i) {
  return static_cast<std::byte>((i * 13 + tag * 101) >> 2);
}
bool holds(std::span<const std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(tag, i)) return false;
  }
  return true;
}
std::uint64_t number(std::span<const std::byte> bytes, std::size_t index = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * 8, 8);
  return value;
}
Payload numbers(std::uint64_t a, std::uint64_t b = 0) {
  const std::uint64_t both[2] = {a, b};
  return Payload(std::as_bytes(std::span(both)));
}

class TcpStackTest : public ::testing::Test {
 protected:
  TcpStackTest() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(number(request, 1)));
                   for (std::size_t i = 0; i < buffer.size(); ++i) {
                     buffer.bytes()[i] = pattern(number(request), i);
                   }
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(in.pull(call.pool()));
                   if (!holds(buffer.bytes(), number(request))) ++wrong_;
                   co_return Payload();
                 });
  }
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    return options;
  }
  static Outcome<Payload> put(Node& client, const Channel& channel, std::uint64_t tag,
                              std::size_t bytes) {
    Result<Buffer> buffer = block(client.pool().acquire(bytes));
    if (!buffer.ok()) return buffer.status();
    for (std::size_t i = 0; i < bytes; ++i) buffer->bytes()[i] = pattern(tag, i);
    return block(channel.call(kPut, numbers(tag), lend((*std::move(buffer)).freeze())));
  }

  FunctionService service_;
  std::atomic<int> wrong_{0};
};

TEST_F(TcpStackTest, CallsAndBulkBothWaysUpToTheLargestBuffer) {
  for (const Guard guard : {Guard::verify, Guard::window, Guard::window_verify}) {
    SCOPED_TRACE(guard_name(guard));
    NodeOptions options = tcp();
    options.memory_windows = true;
    options.guard = guard;
    Node server(options);
    Result<Server> serving = server.serve("127.0.0.1:0", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    server.run_background();
    Node client(options);
    client.run_background();
    ChannelOptions lending;
    lending.guard = guard;
    const Channel channel = client.channel(serving->address(), lending);
    const Outcome<Payload> echo = block(channel.call(kEcho, Payload::of("over sockets")));
    ASSERT_TRUE(echo.ok()) << echo.to_string();
    EXPECT_EQ(echo->text(), "over sockets");
    for (const std::size_t bytes :
         {1u, 4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 131071u, 131073u, 1000001u, 64u << 20}) {
      Outcome<Pulled<Payload>> got =
          block(channel.call(kGet, numbers(bytes, bytes), into(client.pool())));
      ASSERT_TRUE(got.ok()) << bytes << ": " << got.to_string();
      EXPECT_EQ(got->part()->size(), bytes);
      EXPECT_TRUE(holds(got->part()->bytes(), bytes));
      const Outcome<Payload> done = put(client, channel, bytes, bytes);
      ASSERT_TRUE(done.ok()) << bytes << ": " << done.to_string();
      if (bytes > 4096) {
        EXPECT_EQ(got.info().guard, guard);
      }
    }
    EXPECT_EQ(wrong_, 0);
  }
}

TEST_F(TcpStackTest, CallsFromManyThreadsShareAConnection) {
  Node server(tcp());
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok());
  server.run_background();
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(serving->address());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = std::to_string(t) + "/" + std::to_string(i);
        const Outcome<Payload> echo = block(channel.call(kEcho, Payload::of(text)));
        if (echo.ok() && echo->text() == text) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 800);
  server.stop();
  EXPECT_EQ(server.stats().connections_opened, 1u);
}

TEST_F(TcpStackTest, AServerThatComesBackAtItsAddressIsFoundAgain) {
  auto server = std::make_unique<Node>(tcp());
  Result<Server> serving = server->serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok());
  const std::string address = serving->address();
  server->run_background();
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(address);
  ASSERT_TRUE(block(channel.call(kEcho, Payload::of("one"))).ok());
  serving = Status(Code::cancelled, "gone");
  server.reset();
  server = std::make_unique<Node>(tcp());
  serving = server->serve(address, service_);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  server->run_background();
  // A call under way when the connection broke may fail; then calls work again.
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    again = block(channel.call(kEcho, Payload::of("two"))).ok();
  }
  EXPECT_TRUE(again);
}

TEST_F(TcpStackTest, ADrainedServerRefusesNewCallsAndFinishesOldOnes) {
  constexpr Method kHeld = make_method("test.Tcp/Held", BulkDirection::download);
  constexpr std::size_t kHeldBytes = 8u << 20;
  auto held = make_completer<Status>();
  std::promise<void> running;
  service_.add(
      kHeld,
      [&](Call& call, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
        running.set_value();
        auto buffer = co_await ok(call.pool().acquire(kHeldBytes));
        const Status told = co_await std::move(held.first);
        if (!told.ok()) co_return told;
        for (std::size_t i = 0; i < kHeldBytes; ++i) buffer.bytes()[i] = pattern(5, i);
        out.add(std::move(buffer).freeze());
        co_return Payload();
      });
  NodeOptions patient = tcp();
  patient.drain_grace = 60s;
  Node server(patient);
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok());
  server.run_background();
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(serving->address());
  CallOptions long_call;
  long_call.deadline = 60s;
  auto old = std::async(std::launch::async, [&] {
    return block(channel.call(kHeld, Payload(), into(client.pool()), long_call));
  });
  running.get_future().wait();
  auto drained = std::async(std::launch::async, [&] { return block(serving->drain()); });
  // Calls are refused as soon as the drain has begun: on the old connection, or for want of a new
  // one. Until then they are served.
  CallOptions short_call;
  short_call.deadline = 200ms;
  Outcome<Payload> after = block(channel.call(kEcho, Payload::of("new"), short_call));
  for (int i = 0; i < 1000 && after.ok(); ++i) {
    after = block(channel.call(kEcho, Payload::of("new"), short_call));
  }
  EXPECT_EQ(after.status().code(), Code::unavailable) << after.to_string();
  EXPECT_EQ(after.ran(), Ran::no);
  EXPECT_EQ(drained.wait_for(0s), std::future_status::timeout) << "a call is under way";
  EXPECT_EQ(old.wait_for(0s), std::future_status::timeout) << "its handler waits";

  held.second.complete({});
  Outcome<Pulled<Payload>> got = old.get();
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_EQ(got->part()->size(), kHeldBytes);
  EXPECT_TRUE(holds(got->part()->bytes(), 5)) << "the bytes were pulled from a draining server";
  const Status end = drained.get();
  EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST_F(TcpStackTest, AHandlerMayStopItsNode) {
  Node* stopping = nullptr;
  constexpr Method kStop = make_method("test.Tcp/Stop");
  service_.add(
      kStop,
      [&stopping](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
        stopping->stop();
        co_return Payload();
      });
  Node client(tcp());
  client.run_background();
  {
    Node server(tcp());
    stopping = &server;
    Result<Server> serving = server.serve("127.0.0.1:0", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    server.run_background();
    const Channel channel = client.channel(serving->address());
    CallOptions options;
    options.deadline = 300ms;  // the answer may not go out any more
    (void)block(channel.call(kStop, Payload(), options));
  }  // the destructor joins what stop() could not
  EXPECT_FALSE(block(client.channel("127.0.0.1:1").connect(100ms)).ok()) << "the client goes on";
}

TEST_F(TcpStackTest, PortZeroIsRefusedByName) {
  Node client(tcp());
  client.run_background();
  const auto outcome = block(client.channel("127.0.0.1:0").call(kEcho, Payload()));
  EXPECT_EQ(outcome.status().code(), Code::invalid_argument);
  EXPECT_NE(outcome.status().what().find("port 0"), std::string_view::npos) << outcome.to_string();
}

}  // namespace
}  // namespace pawl
