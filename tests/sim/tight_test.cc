// SPDX-License-Identifier: Apache-2.0
// As little as can be of each resource: calls of every form, several at once in both directions,
// all end well, and everything comes back.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "pawl/blocking.h"
#include "support/log_lines.h"
#include "support/mixed_load.h"
#include "support/tight_cases.h"

namespace pawl {
namespace {

using fabric::SimFabric;
using testing::kOneBuffer;
using testing::MixedLoad;
using testing::Narrow;
using testing::NarrowCounts;
using testing::NarrowSource;
using testing::TightCase;

using Form = MixedLoad::Form;

constexpr std::uint32_t kChunkBytes = 64 << 10;  // of flow control; with one READ the window
constexpr Duration kLimit = 600s;                // of virtual time
constexpr std::size_t kWidth = 6;                // calls at once, each way
std::size_t calls() { return std::getenv("PAWL_TEST_SOAK") != nullptr ? 20'000 : 96; }

constexpr Method kMeet = make_method("test.Tight/Meet");

/// Two nodes on small devices in a simulated network. The client's services are called back over
/// its own connection.
class Tight : public ::testing::Test {
 protected:
  struct Side {
    std::unique_ptr<NarrowSource> source;
    std::unique_ptr<MixedLoad> load;
    testing::FunctionService service;
    std::unique_ptr<Node> node;
  };

  void start(const TightCase& server, const TightCase& client) {
    start_side(server_, "server", server);
    start_side(client_, "client", client);
    ASSERT_TRUE(server_.node->status().ok()) << server_.node->status().to_string();
    ASSERT_TRUE(client_.node->status().ok()) << client_.node->status().to_string();
    server_.service.add(kMeet,
                        [this](Call& call, std::span<const std::byte>, Upload&,
                               Download&) -> Task<Result<Payload>> {
                          back_ = call.caller();
                          co_return Payload();
                        });
    Result<Server> serving = server_.node->serve("server:1", server_.service);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    channel_ = client_.node->channel("server:1", {}, client_.service);
  }
  void start_side(Side& side, const char* name, const TightCase& tight) {
    NodeOptions options;
    options.name = name;
    options.clock = &network_.clock();
    options.log = &log_;
    options.pool.grow_inline = true;
    options.pool.bytes_max = std::size_t{4} << 20;
    options.pool.slab_bytes = std::size_t{1} << 20;
    options.seed = 7;
    Narrow device;
    tight.set(options, device);
    side.source = std::make_unique<NarrowSource>(
        [this, name]() -> Result<std::unique_ptr<fabric::Fabric>> {
          return std::unique_ptr<fabric::Fabric>(std::make_unique<SimFabric>(network_, name));
        },
        device);
    options.fabric_source = side.source.get();
    MixedLoad::Options load;
    load.bytes_max = tight.bytes_max;
    load.deadline = load_deadline_;
    side.load = std::make_unique<MixedLoad>(load);
    side.load->serve(side.service);
    if (!tight.into_own) side.load->only(MixedLoad::plain_but(Form::get_into));
    side.node = std::make_unique<Node>(options);
    Node* node = side.node.get();
    loop_.add([node] { return node->run_once(); }, [node] { return node->next_timer(); });
  }

  /// A coroutine on a node, until it is done or stuck.
  template <class A>
  auto run(Node& node, A awaitable) {
    using T = detail::OperationValueT<A>;
    std::optional<T> value;
    Operation<T> operation = begin(node, std::move(awaitable), value);
    loop_.run_until([&] { return value.has_value(); }, kLimit);
    EXPECT_TRUE(value.has_value()) << "it is stuck";
    const Poller::Scope scope(node.poller());
    operation.reset();
    return value;
  }
  template <class A, class T>
  Operation<T> begin(Node& node, A awaitable, std::optional<T>& value) {
    Operation<T> operation = detail::to_operation(std::move(awaitable));
    const Poller::Scope scope(node.poller());
    operation.begin(Callback<T>{
        [](void* to, T got) { static_cast<std::optional<T>*>(to)->emplace(std::move(got)); },
        &value});
    return operation;
  }

  void meet() {
    auto met = run(*client_.node, channel_.call(kMeet, Payload()));
    ASSERT_TRUE(met && met->ok()) << (met ? met->to_string() : "");
  }
  /// Calls from both sides at once.
  void load_both(std::size_t calls, std::size_t width) {
    std::optional<Unit> there, back;
    Operation<Unit> first =
        begin(*client_.node, client_.load->run(*client_.node, channel_, calls, width), there);
    Operation<Unit> second =
        begin(*server_.node, server_.load->run(*server_.node, back_, calls, width), back);
    loop_.run_until([&] { return there && back; }, kLimit);
    EXPECT_TRUE(there) << "the client's calls are stuck: " << client_.load->tally().to_string();
    EXPECT_TRUE(back) << "the server's calls are stuck: " << server_.load->tally().to_string();
    for (auto [side, operation] : {std::pair{&client_, &first}, std::pair{&server_, &second}}) {
      const Poller::Scope scope(side->node->poller());
      operation->reset();
    }
  }
  void expect_all_ok(Side& side, std::uint64_t calls) {
    testing::LoadTally& tally = side.load->tally();
    EXPECT_EQ(tally.calls, calls);
    EXPECT_EQ(tally.ok, calls) << tally.to_string();
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(side.load->served_wrong(), 0u);
    EXPECT_EQ(side.node->stats().pool.leases_ended_for_room, 0u);
  }
  void expect_quiet() {
    loop_.run_for(1s);
    for (Side* side : {&client_, &server_}) {
      const NodeStats stats = side->node->stats();
      EXPECT_EQ(stats.calls_live, 0u);
      EXPECT_EQ(stats.served_live, 0u);
      EXPECT_EQ(stats.transfers_live, 0u);
      EXPECT_EQ(stats.reads_posted, stats.reads_completed);
      EXPECT_EQ(stats.connections_opened, 1u);
      EXPECT_EQ(stats.connections_lost, 0u);
      EXPECT_EQ(stats.data_endpoints_lost, 0u);
      EXPECT_EQ(stats.pool.leases_live, 0u);
      EXPECT_EQ(stats.pool.bytes_in_use, 0u);
      EXPECT_EQ(stats.pool.bytes_landing, 0u);
      EXPECT_EQ(stats.pool.bytes_quarantined, 0u);
      EXPECT_EQ(stats.pool.waiting, 0u);
    }
    EXPECT_EQ(log_.errors, 0u);
  }

  testing::LogLines log_;
  fabric::SimNetwork network_{42};
  fabric::SimLoop loop_{network_};
  Side server_, client_;
  std::optional<Server> serving_;
  Channel channel_, back_;
  Duration load_deadline_ = 30s;
};

class TightResource : public Tight, public ::testing::WithParamInterface<TightCase> {};

TEST_P(TightResource, CallsOfEveryFormInBothDirectionsEndWell) {
  start(GetParam(), GetParam());
  if (HasFatalFailure()) return;
  meet();
  if (HasFatalFailure()) return;
  load_both(calls(), kWidth);
  expect_all_ok(client_, calls());
  expect_all_ok(server_, calls());
  expect_quiet();
  for (Side* side : {&client_, &server_}) {
    const Narrow& device = side->source->narrow();
    const NarrowCounts& seen = side->source->counts();
    EXPECT_GE(seen.reads_at_once, 1u);
    EXPECT_LE(seen.reads_at_once, device.most.read_depth_max);
    EXPECT_LE(seen.sends_at_once, device.most.send_depth_max);
    EXPECT_LE(seen.read_bytes_most, std::min(device.most.read_bytes_max, kChunkBytes));
    EXPECT_LE(seen.completions_of_a_poll, device.poll_batch);
  }
}

// Only one of both is small: what it offers is what the other one keeps to.
TEST_P(TightResource, AgainstALargePeer) {
  TightCase large = GetParam();  // the load is the same
  large.set = [](NodeOptions&, Narrow&) {};
  start(large, GetParam());
  if (HasFatalFailure()) return;
  meet();
  if (HasFatalFailure()) return;
  load_both(calls() / 2, kWidth);
  expect_all_ok(client_, calls() / 2);
  expect_all_ok(server_, calls() / 2);
  expect_quiet();
}

INSTANTIATE_TEST_SUITE_P(Each, TightResource, ::testing::ValuesIn(testing::kTightCases),
                         [](const auto& tight) { return std::string(tight.param.name); });

/// A pool whose only buffer is lent, landed in and written, one after the other.
void one_buffer(NodeOptions& node, Narrow&) {
  node.pool.bytes_max = node.pool.slab_bytes = kOneBuffer;
  node.pool.landing_reserve_bytes = 0;
}

constexpr TightCase kOneForAll{"", one_buffer, false, kOneBuffer};

TEST_F(Tight, OneBufferForAllServesUploadsAndThenDownloads) {
  start(kOneForAll, kOneForAll);
  if (HasFatalFailure()) return;
  meet();
  if (HasFatalFailure()) return;
  client_.load->only({Form::echo, Form::put, Form::small_put, Form::long_echo});
  run(*client_.node, client_.load->run(*client_.node, channel_, calls(), kWidth));
  expect_all_ok(client_, calls());
  server_.load->only({Form::echo, Form::get, Form::small_get, Form::long_echo});
  run(*server_.node, server_.load->run(*server_.node, back_, calls(), kWidth));
  expect_all_ok(server_, calls());
  expect_quiet();
  EXPECT_EQ(client_.node->stats().pool.bytes_total, kOneBuffer);
  EXPECT_EQ(server_.node->stats().pool.bytes_total, kOneBuffer);
}

// With nothing in reserve to land in, two nodes that both lend all they have wait for each other:
// until the pool ends a lease for room, or a deadline comes; not for ever.
TEST_F(Tight, OneBufferForAllInBothDirectionsEndsInTime) {
  load_deadline_ = 1s;
  start(kOneForAll, kOneForAll);
  if (HasFatalFailure()) return;
  meet();
  if (HasFatalFailure()) return;
  load_both(96, kWidth);
  for (Side* side : {&client_, &server_}) {
    testing::LoadTally& tally = side->load->tally();
    EXPECT_EQ(tally.calls, 96u);
    EXPECT_EQ(tally.ok + tally.failed_with(Code::deadline) + tally.failed_with(Code::stale), 96u)
        << tally.to_string();
    EXPECT_GT(tally.ok, 0u);
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(side->load->served_wrong(), 0u);
  }
  expect_quiet();
}

// What is too little to work with is refused when the node is made, by name.
TEST_F(Tight, TooLittleIsRefusedByName) {
  const auto status_with = [this](void (*set)(NodeOptions&, Narrow&)) {
    Side side;
    start_side(side, "small", {"", set});
    return side.node->status();
  };
  Status status = status_with([](NodeOptions& node, Narrow&) { node.receive_messages = 0; });
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.what().find("receive_messages"), std::string_view::npos) << status.to_string();
  status = status_with([](NodeOptions& node, Narrow&) { node.handlers_per_turn = 0; });
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.what().find("handlers_per_turn"), std::string_view::npos) << status.to_string();
  status = status_with([](NodeOptions& node, Narrow&) { node.receive_bytes = 1023; });
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.what().find("receive_bytes"), std::string_view::npos) << status.to_string();
  status = status_with([](NodeOptions&, Narrow& device) { device.most.message_bytes_max = 1023; });
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_NE(status.what().find("1023"), std::string_view::npos) << status.to_string();
  status = status_with([](NodeOptions&, Narrow& device) {
    device.most.receive_depth_max = testing::kSessionReceives;
  });
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_NE(status.what().find("holds 16 receives; a connection needs 17"), std::string_view::npos)
      << status.to_string();
  status = status_with([](NodeOptions& node, Narrow&) { node.pool.bytes_max = kOneBuffer - 1; });
  EXPECT_NE(status.what().find("64 KiB"), std::string_view::npos) << status.to_string();
}

}  // namespace
}  // namespace pawl
