// SPDX-License-Identifier: Apache-2.0
// case 14: many connections with calls under way go at the same moment, again and again, while one
// honest client works: it sees nothing of it, and nothing of them stays.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.Mass/Echo");
constexpr Method kHold = make_method("test.Mass/Hold");
constexpr Method kGet = make_method("test.Mass/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Mass/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 50'000;
constexpr std::size_t kDepth = 8;

/// Of which hundreds of connections cost little.
NodeOptions small_tcp() {
  NodeOptions options;
  options.fabric = "tcp";
  options.receive_bytes = 1024;
  options.receive_messages = 8;
  return options;
}
std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
void until(const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  bool reached = done();  // it may pass by
  while (!reached && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
    reached = done();
  }
  EXPECT_TRUE(reached);
}

class MassDisconnect : public ::testing::Test {
 protected:
  MassDisconnect() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kHold,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   ++holding_;
                   (void)co_await call.on_cancelled();
                   --holding_;
                   co_return Payload();
                 });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          (void)co_await ok(in.pull(call.pool()));
          (void)co_await call.on_cancelled();
          co_return Payload();
        });
  }

  testing::FunctionService service_;
  std::atomic<std::size_t> holding_{0};
};

/// A client of many connections, each with calls of every kind under way.
class Crowd {
 public:
  explicit Crowd(const std::string& address, std::size_t connections)
      : node_(std::make_unique<Node>(small_tcp())) {
    node_->run_background();
    Result<Buffer> buffer = block(node_->pool().acquire(kBytes));
    EXPECT_TRUE(buffer.ok());
    const Block lent = (*std::move(buffer)).freeze();
    for (std::size_t i = 0; i < connections; ++i) {
      const Channel channel = node_->channel(address);
      for (std::size_t k = 0; k < kDepth / 4; ++k) {
        begin(channel.call(kHold, Payload()));
        begin(channel.call(kEcho, Payload::of("x")));
        begin(channel.call(kPut, Payload(), lend(lent)));
        begin(channel.call(kGet, Payload(), into(node_->pool())));
      }
    }
  }
  /// All at once. Every call is told, once.
  void go() {
    node_.reset();
    EXPECT_EQ(over_, calls_.size());
    calls_.clear();  // they keep what is left of their node
  }

 private:
  template <class T>
  void begin(Operation<Outcome<T>> call) {
    calls_.push_back(start(std::move(call),
                           Callback<Outcome<T>>{[](void* count, Outcome<T>) {
                                                  ++*static_cast<std::atomic<std::size_t>*>(count);
                                                },
                                                &over_}));
  }
  std::unique_ptr<Node> node_;
  std::atomic<std::size_t> over_{0};
  std::vector<Started> calls_;
};

TEST_F(MassDisconnect, AHundredConnectionsGoTogetherAndTheHonestClientSeesNothing) {
  const bool soak = std::getenv("PAWL_TEST_SOAK") != nullptr;
  const std::size_t connections = 100;
  Node server(small_tcp());
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  server.run_background();
  Node honest(small_tcp());
  honest.run_background();
  std::atomic<bool> enough{false};
  std::atomic<std::size_t> good{0}, bad{0};
  const Channel channel = honest.channel(serving->address());
  std::thread works([&] {
    while (!enough) {
      const Outcome<Payload> echo = block(channel.call(kEcho, Payload::of("honest")));
      ++(echo.ok() && echo->text() == "honest" ? good : bad);
      if (!echo.ok()) ADD_FAILURE() << echo.to_string();
    }
  });
  until([&] { return good > 0; });
  const std::size_t before = descriptors();
  for (int round = 0; round < (soak ? 200 : 2); ++round) {
    const std::size_t seen = good;
    Crowd crowd(serving->address(), connections);
    until([&] { return holding_ == connections * kDepth / 4; });
    crowd.go();
    until([&] {
      const NodeStats stats = server.stats();
      return stats.connections_live == 1 && stats.served_live == 0;
    });
    EXPECT_EQ(holding_, 0u);
    until([&] { return descriptors() <= before; });
    until([&] { return good > seen; });
    EXPECT_EQ(server.stats().pool.bytes_in_use, 0u);
    EXPECT_EQ(server.stats().pool.leases_live, 0u);
  }
  enough = true;
  works.join();
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(server.stats().protocol_errors, 0u);
  EXPECT_EQ(honest.stats().connections_lost, 0u) << "it kept its first connection";
}

}  // namespace
}  // namespace pawl
