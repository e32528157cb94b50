// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pawl/testing.h"
#include "support/function_service.h"

namespace pawl::testing {

inline void fill(std::span<std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 7 + tag * 131) >> 3);
  }
}
inline bool holds(std::span<const std::byte> bytes, std::uint64_t tag, std::size_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(((i + from) * 7 + tag * 131) >> 3)) return false;
  }
  return true;
}
inline std::uint64_t number(std::span<const std::byte> bytes, std::size_t index = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * 8, 8);
  return value;
}
inline Payload payload(std::uint64_t a, std::uint64_t b = 0) {
  const std::uint64_t both[2] = {a, b};
  return Payload(std::as_bytes(std::span(both)));
}

/// A server node that serves `service_`, and a client node with a channel to it.
class StackFixture : public ::testing::Test {
 protected:
  void start(const NodeOptions& server_options = {}, const NodeOptions& client_options = {},
             const ChannelOptions& channel_options = {}) {
    server_ = &world_.add("server", server_options);
    client_ = &world_.add("client", client_options);
    serve();
    channel_ = client_->channel("server:1", channel_options);
  }
  void serve() {
    Result<Server> serving = server_->serve("server:1", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
  }
  void restart_server(const NodeOptions& options = {}) {
    serving_.reset();
    world_.crash("server");
    server_ = &world_.add("server", options);
    serve();
  }
  static CallOptions within(Duration deadline) {
    CallOptions options;
    options.deadline = deadline;
    return options;
  }
  Block block_of(Node& node, std::uint64_t tag, std::size_t bytes) {
    Result<Buffer> buffer = node.pool().try_acquire(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    fill(buffer->bytes(), tag);
    return (*std::move(buffer)).freeze();
  }
  /// Everything that was acquired, lent or landed is back.
  void expect_quiet() {
    world_.run_for(std::chrono::seconds(5));
    for (Node* node : {client_, server_}) {
      const NodeStats stats = node->stats();
      EXPECT_EQ(stats.calls_live, 0u);
      EXPECT_EQ(stats.served_live, 0u);
      EXPECT_EQ(stats.transfers_live, 0u);
      EXPECT_EQ(stats.pool.leases_live, 0u);
      EXPECT_EQ(stats.pool.bytes_in_use, 0u);
      EXPECT_EQ(stats.pool.bytes_landing, 0u);
      EXPECT_EQ(stats.pool.bytes_quarantined, 0u);
    }
  }

  FunctionService service_;
  World world_{42};
  Node* server_ = nullptr;
  Node* client_ = nullptr;
  std::optional<Server> serving_;
  Channel channel_;
};

}  // namespace pawl::testing
