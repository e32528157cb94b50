// SPDX-License-Identifier: Apache-2.0
// The whole stack over real sockets, with poller threads of its own: order, content and counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pawl/block.h"
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
  Node server(tcp());
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  server.run_background();
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(serving->address());
  const Outcome<Payload> echo = block(channel.call(kEcho, Payload::of("over sockets")));
  ASSERT_TRUE(echo.ok()) << echo.to_string();
  EXPECT_EQ(echo->text(), "over sockets");
  for (const std::size_t bytes : {1u, 4097u, 1000001u, 64u << 20}) {
    Outcome<Pulled<Payload>> got =
        block(channel.call(kGet, numbers(bytes, bytes), into(client.pool())));
    ASSERT_TRUE(got.ok()) << bytes << ": " << got.to_string();
    EXPECT_EQ(got->part()->size(), bytes);
    EXPECT_TRUE(holds(got->part()->bytes(), bytes));
    const Outcome<Payload> done = put(client, channel, bytes, bytes);
    ASSERT_TRUE(done.ok()) << bytes << ": " << done.to_string();
  }
  EXPECT_EQ(wrong_, 0);
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
  Node server(tcp());
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok());
  server.run_background();
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(serving->address());
  ASSERT_TRUE(block(channel.call(kEcho, Payload::of("before"))).ok());
  const Status drained = block(serving->drain());
  EXPECT_TRUE(drained.ok()) << drained.to_string();
  CallOptions options;
  options.deadline = 200ms;
  const Outcome<Payload> after = block(channel.call(kEcho, Payload::of("after"), options));
  EXPECT_EQ(after.status().code(), Code::unavailable) << after.to_string();
  EXPECT_EQ(after.ran(), Ran::no);
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
