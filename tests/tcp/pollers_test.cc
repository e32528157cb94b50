// SPDX-License-Identifier: Apache-2.0
// Nodes with more than one poller, and calls whose parts end on different threads.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kGet = make_method("test.Pollers/Get", BulkDirection::download);
constexpr Method kBlock = make_method("test.Pollers/Block");
constexpr Method kEcho = make_method("test.Pollers/Echo");
constexpr std::size_t kBytes = 1 << 20;

NodeOptions tcp(std::uint32_t pollers) {
  NodeOptions options;
  options.fabric = "tcp";
  options.pollers = pollers;
  return options;
}

/// Whatever gives a T on another thread.
template <class T>
struct Arrival {
  Callback<T> callback() {
    return {[](void* context, T got) {
              auto* self = static_cast<Arrival*>(context);
              self->value.emplace(std::move(got));
              self->there.release();
            },
            this};
  }
  std::optional<T> value;
  std::binary_semaphore there{0};
};

// Nobody turns the server between its answer and the deadline, so the READs are still under way.
// The thread sanitizer looks on. Found: the two raced.
TEST(TcpPollers, BuffersThatComeBackAreAwaitedOnAnotherThreadMeanwhile) {
  testing::FunctionService service;
  service.add(
      kGet,
      [](Call& call, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
        auto buffer = co_await ok(call.pool().acquire(kBytes));
        out.add(std::move(buffer).freeze());
        co_return Payload();
      });
  Node server(tcp(1));
  Result<Server> serving = server.serve("127.0.0.1:0", service);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  Node client(tcp(2));
  client.run_background();
  const Channel channel = client.channel(serving->address());
  int returning = 0;
  for (int i = 0; i < 60; ++i) {
    Result<Buffer> buffer = block(client.pool().acquire(kBytes));
    ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
    CallOptions options;
    if (i >= 4) options.deadline = 20ms;  // the first ones make the connections
    Arrival<Outcome<Pulled<Payload>>> call;
    const Started started =
        start(channel.call(kGet, Payload(), into(*std::move(buffer)), options), call.callback());
    const std::uint64_t lent = server.stats().leases_lent;
    bool over = false;
    while (!over && (i < 4 || server.stats().leases_lent == lent)) {
      server.run_once();
      over = call.there.try_acquire();
    }
    server.run_once();  // the answer goes out
    if (!over) call.there.acquire();
    Outcome<Pulled<Payload>>& outcome = *call.value;
    if (i < 4) {
      ASSERT_TRUE(outcome.ok()) << outcome.to_string();
    }
    if (outcome.ok()) continue;
    returning += outcome.whereabouts() == Whereabouts::returning;
    Arrival<std::vector<Buffer>> back;
    Started awaited;
    std::thread other([&] { awaited = start(std::move(outcome.buffers_back()), back.callback()); });
    while (!back.there.try_acquire()) server.run_once();
    other.join();
    EXPECT_EQ(back.value->size(), 1u);
  }
  EXPECT_GT(returning, 0);
}

/// Work that posts the next piece to the other poller.
class Relay final : public Work {
 public:
  Relay(Node& node, int left) : Work(&Relay::go, "relay"), node_(node), left_(left) {}
  [[nodiscard]] int left() const { return left_; }

 private:
  static void go(Work* work) {
    auto* self = static_cast<Relay*>(work);
    if (--self->left_ > 0) {
      self->node_.poller(static_cast<std::size_t>(self->left_ % 2)).post(*self);
    }
  }
  Node& node_;
  int left_;
};

// Found: each poller's work was run once, in their order; what one then had for another stayed
// until the last Channel was gone.
TEST(TcpPollers, AllThatTheEndOfANodeStartsIsOverWhenItsDestructorReturns) {
  auto node = std::make_unique<Node>(tcp(2));
  ASSERT_TRUE(node->status().ok()) << node->status().to_string();
  const Channel channel = node->channel("127.0.0.1:1");
  Relay relay(*node, 9);
  node->poller(1).post(relay);
  node.reset();
  EXPECT_EQ(relay.left(), 0);
}

// Near case 65: the handlers of a server share their poller with its accepts. What lives on other
// pollers, and deadlines of its callers, do not wait for one that blocks its thread.
TEST(TcpPollers, AHandlerThatBlocksHoldsUpItsOwnPollerOnly) {
  std::binary_semaphore began{0}, release{0};
  testing::FunctionService service, echoes;
  service.add(kBlock,
              [&](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
                began.release();
                release.acquire();
                co_return Payload();
              });
  for (testing::FunctionService* each : {&service, &echoes}) {
    each->add(kEcho,
              [](Call&, std::span<const std::byte> request, Upload&,
                 Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  }
  Node blocked(tcp(2)), other(tcp(1)), client(tcp(1));
  Result<Server> serving = blocked.serve("127.0.0.1:0", service);
  Result<Server> elsewhere = other.serve("127.0.0.1:0", echoes);
  ASSERT_TRUE(serving.ok() && elsewhere.ok());
  for (Node* node : {&blocked, &other, &client}) node->run_background();
  const Channel channel = client.channel(serving->address());
  Arrival<Outcome<Payload>> held;
  CallOptions patient;
  patient.deadline = 60s;
  const Started call = start(channel.call(kBlock, Payload(), patient), held.callback());
  began.acquire();
  // Its second poller calls and hears, and keeps its own deadlines.
  const Channel outwards = blocked.channel(elsewhere->address());
  const auto echo = [](Channel over, CallOptions options) -> Task<Status> {
    co_return (co_await over.call(kEcho, Payload::of("x"), options)).status();
  };
  for (int i = 0; i < 20; ++i) {
    const Status status = block_on(blocked.poller(1), echo(outwards, CallOptions()));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  CallOptions short_call;
  short_call.deadline = 20ms;
  const Status nobody =
      block_on(blocked.poller(1), echo(blocked.channel("127.0.0.1:1"), short_call));
  EXPECT_EQ(nobody.code(), Code::unavailable) << nobody.to_string();
  // A caller of the poller that is blocked hears at its deadline.
  const Outcome<Payload> late = block(channel.call(kEcho, Payload::of("x"), short_call));
  EXPECT_EQ(late.status().code(), Code::deadline) << late.to_string();
  EXPECT_FALSE(held.there.try_acquire());
  release.release();
  held.there.acquire();
  EXPECT_TRUE(held.value->ok()) << held.value->to_string();
  EXPECT_TRUE(block(channel.call(kEcho, Payload::of("x"))).ok());
  EXPECT_EQ(client.stats().connections_lost, 0u);
}

}  // namespace
}  // namespace pawl
