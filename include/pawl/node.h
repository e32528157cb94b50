// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pawl/block.h"
#include "pawl/bulk.h"
#include "pawl/channel.h"
#include "pawl/guard.h"
#include "pawl/log.h"
#include "pawl/poller.h"
#include "pawl/pool.h"
#include "pawl/result.h"
#include "pawl/service.h"
#include "pawl/stats.h"
#include "pawl/task.h"
#include "pawl/time.h"

namespace pawl {

namespace detail {
class NodeCore;
class FabricSource;  // src/rpc/fabric_source.h: where a node's fabrics come from
}  // namespace detail

/// Plain data; every pointer is borrowed and must outlive the node.
struct NodeOptions {
  std::string_view name = "pawl";
  std::uint32_t pollers = 1;
  /// "auto" (RDMA where there is some, else tcp), "tcp".
  std::string_view fabric = "auto";
  PoolOptions pool{};
  /// Spin this long without work before a poller sleeps.
  Duration spin = std::chrono::microseconds(50);
  /// Requests that wait for their handler, per poller; more are shed (overloaded).
  std::uint32_t handler_queue_max = 4096;
  std::uint32_t handlers_per_turn = 64;
  /// Blocks up to this size travel inside messages instead of being pulled; at most half of
  /// message_bytes_max.
  std::uint32_t inline_bytes_max = 4096;
  /// One request or reply, encoded; larger ones are refused locally: use bulk.
  std::uint32_t message_bytes_max = 1u << 20;
  /// Messages that a peer may send before it needs credit, per connection.
  std::uint32_t receive_messages = 32;
  std::uint32_t receive_bytes = 8192;
  /// A lease outlives the call's remaining budget by this much.
  Duration lease_grace = std::chrono::milliseconds(50);
  /// A READ that the device has not completed for this long takes its endpoint to ERR.
  Duration read_timeout = std::chrono::seconds(1);
  Duration drain_grace = std::chrono::seconds(5);
  std::uint32_t connections_max = 16384;
  /// Guards `none`, `disconnect` and `deregister`: for demo, bench and tests only.
  bool allow_baselines = false;
  /// What this node lends with as a server; channels have their own.
  bool guard_automatic = true;
  Guard guard = Guard::verify;
  const Clock* clock = nullptr;                   ///< nullptr: steady clock
  LogSink* log = nullptr;                         ///< nullptr: stderr
  detail::FabricSource* fabric_source = nullptr;  ///< nullptr: by `fabric`
  std::uint64_t seed = 0;                         ///< 0: from the system; else for simulation
};

/// Services that listen at an address. Move-only; dropping it stops listening and drains: new
/// calls are refused (GOAWAY), accepted ones and READs of what they lent go on in the background
/// until done or drain_grace is over.
class Server {
 public:
  Server() = default;
  explicit Server(std::shared_ptr<void> state, std::string address)
      : state_(std::move(state)), address_(std::move(address)) {}
  Server(Server&&) noexcept = default;
  Server& operator=(Server&&) noexcept = default;
  ~Server() = default;

  /// Where it listens, with the port that the system chose: what clients connect to.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Drains and completes when the last accepted call and lease ended, or the grace is over.
  Operation<Status> drain();

 private:
  std::shared_ptr<void> state_;
  std::string address_;
};

/// Wires clock, pollers, fabrics, pool and services together. Runs on threads of its own
/// (run_background), on the caller's (run), or inside a foreign event loop (run_once, arm,
/// event_fd). Any thread, except where a member says otherwise; as long as the node has no threads
/// of its own, `serve` and `stats` belong to the thread that turns its poller.
class Node {
 public:
  /// Errors (fabric, memory limits) show at the first use that needs what failed, and in
  /// `status()`.
  explicit Node(const NodeOptions& options = {});
  /// Stops the pollers, ends every connection, fails every call that is left (connection_lost). Not
  /// on the thread of one of its pollers.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] Status status() const;

  /// Serves at `address` ("host:port", "[::1]:port", "unix:/path"; port 0 = any). There is no
  /// default host: 127.0.0.1 is for this machine only. The services must outlive the node, or the
  /// end of Server::drain.
  template <class... S>
  Result<Server> serve(std::string_view address, S&... services) {
    std::array<Service*, sizeof...(S)> list{&services...};
    return serve_list(address, list);
  }
  Result<Server> serve_list(std::string_view address, std::span<Service* const> services);

  /// The way to the node that listens at `target`. `callbacks`: services that the peer may call
  /// back over this channel's connections (Call::caller); they must outlive the node.
  template <class... S>
  [[nodiscard]] Channel channel(std::string_view target, const ChannelOptions& options = {},
                                S&... callbacks) {
    std::array<Service*, sizeof...(S)> list{&callbacks...};
    return channel_list(target, options, list);
  }
  [[nodiscard]] Channel channel_list(std::string_view target, const ChannelOptions& options,
                                     std::span<Service* const> callbacks);

  [[nodiscard]] Pool& pool();

  /// Names `blocks` for whoever holds the ticket's bytes; `listen` is the address under which
  /// peers reach this node. After `deadline` from now, or `end_ticket`, nobody can begin to pull
  /// what it names; pulls that began end by their own deadlines (Block::retire cuts them off).
  Result<Ticket> issue_ticket(std::vector<Block> blocks, std::string_view listen,
                              Duration deadline);
  void end_ticket(const Ticket& ticket);
  /// Fetches what a ticket names: a download call of its own, with every guard and deadline.
  Operation<Outcome<Pulled<Payload>>> pull(const Ticket& ticket, Into into,
                                           const CallOptions& options = {});

  /// Turns the (only) poller on this thread until `stop`.
  void run();
  /// Starts a thread per poller; stopped by the destructor or `stop`.
  void run_background();
  /// Ends `run` and the threads of `run_background`, and waits for those. On a poller's own thread,
  /// as in a handler, it does not wait: they end after their turn.
  void stop();

  /// For a foreign loop, one poller: one turn (true: there may be more to do); prepare to sleep
  /// (false: turn again); readable when there is something to do; when to turn at the latest.
  bool run_once();
  bool arm();
  [[nodiscard]] int event_fd() const;
  [[nodiscard]] TimePoint next_timer() const;

  [[nodiscard]] Poller& poller(std::size_t index = 0);
  [[nodiscard]] const Clock& clock() const;

  /// Runs a Task or Operation (by value) on poller 0 and waits for it on this thread, which turns
  /// the poller itself if no thread does. Not on a poller's thread.
  template <class A>
  auto block_on(A awaitable) {
    return running() ? pawl::block_on(poller(), std::move(awaitable))
                     : pawl::run_until(poller(), std::move(awaitable));
  }
  /// True while threads turn the pollers.
  [[nodiscard]] bool running() const;

  [[nodiscard]] NodeStats stats() const;

 private:
  std::shared_ptr<detail::NodeCore> core_;
};

}  // namespace pawl
