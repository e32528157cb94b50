// SPDX-License-Identifier: Apache-2.0
// As little as can be of each resource, over real sockets: calls of every form, several at once in
// both directions, all end well, and everything comes back.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "fabric/tcp/tcp_fabric.h"
#include "support/gauges.h"
#include "support/log_lines.h"
#include "support/mixed_load.h"
#include "support/tight_cases.h"

namespace pawl {
namespace {

using testing::MixedLoad;
using testing::Narrow;
using testing::NarrowSource;
using testing::TightCase;

constexpr Method kMeet = make_method("test.Tight/Meet");
constexpr std::size_t kWidth = 6;  // calls at once, each way
std::size_t calls() { return std::getenv("PAWL_TEST_SOAK") != nullptr ? 20'000 : 96; }

class TightTcp : public ::testing::TestWithParam<TightCase> {
 protected:
  struct Side {
    std::unique_ptr<NarrowSource> source;
    std::unique_ptr<MixedLoad> load;
    testing::FunctionService service;
    std::unique_ptr<Node> node;
  };

  void SetUp() override {
    start_side(server_);
    start_side(client_);
    server_.service.add(kMeet,
                        [this](Call& call, std::span<const std::byte>, Upload&,
                               Download&) -> Task<Result<Payload>> {
                          met_.set_value(call.caller());
                          co_return Payload();
                        });
    Result<Server> serving = server_.node->serve("127.0.0.1:0", server_.service);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    channel_ = client_.node->channel(serving_->address(), {}, client_.service);
    server_.node->run_background();
    client_.node->run_background();
    const Outcome<Payload> met = block(channel_.call(kMeet, Payload()));
    ASSERT_TRUE(met.ok()) << met.to_string();
    back_ = met_.get_future().get();
  }
  void start_side(Side& side) {
    NodeOptions options;
    options.long_turn = 1h;  // a thread that did not get its core says so
    options.pool.bytes_max = std::size_t{4} << 20;
    options.pool.slab_bytes = std::size_t{1} << 20;
    Narrow device;
    GetParam().set(options, device);
    side.source =
        std::make_unique<NarrowSource>([] { return fabric::tcp::make_tcp_fabric(); }, device);
    options.fabric_source = side.source.get();
    MixedLoad::Options load;
    load.bytes_max = GetParam().bytes_max;
    side.load = std::make_unique<MixedLoad>(load);
    side.load->serve(side.service);
    if (!GetParam().into_own) side.load->only(MixedLoad::plain_but(MixedLoad::Form::get_into));
    side.node = std::make_unique<Node>(options);
    ASSERT_TRUE(side.node->status().ok()) << side.node->status().to_string();
  }
  static void run_load(Side& side, const Channel& channel) {
    (void)side.node->block_on(side.load->run(*side.node, channel, calls(), kWidth));
  }
  static void expect_all_ok(Side& side) {
    testing::LoadTally& tally = side.load->tally();
    EXPECT_EQ(tally.calls, calls());
    EXPECT_EQ(tally.ok, calls()) << tally.to_string();
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_EQ(side.load->served_wrong(), 0u);
  }
  static void expect_quiet(Side& side) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    std::string left = testing::what_is_left(side.node->stats());
    while (!left.empty() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
      left = testing::what_is_left(side.node->stats());
    }
    EXPECT_EQ(left, "");
    const NodeStats stats = side.node->stats();
    EXPECT_EQ(stats.connections_opened, 1u);
    EXPECT_EQ(stats.connections_lost, 0u);
    EXPECT_EQ(stats.data_endpoints_lost, 0u);
    EXPECT_GT(stats.reads_completed, 0u);
  }

  Side server_, client_;
  std::optional<Server> serving_;
  std::promise<Channel> met_;
  Channel channel_, back_;
};

TEST_P(TightTcp, CallsOfEveryFormInBothDirectionsEndWell) {
  std::thread back([this] { run_load(server_, back_); });
  run_load(client_, channel_);
  back.join();
  for (Side* side : {&client_, &server_}) {
    expect_all_ok(*side);
    expect_quiet(*side);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TightTcp, ::testing::ValuesIn(testing::kTightCases),
                         [](const auto& tight) { return std::string(tight.param.name); });

}  // namespace
}  // namespace pawl
