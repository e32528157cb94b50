// SPDX-License-Identifier: Apache-2.0
// case 7: calls of many READs whose waiters, on threads of their own, free everything the moment
// that they see the end: the library touches nothing of a call after that. The sanitizers look on.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kGet = make_method("test.Waiters/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Waiters/Put", BulkDirection::upload);
constexpr int kThreads = 8;

/// 64 READs of 64 KiB each; in a soak 1024.
struct Size {
  bool soak = std::getenv("PAWL_TEST_SOAK") != nullptr;
  std::size_t bytes = std::size_t{soak ? 64u : 4u} << 20;
  int rounds = soak ? 300 : 8;
};

/// What a thread waits for, on the heap, to be freed at once.
template <class T>
struct Waited {
  std::optional<Outcome<T>> outcome;
  std::atomic<bool> there{false};

  static Callback<Outcome<T>> callback(Waited* waited) {
    return {[](void* context, Outcome<T> outcome) {
              auto* self = static_cast<Waited*>(context);
              self->outcome.emplace(std::move(outcome));
              self->there.store(true, std::memory_order_release);
            },
            waited};
  }
};

class WaitersTcp : public ::testing::Test {
 protected:
  WaitersTcp() {
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          out.add(block_);
          co_return Payload();
        });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte>, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(in.pull(call.pool()));
                   if (!same(buffer.bytes())) ++wrong_;
                   co_return Payload();
                 });
    server_.emplace(options(1));
    Result<Server> serving = server_->serve("127.0.0.1:0", service_);
    EXPECT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    server_->run_background();
    client_.emplace(options(2));
    client_->run_background();
    channel_ = client_->channel(serving_.address());
    content_.resize(size_.bytes);
    for (std::size_t i = 0; i < content_.size(); ++i) {
      content_[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    }
    block_ = filled(*server_);
  }
  static NodeOptions options(std::uint32_t pollers) {
    NodeOptions options;
    options.fabric = "tcp";
    options.pollers = pollers;
    options.read_timeout = std::chrono::minutes(2);  // the sanitizers are slow, nobody is lost
    options.quarantine_timeout = std::chrono::minutes(3);
    return options;
  }
  static CallOptions patient() {
    CallOptions options;
    options.deadline = std::chrono::minutes(5);
    return options;
  }
  Block filled(Node& node) {
    Result<Buffer> buffer = block(node.pool().acquire(content_.size()));
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    std::memcpy(buffer->bytes().data(), content_.data(), content_.size());
    return (*std::move(buffer)).freeze();
  }
  bool same(std::span<const std::byte> bytes) const {
    return bytes.size() == content_.size() &&
           std::memcmp(bytes.data(), content_.data(), bytes.size()) == 0;
  }
  /// Starts `call`, spins until it is over, and frees all of it.
  template <class T, class Look>
  void wait_and_free(Operation<Outcome<T>> call, const Look& look) {
    auto waited = std::make_unique<Waited<T>>();
    Started started = start(std::move(call), Waited<T>::callback(waited.get()));
    while (!waited->there.load(std::memory_order_acquire)) std::this_thread::yield();
    look(*waited->outcome);
    started.drop();
  }
  template <class Round>
  void on_all_threads(const Round& round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < size_.rounds; ++i) round(t, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void expect_quiet() {
    block_ = Block();
    const auto limit = std::chrono::steady_clock::now() + 60s;
    const auto quiet = [](const Node& node) {
      const NodeStats stats = node.stats();
      return stats.calls_live == 0 && stats.served_live == 0 && stats.transfers_live == 0 &&
             stats.pool.leases_live == 0 && stats.pool.bytes_in_use == 0;
    };
    while (!(quiet(*client_) && quiet(*server_)) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(quiet(*client_));
    EXPECT_TRUE(quiet(*server_));
    EXPECT_EQ(wrong_, 0);
  }

  const Size size_;
  testing::FunctionService service_;
  std::vector<std::byte> content_;
  Block block_;
  std::optional<Node> server_, client_;
  Server serving_;
  Channel channel_;
  std::atomic<int> right_{0}, wrong_{0};
};

TEST_F(WaitersTcp, DownloadsAreFreedTheMomentTheyAreComplete) {
  on_all_threads([&](int, int) {
    wait_and_free(channel_.call(kGet, Payload(), into(client_->pool()), patient()),
                  [&](const Outcome<Pulled<Payload>>& got) {
                    ++(got.ok() && same(got->parts()[0]->bytes()) ? right_ : wrong_);
                  });
  });
  EXPECT_EQ(right_, kThreads * size_.rounds);
  EXPECT_GE(client_->stats().reads_completed, right_ * size_.bytes / 65536);
  expect_quiet();
}

TEST_F(WaitersTcp, UploadsAreFreedTheMomentTheyAreComplete) {
  on_all_threads([&](int, int) {
    wait_and_free(channel_.call(kPut, Payload(), lend(filled(*client_)), patient()),
                  [&](const Outcome<Payload>& done) { ++(done.ok() ? right_ : wrong_); });
  });
  EXPECT_EQ(right_, kThreads * size_.rounds);
  expect_quiet();
}

// Every second one is given up at some moment of its READs, and is gone at once too.
TEST_F(WaitersTcp, CallsAreDroppedInTheMiddleOfTheirReads) {
  std::atomic<int> dropped{0};
  on_all_threads([&](int t, int i) {
    auto waited = std::make_unique<Waited<Pulled<Payload>>>();
    Started started = start(channel_.call(kGet, Payload(), into(client_->pool()), patient()),
                            Waited<Pulled<Payload>>::callback(waited.get()));
    const auto moment =
        std::chrono::steady_clock::now() + std::chrono::microseconds((t * 7 + i * 13) % 29 * 300);
    const bool drops = (t + i) % 2 == 0;
    while (!waited->there.load(std::memory_order_acquire)) {
      std::this_thread::yield();
      if (!drops || std::chrono::steady_clock::now() < moment) continue;
      ++dropped;
      return started.drop();
    }
    ++(waited->outcome->ok() && same((*waited->outcome)->parts()[0]->bytes()) ? right_ : wrong_);
  });
  EXPECT_EQ(right_ + dropped, kThreads * size_.rounds);
  EXPECT_GT(dropped, 0);
  expect_quiet();
}

}  // namespace
}  // namespace pawl
