// SPDX-License-Identifier: Apache-2.0
// Kill, restart and cancel storms over real sockets and processes: whatever becomes of single
// calls, each ends once, none with wrong bytes, and afterwards descriptors, threads, memory and
// every gauge are what they were before. Two seconds each; ten minutes each with PAWL_TEST_SOAK=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kit/process.h"
#include "kit/storm_server.h"
#include "support/function_service.h"
#include "support/gauges.h"
#include "support/mixed_load.h"
#include "support/process_use.h"

namespace pawl::kit {
namespace {

using testing::LoadTally;
using testing::MixedLoad;
using SteadyTime = std::chrono::steady_clock;
using Form = MixedLoad::Form;

constexpr Duration kLimit = 60s;             // for whatever is waited for
constexpr std::size_t kWidth = 8;            // calls at once
constexpr std::uint64_t kConnections = 2;    // that of the channel, and that of tickets
constexpr std::uint64_t kDataEndpoints = 3;  // READs both ways on the one, one way on the other
constexpr std::size_t kRounds = 3;           // the first warms up
constexpr std::size_t kGrowthMax = std::size_t{4} << 20;  // of a round over the one before
constexpr std::uint64_t kCallsBetweenMax = 200;           // two blows

/// The device loses packets: one that lost a READ too often gives up its endpoint.
bool lossy() { return std::getenv("PAWL_KIT_LOSSY") != nullptr; }

Duration round_time() {
  return std::getenv("PAWL_TEST_SOAK") != nullptr ? Duration(200s) : Duration(500ms);
}

/// What a process and its node have when nothing is under way.
struct Use {
  std::size_t files = 0, threads = 0;
  std::uint64_t connections = 0, data_endpoints = 0, pool_bytes = 0;
  friend bool operator==(const Use&, const Use&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Use& use) {
    return out << use.files << " files, " << use.threads << " threads, " << use.connections
               << " connections, " << use.data_endpoints << " data endpoints, " << use.pool_bytes
               << " bytes of pool";
  }
};

/// A client, which is this process, and a server, which is another one.
class StormOfProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    called_back_.serve(services_);
    start_server(own_host() + ":0");
    address_ = server_.address();
    client_.emplace(storm_node_options());
    client_->run_background();
    call_with(ChannelOptions());
  }
  void call_with(ChannelOptions options) {
    options.reconnect_backoff_max = 20ms;
    options.hold_until_ack = true;
    channel_ = client_->channel(address_, options, services_);
  }
  void start_server(const std::string& address) {
    server_.start("storm", Guard::verify, address);
    ASSERT_NE(server_.address(), "");
  }

  /// Rounds of load with a `blow` now and then; after each nothing is left on either side. Failures
  /// other than `expected` are none.
  template <class Blow>
  void run_rounds(double drop, std::vector<Code> expected, Blow blow) {
    std::optional<Use> client, server;
    std::size_t resident = 0, mapped = 0;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const std::string what = run_load(drop, expected, blow);
      const Use client_now = settle_client(client);
      const Use server_now = settle_server(server);
      const std::size_t resident_now = testing::resident_bytes();
      const std::size_t mapped_now = testing::mapped_bytes();
      std::cout << "round " << round << ": " << what << "; client " << client_now << ", resident "
                << resident_now / 1024 << " KiB, mapped " << mapped_now / 1024 << " KiB; server "
                << server_now << std::endl;
      if (HasFailure()) return;
      if (round > 0) {
        EXPECT_EQ(client_now, *client);
        EXPECT_EQ(server_now, *server);
      }
      if (round > 1 && testing::kResidentTells) {
        EXPECT_LE(resident_now, resident + kGrowthMax);
        EXPECT_LE(mapped_now, mapped + kGrowthMax);
      }
      client = client_now;
      server = server_now;
      resident = resident_now;
      mapped = mapped_now;
    }
    EXPECT_EQ(called_back_.served_wrong(), 0u);
    EXPECT_EQ(client_->stats().quarantine_alarms, 0u);
    EXPECT_EQ(client_->stats().protocol_errors, 0u);
  }

  template <class Blow>
  std::string run_load(double drop, const std::vector<Code>& expected, Blow blow) {
    MixedLoad::Options options;
    options.drop = drop;
    MixedLoad load(options);
    load.only(MixedLoad::kAllForms);
    std::thread caller(
        [&] { (void)client_->block_on(load.run(*client_, channel_, SIZE_MAX, kWidth)); });
    LoadTally& tally = load.tally();
    const std::uint64_t blows_before = blows_;
    const SteadyTime::time_point end = SteadyTime::now() + round_time();
    while (SteadyTime::now() < end && !HasFailure()) {
      // At any moment of a call: after some that went well.
      const std::uint64_t next = tally.ok + 1 + random_.below(kCallsBetweenMax);
      if (!wait([&] { return tally.ok >= next; })) {
        ADD_FAILURE() << "no progress: " << tally.to_string();
        break;
      }
      blow();
      ++blows_;
    }
    load.stop();
    caller.join();
    EXPECT_EQ(tally.calls, tally.ended()) << "each call ends once";
    EXPECT_EQ(tally.wrong, 0u);
    std::uint64_t unexpected = tally.failures();
    for (const Code code : expected) unexpected -= tally.failed_with(code);
    EXPECT_EQ(unexpected, 0u) << tally.to_string();
    maybe_ran_ += tally.maybe_ran;
    return std::to_string(blows_ - blows_before) + " blows, " + tally.to_string();
  }

  template <class Done>
  static bool wait(Done done) {
    const SteadyTime::time_point limit = SteadyTime::now() + kLimit;
    while (!done()) {
      if (SteadyTime::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  /// What a connection opens when it is needed.
  void open_all() {
    MixedLoad probe{{}};
    probe.only({Form::get, Form::put, Form::ticket});
    (void)client_->block_on(probe.run(*client_, channel_, 3, 1));
    const std::uint64_t lost = lossy() ? probe.tally().failed_with(Code::data_lost) : 0;
    EXPECT_EQ(probe.tally().ok + lost, 3u) << probe.tally().to_string();
  }
  /// Nothing is under way, and all is open.
  Use settle_client(const std::optional<Use>& expected) {
    open_all();
    Use use;
    const bool settled = wait([&] {  // what ended on the wire may still be closed here
      // A device may give one up, and a ticket may be over before it is pulled.
      if (client_->stats().data_endpoints_live < kDataEndpoints) open_all();
      const NodeStats stats = client_->stats();
      use = {testing::open_files(), testing::threads(), stats.connections_live,
             stats.data_endpoints_live, stats.pool.bytes_total};
      return testing::what_is_left(stats).empty() && use.connections == kConnections &&
             use.data_endpoints == kDataEndpoints && (!expected || use == *expected);
    });
    EXPECT_TRUE(settled) << testing::what_is_left(client_->stats()) << "; " << use;
    return use;
  }
  Use settle_server(const std::optional<Use>& expected) {
    Use use;
    std::uint64_t ended_for_room = 0;
    const bool settled = wait([&] {
      std::istringstream words(server_.ask("settle", "settled"));
      words >> use.files >> use.threads >> use.connections >> use.data_endpoints >>
          use.pool_bytes >> ended_for_room;
      return use.connections == kConnections && use.data_endpoints == kDataEndpoints &&
             (!expected || use == *expected);
    });
    EXPECT_TRUE(settled) << use;
    EXPECT_EQ(ended_for_room, 0u) << "there is memory enough: stale would mean something else";
    return use;
  }

  Random random_{20260701};
  MixedLoad called_back_{{}};
  testing::FunctionService services_;
  Process server_;
  std::string address_;
  std::optional<Node> client_;
  Channel channel_;
  std::uint64_t blows_ = 0;
  std::uint64_t maybe_ran_ = 0;  // calls that failed and may have run
};

TEST_F(StormOfProcesses, KilledServersLeaveNothingBehind) {
  const std::vector<Code> expected{Code::connection_lost, Code::data_lost, Code::unavailable};
  const auto blow = [this] {
    server_.kill();
    start_server(address_);
  };
  run_rounds(0, expected, blow);
  EXPECT_GE(client_->stats().connections_lost, blows_);
  const auto hit_a_read = [this] {
    const NodeStats stats = client_->stats();
    return stats.reads_failed + stats.transfers_failed > 0;
  };
  for (int more = 0; more < 100 && !hit_a_read() && !HasFailure(); ++more) {
    run_load(0, expected, blow);  // the few blows of a short run may all miss
  }
  EXPECT_TRUE(hit_a_read()) << "none was in the middle of a READ";
}

TEST_F(StormOfProcesses, GracefulRestartsCostNoCallThatRan) {
  std::vector<Code> expected{Code::unavailable};
  if (lossy()) expected.push_back(Code::data_lost);
  run_rounds(0, expected, [this] {
    EXPECT_EQ(server_.ask("drain", "drained"), "ok");
    if (blows_ % 4 == 3) {  // another process, or the same node again
      server_.kill();
      start_server(address_);
    } else {
      EXPECT_EQ(server_.ask("serve", "ready"), address_);
    }
  });
  if (!lossy()) {
    EXPECT_EQ(maybe_ran_, 0u);
  }
}

// The reader is stopped while it serves, and goes on when its callers have given it up.
TEST_F(StormOfProcesses, StoppedServersLeaveNothingBehind) {
  ChannelOptions options;
  options.liveness = 1s;
  call_with(options);
  run_rounds(0, {Code::connection_lost, Code::data_lost, Code::unavailable}, [this] {
    const std::uint64_t lost = client_->stats().connections_lost;
    server_.stop();
    EXPECT_TRUE(wait([&] { return client_->stats().connections_lost > lost; }));
    server_.resume();
  });
}

// PAWL_KIT_DISTURB is a command that cuts the network, or what else there is between the two, and
// mends it again.
TEST_F(StormOfProcesses, DisturbedNetworksLeaveNothingBehind) {
  const char* const disturb = std::getenv("PAWL_KIT_DISTURB");
  if (disturb == nullptr) GTEST_SKIP() << "no network of its own: tests/vm/network.sh has one";
  ChannelOptions options;
  options.liveness = 1s;
  call_with(options);
  run_rounds(0, {Code::connection_lost, Code::data_lost, Code::unavailable},
             [&] { EXPECT_EQ(std::system(disturb), 0) << disturb; });
  std::cout << client_->stats().connections_lost << " connections and "
            << client_->stats().data_endpoints_lost << " data endpoints were lost" << std::endl;
}

TEST_F(StormOfProcesses, DroppedCallsLeaveNothingBehind) {
  run_rounds(0.5, lossy() ? std::vector{Code::data_lost} : std::vector<Code>(), [] {});
  const NodeStats stats = client_->stats();
  EXPECT_EQ(stats.connections_lost, 0u);
  if (!lossy()) {
    EXPECT_EQ(stats.data_endpoints_lost, 0u);
  }
  EXPECT_GT(stats.calls_cancelled, 0u);
  EXPECT_GT(stats.transfers_abandoned, 0u) << "none was in the middle of a READ";
}

}  // namespace
}  // namespace pawl::kit
