// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pawl/blocking.h"
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

/// Plain data; every pointer is borrowed and must outlive the node. Values that can never work are
/// refused by name in `Node::status`.
struct NodeOptions {
  std::string_view name = "pawl";
  /// 1 to 1024. What a server accepts lives on the first; channels are spread over all of them.
  std::uint32_t pollers = 1;
  /// "tcp"; "verbs" (RDMA on the first usable port), "verbs:DEVICE", "verbs:DEVICE/PORT"; "auto":
  /// what the environment variable PAWL_FABRIC names, else tcp. A node has one fabric, and so have
  /// all its peers. On verbs the addresses of `serve` and `channel` are those of a TCP or Unix
  /// socket by which the two ends meet; calls and bulk data take the device's way.
  std::string_view fabric = "auto";
  PoolOptions pool{};
  /// Spin this long without work before a poller sleeps.
  Duration spin = std::chrono::microseconds(50);
  /// A busy turn longer than this is counted, and what took longest in it named once in the log.
  Duration long_turn = std::chrono::milliseconds(5);
  /// Requests that wait for their handler, per poller; more are shed (overloaded).
  std::uint32_t handler_queue_max = 4096;
  std::uint32_t handlers_per_turn = 64;
  /// Blocks up to this size travel inside messages instead of being pulled; at most half of
  /// message_bytes_max.
  std::uint32_t inline_bytes_max = 4096;
  /// One request or reply, encoded, from 1 KiB; larger ones are refused locally: use bulk.
  std::uint32_t message_bytes_max = 1u << 20;
  /// Messages that a peer may send before it needs credit, per connection; 1 to 16384, lowered to
  /// what the device's receive queues hold.
  std::uint32_t receive_messages = 32;
  /// Of one message, 1 KiB to 1 MiB; at most what the fabric can send at once (lowered to that).
  std::uint32_t receive_bytes = 8192;
  /// A lease outlives the call's remaining budget by this much.
  Duration lease_grace = std::chrono::milliseconds(50);
  /// A READ that the device has not completed for this long takes its endpoint to ERR.
  Duration read_timeout = std::chrono::seconds(1);
  /// Longer than read_timeout. Memory lent under ChannelOptions::hold_until_ack that the peer has
  /// not acknowledged for this long breaks the connection with that peer. An endpoint that is being
  /// torn down and has not given up all memory for this long is one error line in the log. Neither
  /// releases a byte: that takes the proof.
  Duration quarantine_timeout = std::chrono::seconds(3);
  Duration drain_grace = std::chrono::seconds(5);
  std::uint32_t connections_max = 16384;
  /// Tickets that are not over, of the node; more are refused (resource_exhausted).
  std::uint32_t tickets_max = 65536;
  /// Guards `none` and `disconnect` (`deregister` is not built yet): for demo, bench and tests
  /// only.
  bool allow_baselines = false;
  /// What this node lends with as a server; channels have their own. Empty: `verify`, the one that
  /// every fabric can do. One that this node cannot do is refused by `status`.
  std::optional<Guard> guard;
  /// Offers the guards `window` and `window_verify` where the device has memory windows; both ends
  /// must. Costs the message memory of two data endpoints (12 x receive_bytes each) for each
  /// connection. Of devices whose windows do not end exactly (all of verbs, for now) only
  /// `window_verify` is offered.
  bool memory_windows = false;
  const Clock* clock = nullptr;                   ///< nullptr: steady clock
  LogSink* log = nullptr;                         ///< nullptr: stderr
  detail::FabricSource* fabric_source = nullptr;  ///< nullptr: by `fabric`
  std::uint64_t seed = 0;                         ///< 0: from the system; else for simulation
};

/// Services that listen at an address. Move-only; dropping it drains: new connections and calls are
/// refused (GOAWAY), accepted ones and READs of what they lent go on in the background until done
/// or drain_grace is over. Until then the address stays taken.
class Server {
 public:
  Server() = default;
  explicit Server(std::shared_ptr<void> state, std::string address)
      : state_(std::move(state)), address_(std::move(address)) {}
  Server(Server&&) noexcept = default;
  Server& operator=(Server&&) noexcept = default;
  ~Server() = default;

  /// Where it listens, with the port that the system chose: what clients connect to. Behind a
  /// wildcard that of the first interface that is up and no loopback (behind [::] of IPv6, if there
  /// is one, else of IPv4), and the loopback where there is no other. That is a guess: what peers
  /// elsewhere can reach depends on where they are, so give them a name or address of your choice
  /// with this port, or listen at that address. Peers dial what they were told, with every
  /// connection that they make; a server never tells them another address.
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
/// After a fork the node is the parent's alone. In the child, which may exec, exit, close what it
/// inherited, or make a Node of its own, calls and `serve` are failed_precondition, turning the
/// node ends the child, and its destructor does nothing. (Sockets of a child that does not exec
/// stay open until it ends: peers do not see its parent die.)
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

  /// Serves at `address` ("10.1.2.3:port", "[::1]:port", "[fe80::1%eth0]:port", "unix:/path"; port
  /// 0 = any that is free). No name but localhost, which is 127.0.0.1. "0.0.0.0:port" is every
  /// address of IPv4, "[::]:port" every one of both families, or of IPv4 alone where there is no
  /// IPv6. There is no default host: 127.0.0.1 is for this machine only. The services must outlive
  /// the node, or the end of Server::drain.
  template <class... S>
  Result<Server> serve(std::string_view address, S&... services) {
    std::array<Service*, sizeof...(S)> list{&services...};
    return serve_list(address, list);
  }
  Result<Server> serve_list(std::string_view address, std::span<Service* const> services);

  /// The way to the node that listens at `target`, an address as `serve` takes it or a name, whose
  /// addresses are tried in turn. `callbacks`: services that the peer may call
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
  /// peers reach this node, no wildcard. After `deadline` from now, or `end_ticket`, nobody can
  /// begin to pull what it names; pulls that began end by their own deadlines (Block::retire cuts
  /// them off). resource_exhausted while NodeOptions::tickets_max are not over.
  Result<Ticket> issue_ticket(std::vector<Block> blocks, std::string_view listen,
                              Duration deadline);
  void end_ticket(const Ticket& ticket);
  /// Fetches what a ticket names: a download call of its own, with every guard and deadline.
  Operation<Outcome<Pulled<Payload>>> pull(const Ticket& ticket, Into into,
                                           const CallOptions& options = {});

  /// Turns the (only) poller on this thread until `stop`. Not while other threads turn it: that
  /// ends the process.
  void run();
  /// Starts a thread per poller; stopped by the destructor or `stop`.
  void run_background();
  /// Ends `run` and the threads of `run_background`, and waits for those. On a poller's own thread,
  /// as in a handler, it does not wait: they end after their turn.
  void stop();

  /// For a foreign loop, one poller: one turn (true: there may be more to do); prepare to sleep
  /// (false: turn again); readable when there is something to do; when to turn at the latest. A
  /// turn of a node that has several pollers, or that `run` or `run_background` turns, ends the
  /// process.
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
