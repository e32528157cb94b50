// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "pawl/blocking.h"
#include "pawl/detail/check.h"
#include "pawl/memory_kind.h"
#include "pawl/node.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/time.h"

/// For tests of services: nodes in one process on a simulated network, in virtual time. A run
/// depends on its seed only, takes no real time for waiting, and can be made as hostile as wanted.
namespace pawl::testing {

/// What goes wrong, drawn for each case. The defaults are a network without faults.
struct Faults {
  /// READs of bulk are executed this long after they were posted, with this probability.
  double read_delay = 0;
  Duration read_delay_max{0};
  /// Messages stop for this long, and all behind them.
  double stall = 0;
  Duration stall_max{0};
  double endpoint_loss = 0;    ///< per message or READ: its endpoint fails
  double connection_loss = 0;  ///< per message or READ: the whole connection fails
  double connect_refused = 0;
  double packet_stall = 0;  ///< per packet of a READ's answer, before it is sampled
  Duration packet_stall_max{0};
};

/// Memory as a device has it: its pages cannot be touched (PROT_NONE) but inside `copy_in` and
/// `copy_out`, so whoever loads or stores directly crashes. Give it to a pool
/// (`NodeOptions::pool.kind`) or a Region to see that a service treats bulk bytes as opaque. Any
/// thread.
class ProtectedMemory final : public MemoryKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "protected"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override;
  void free(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte> memory) const override;
  void copy_in(std::byte* to, std::span<const std::byte> from) override;
  void copy_out(std::span<std::byte> to, const std::byte* from) const override;
  [[nodiscard]] bool cpu_readable() const override { return false; }
  [[nodiscard]] bool host() const override { return false; }

  /// Bytes that went through the hooks.
  [[nodiscard]] std::uint64_t bytes_copied_in() const;
  [[nodiscard]] std::uint64_t bytes_copied_out() const;

 private:
  class Opened;
  mutable std::mutex mutex_;  // a page is open for one copy at a time
  std::uint64_t copied_in_ = 0;
  mutable std::uint64_t copied_out_ = 0;
};

/// A set of nodes and the network between them. Nodes are called at "name:port". One thread.
class World {
 public:
  explicit World(std::uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] std::uint64_t seed() const;
  [[nodiscard]] TimePoint now() const;
  [[nodiscard]] const Clock& clock() const;

  /// A node with this name; clock, fabric and seed of the options are the world's, and without a
  /// sink of their own it logs nothing. Lives until `crash` or the world's end.
  Node& add(std::string_view name, NodeOptions options = {});
  /// Ends a node without a word to its peers. The name may be added again.
  void crash(std::string_view name);

  void set_faults(const Faults& faults);
  /// Nothing passes between two nodes, or to and from one, until it is opened again.
  void cut(std::string_view a, std::string_view b);
  void mend(std::string_view a, std::string_view b);
  void cut(std::string_view node);
  void mend(std::string_view node);
  /// Every endpoint between two nodes fails now.
  void fail_connections(std::string_view a, std::string_view b);
  /// One line per event of the network; empty: none.
  void trace(std::function<void(std::string_view)> sink);

  /// Lets time pass.
  void run_for(Duration duration);
  /// Until `done` or the limit; returns what `done` says then.
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60));

  /// Runs a Task or Operation on a node until it is done, and gives its value. One that is not
  /// done after `limit` of virtual time ends the process: it would never be.
  template <class A>
  auto run(Node& node, A awaitable, Duration limit = std::chrono::seconds(600)) {
    using T = pawl::detail::OperationValueT<A>;
    std::optional<T> value;
    auto operation = pawl::detail::to_operation(std::move(awaitable));
    {
      const Poller::Scope scope(node.poller());
      operation.begin(Callback<T>{
          [](void* to, T got) { static_cast<std::optional<T>*>(to)->emplace(std::move(got)); },
          &value});
    }
    const bool done = run_until([&] { return value.has_value(); }, limit);
    pawl::detail::require(done, "what World::run was given did not end within its limit");
    const Poller::Scope scope(node.poller());
    operation.reset();
    return std::move(*value);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct StormOptions {
  NodeOptions server{};
  NodeOptions client{};
  ChannelOptions channel{};
  std::uint32_t clients = 2;
  std::uint32_t restarts_max = 2;             ///< of the server
  Duration limit = std::chrono::seconds(60);  ///< virtual time for all loads
};

/// A load of the user's own on a service of the user's own, while READs come late, messages stall,
/// endpoints and connections fail, links are cut and the server crashes and comes back. All of it
/// is drawn from the seed: the same seed is the same run. One thread.
class Storm {
 public:
  /// One client's part of the load; its calls should have deadlines.
  using Load = std::function<Task<void>(Node& client, Channel channel)>;

  /// The server "server" serves `service` (which outlives the Storm) at "server:1"; the clients
  /// are "client0", "client1", …
  Storm(std::uint64_t seed, Service& service, StormOptions options = {});
  ~Storm();
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  /// Called before the server crashes, and before the last look at what is still held: the time to
  /// drop what a service keeps of its node (Blocks).
  void before_crash(std::function<void()> forget);

  /// Runs `load` on every client until all have ended, then ten seconds in fair weather. Errors:
  /// deadline if a load did not end within `limit`; internal, by name, if something is still held
  /// then that should have come back (calls, transfers, leases, memory of a node's pool that is
  /// landing, in quarantine or in use at all).
  Status run(const Load& load);

  [[nodiscard]] World& world();
  [[nodiscard]] Node& server();  ///< the present one
  [[nodiscard]] Node& client(std::size_t index);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pawl::testing
