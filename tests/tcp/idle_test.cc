// SPDX-License-Identifier: Apache-2.0
// Nodes with many connections on which nothing happens sleep, also after an error and a
// reconnect. Turns and wake-ups are counted; the processor's time is printed. Case 96.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.Idle/Echo");
constexpr std::size_t kConnections = 200;

class Idle : public ::testing::Test {
 protected:
  Idle() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  }
  /// Of which hundreds of connections cost little.
  static NodeOptions small() {
    NodeOptions options;
    options.fabric = "tcp";
    options.receive_bytes = 1024;
    options.receive_messages = 4;
    return options;
  }
  void serve(const std::string& address) {
    server_ = std::make_unique<Node>(small());
    Result<Server> serving = server_->serve(address, service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    server_->run_background();
  }
  void call_on_all() {
    for (const Channel& channel : channels_) {
      const Outcome<Payload> outcome = block(channel.call(kEcho, Payload::of("x")));
      ASSERT_TRUE(outcome.ok()) << outcome.to_string();
    }
  }
  /// Stats are copies, a little old.
  void expect_opened(std::uint64_t count) {
    while (client_.stats().connections_opened < count) std::this_thread::yield();
    EXPECT_EQ(client_.stats().connections_opened, count);
  }
  static PollerStats poller_stats(Node& node) {
    const auto read = [](Node& of) -> Task<Result<PollerStats>> { co_return of.poller().stats(); };
    return *node.block_on(read(node));
  }
  static long processor_us() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000L + used.ru_utime.tv_usec +
           used.ru_stime.tv_usec;
  }
  /// Of every connection some timer may be due meanwhile; a poller that does not sleep makes tens
  /// of thousands of turns in this time, on a busy machine too.
  void expect_idle(const char* when) {
    constexpr std::uint64_t kWakesMax = 2 * kConnections;
    constexpr std::uint64_t kTurnsMax = 10'000;
    std::vector<Node*> nodes = {&client_};
    if (server_) nodes.push_back(server_.get());
    std::vector<PollerStats> before;
    for (Node* node : nodes) before.push_back(poller_stats(*node));
    const long processor = processor_us();
    client_.block_on(sleep_for(400ms));
    const long took = processor_us() - processor;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const PollerStats after = poller_stats(*nodes[i]);
      const std::uint64_t wakes = after.sleeps - before[i].sleeps;
      const std::uint64_t turns = after.turns - before[i].turns;
      std::printf("%s: %llu wake-ups, %llu turns, %ld us of processor in 400 ms\n", when,
                  static_cast<unsigned long long>(wakes), static_cast<unsigned long long>(turns),
                  took);
      EXPECT_LE(wakes, kWakesMax) << when;
      EXPECT_LE(turns, kTurnsMax) << when;
    }
  }

  testing::FunctionService service_;
  std::unique_ptr<Node> server_;
  std::optional<Server> serving_;
  Node client_{small()};
  std::vector<Channel> channels_;
};

TEST_F(Idle, TwoHundredConnectionsCostNoTurnsAlsoAfterAnErrorAndAReconnect) {
  serve("127.0.0.1:0");
  client_.run_background();
  const std::string address = serving_->address();
  for (std::size_t i = 0; i < kConnections; ++i) channels_.push_back(client_.channel(address));
  call_on_all();
  expect_opened(kConnections);
  expect_idle("connected");

  serving_.reset();
  server_.reset();
  while (client_.stats().connections_live != 0) std::this_thread::yield();
  expect_idle("all lost");

  serve(address);
  call_on_all();
  expect_opened(2 * kConnections);
  expect_idle("connected again");
}

}  // namespace
}  // namespace pawl
