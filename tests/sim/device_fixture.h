// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "pawl/node.h"
#include "rpc/fabric_source.h"
#include "sim/stack_fixture.h"
#include "support/forwarding_fabric.h"
#include "support/log_lines.h"

namespace pawl::testing {

/// A simulated device of which a test sees every work request, and whose keys it can spoil.
class WatchedDevice final : public ForwardingFabric {
 public:
  struct Watch {
    /// READs that were posted.
    std::uint64_t reads = 0;
    std::uint64_t longest_read = 0;
    std::size_t most_segments = 0;
    /// Memory that begins here is exposed by keys that open nothing.
    const std::byte* refused = nullptr;
  };
  WatchedDevice(std::unique_ptr<fabric::Fabric> inner, Watch& watch)
      : ForwardingFabric(std::move(inner)), watch_(watch) {}

  std::size_t post(fabric::EndpointId endpoint, std::span<const fabric::WorkRequest> chain,
                   Status& why) override {
    for (const fabric::WorkRequest& work : chain) {
      if (work.op != fabric::Opcode::read) continue;
      std::uint64_t bytes = 0;
      for (const fabric::LocalSegment& segment : work.local) bytes += segment.length;
      ++watch_.reads;
      watch_.longest_read = std::max(watch_.longest_read, bytes);
      watch_.most_segments = std::max(watch_.most_segments, work.local.size());
    }
    const std::size_t posted = ForwardingFabric::post(endpoint, chain, why);
    EXPECT_NE(why.code(), Code::too_large) << why.to_string();
    return posted;
  }
  Result<fabric::RemoteAddress> expose(fabric::PeerGroup group, MemoryHandle memory,
                                       std::byte* base, std::uint64_t length) override {
    Result<fabric::RemoteAddress> key = ForwardingFabric::expose(group, memory, base, length);
    if (key.ok() && watch_.refused == base) key->key ^= std::uint64_t{1} << 40;
    return key;
  }

 private:
  Watch& watch_;
};

/// A server and a client, each with a watched device, in virtual time.
class DeviceFixture : public ::testing::Test {
 protected:
  /// One node: its device, and how it is turned.
  struct Place final : detail::FabricSource {
    Place(fabric::SimNetwork& in, const char* called) : network(in), node_name(called) {}
    Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
      return std::unique_ptr<fabric::Fabric>(std::make_unique<WatchedDevice>(
          std::make_unique<fabric::SimFabric>(network, node_name, capabilities), watch));
    }
    [[nodiscard]] const char* name() const override { return "sim"; }

    fabric::SimNetwork& network;
    const char* const node_name;
    fabric::Capabilities capabilities = fabric::kSimCapabilities;
    WatchedDevice::Watch watch;
    std::optional<Node> node;
  };

  void start() {
    for (Place* place : {&server_, &client_}) {
      NodeOptions options;
      options.name = place->node_name;
      options.clock = &network_.clock();
      options.fabric_source = place;
      options.log = &log_;
      options.pool.grow_inline = true;
      options.seed = place == &server_ ? 1 : 2;
      place->node.emplace(options);
      loop_.add([place] { return place->node->run_once(); },
                [place] { return place->node->next_timer(); });
    }
    Result<Server> serving = server_.node->serve("server:1", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    channel_ = client_.node->channel("server:1");
  }
  template <class T>
  Started begin(Operation<T> call, std::optional<T>& to) {
    const Poller::Scope scope(client_.node->poller());
    return pawl::start(std::move(call),
                       Callback<T>{[](void* at, T value) {
                                     static_cast<std::optional<T>*>(at)->emplace(std::move(value));
                                   },
                                   &to});
  }
  /// What the client's call gives.
  template <class T>
  T run(Operation<T> call) {
    std::optional<T> value;
    Started started = begin(std::move(call), value);
    const bool done =
        loop_.run_until([&] { return value.has_value(); }, Duration(std::chrono::seconds(60)));
    EXPECT_TRUE(done);
    const Poller::Scope scope(client_.node->poller());
    started.drop();
    return *std::move(value);
  }
  static Block block_of(Node& node, std::uint64_t tag, std::size_t bytes) {
    Result<Buffer> buffer = node.pool().try_acquire(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    fill(buffer->bytes(), tag);
    return (*std::move(buffer)).freeze();
  }

  FunctionService service_;
  LogLines log_;
  fabric::SimNetwork network_{42};
  fabric::SimLoop loop_{network_};
  Place server_{network_, "server"};
  Place client_{network_, "client"};
  Server serving_;
  Channel channel_;
};

}  // namespace pawl::testing
