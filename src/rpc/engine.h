// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/list.h"
#include "base/random.h"
#include "bulk/lender.h"
#include "bulk/puller.h"
#include "fabric/fabric.h"
#include "flow/static_window.h"
#include "guard/window_pool.h"
#include "pawl/log.h"
#include "pawl/node.h"
#include "rpc/connection.h"
#include "rpc/message_slots.h"

namespace pawl::detail {
class NodeCore;
struct RunningTag;
}  // namespace pawl::detail

namespace pawl::rpc {

class ConnectingLane;
struct LaneTag;

/// What all parts of a node share. Constant after the node was made.
struct NodeContext {
  NodeContext(const NodeOptions& node_options, const Clock& node_clock, LogSink* sink);

  NodeOptions options;
  std::string name;
  const Clock& clock;
  std::unique_ptr<Logger> log;
  Pool pool;
  std::uint64_t incarnation = 0;
  HandshakeLimits limits;
  std::uint64_t guards = 0;  ///< guard_bit of each that this node can do
  const char* fabric_name = "";
  const char* fabric_reason = "";
  Node* node = nullptr;
  detail::NodeCore* core = nullptr;
  std::atomic<std::uint64_t> next_connection{1};
};

/// A server's presence on one poller: which methods its connections may call, and who is told.
class AcceptPoint : public ConnectionOwner {
 public:
  [[nodiscard]] virtual std::shared_ptr<const Registry> registry() const = 0;
  /// Why it takes no further connection; ok if it does.
  [[nodiscard]] virtual Status admit() const = 0;
  virtual void accepted(Connection& connection) = 0;

 protected:
  ~AcceptPoint() = default;
};

/// One poller's share of a node: its fabric, its connections, its leases and transfers. A turn:
/// what waits to go out is posted, completions and events are handled (session frames at once,
/// requests put into the ready queue), READs are posted as flow control grants them, and what all
/// this made goes out. Poller thread.
class Engine final : public PollSource {
 public:
  Engine(NodeContext& context, Poller& poller, std::unique_ptr<fabric::Fabric> fabric,
         std::size_t index, std::uint64_t seed);
  ~Engine() override;

  /// Registers memory. Before the first turn.
  Status start();
  /// Ends every connection and polls the fabric until all of it is gone; after kShutdownTurnsMax
  /// turns without progress the device is destroyed under them.
  void shutdown();

  // PollSource
  std::size_t poll(TimePoint now) override;
  bool arm() override;
  [[nodiscard]] int fd() const override { return fabric_->event_fd(); }
  [[nodiscard]] TimePoint next_event() const override;
  [[nodiscard]] const char* name() const override { return "rpc engine"; }

  Result<fabric::ListenerId> listen(std::string_view address, AcceptPoint& point);
  void close_listener(fabric::ListenerId listener);

  [[nodiscard]] NodeContext& context() { return context_; }
  [[nodiscard]] Poller& poller() { return poller_; }
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] fabric::Fabric& fabric() { return *fabric_; }
  [[nodiscard]] std::size_t device() const { return device_; }
  [[nodiscard]] bulk::Lender& lender() { return *lender_; }
  [[nodiscard]] bulk::Puller& puller() { return *puller_; }
  [[nodiscard]] flow::Controller& flow() { return flow_; }
  [[nodiscard]] MessageSlots& slots() { return *slots_; }
  [[nodiscard]] guard::WindowPool& windows() { return *windows_; }
  [[nodiscard]] NodeStats& stats() { return stats_; }
  [[nodiscard]] Random& random() { return random_; }
  /// A copy of the counters, at most a millisecond old. Any thread.
  [[nodiscard]] NodeStats published_stats() const;

  // From lanes and connections.
  void add(ConnectingLane& lane);
  void add(Connection& connection);
  void route(fabric::EndpointId endpoint, Connection& connection);
  void unroute(fabric::EndpointId endpoint);
  void mark_dirty(Connection& connection);
  /// The connection will be failed with `why` later in this turn.
  void fail_later(Connection& connection, const Status& why);
  /// The same once what it has to say was sent.
  void fail_after_flush(Connection& connection, const Status& why);
  /// Nothing refers to its endpoints any more: it may go, later in this turn.
  void release_later(Connection& connection);
  /// A request is waiting for its handler: false if handler_queue_max do.
  [[nodiscard]] bool enqueue_handler();
  void dequeue_handler() { --handlers_queued_; }
  void add_running(ServerCall& call);

  /// It has calls that wait for memory windows.
  void wait_for_windows(Connection& connection);
  /// Windows came back.
  void serve_window_waiters();

  static constexpr std::size_t kCompletionsPerPoll = 64;
  static constexpr std::size_t kPollsPerTurn = 8;
  static constexpr std::size_t kSendSlots = 1024;
  /// Leases that are out at a time, mostly of one segment, and those that are being revoked.
  static constexpr std::size_t kWindows = 1024;
  static constexpr std::size_t kLeasesMax = 16384;
  static constexpr std::size_t kShutdownTurnsMax = 1000;

 private:
  using DirtyList = List<Connection, DirtyTag>;
  using StarvedList = List<Connection, StarvedTag>;
  using NoWindowsList = List<Connection, NoWindowsTag>;

  bool flush_dirty();
  bool flush_starved();
  bool flush(Connection& connection);
  [[nodiscard]] bool wants_turn() const;
  std::size_t take_completions(TimePoint now);
  std::size_t take_events();
  void on_connect_request(fabric::Event& event);
  void accept_control(fabric::Event& event, Handshake hello);
  void accept_data(fabric::Event& event, const Handshake& hello);
  void refuse(fabric::EndpointId endpoint, Status why);
  void settle_connections();
  void destroy_device();
  void replenish_windows();
  void publish_stats();

  NodeContext& context_;
  Poller& poller_;
  std::unique_ptr<fabric::Fabric> fabric_;
  const std::size_t index_;
  Random random_;
  std::size_t device_ = 0;
  bool attached_ = false;
  NodeStats stats_;
  flow::StaticWindow flow_;
  std::unique_ptr<MessageSlots> slots_;
  std::unique_ptr<guard::WindowPool> windows_;  // only where window guards are offered
  std::unique_ptr<bulk::Lender> lender_;
  std::unique_ptr<bulk::Puller> puller_;

  std::unordered_map<std::uint64_t, AcceptPoint*> listeners_;
  std::unordered_map<std::uint64_t, Connection*> routes_;       // by endpoint
  std::unordered_map<std::uint64_t, Connection*> connections_;  // by id
  List<Connection, AllTag> all_;
  List<ConnectingLane, LaneTag> lanes_;
  DirtyList dirty_;
  NoWindowsList no_windows_;
  StarvedList starved_;  // they lack a message slot: first come, first served
  std::vector<std::pair<Ref<Connection>, Status>> failing_;
  std::vector<std::pair<Ref<Connection>, Status>> finishing_;
  std::vector<Ref<Connection>> leaving_;
  std::array<fabric::Completion, kCompletionsPerPoll> completions_;  // of one poll
  std::uint32_t handlers_queued_ = 0;
  List<ServerCall, detail::RunningTag> running_;  // handlers that have begun

  mutable std::mutex published_mutex_;
  NodeStats published_;
  TimePoint published_at_;
};

}  // namespace pawl::rpc
