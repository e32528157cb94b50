// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "pawl/node.h"
#include "rpc/engine.h"
#include "rpc/fabric_source.h"
#include "rpc/ticket_table.h"

namespace pawl::rpc {
class Lane;
class ServerPoint;
}  // namespace pawl::rpc

namespace pawl::detail {

/// The inside of a Node: pollers with their engines, and what they share. Channels, servers and
/// calls hold it, so that they may outlive the Node: then it is closed, and they fail.
class NodeCore : public std::enable_shared_from_this<NodeCore> {
 public:
  explicit NodeCore(const NodeOptions& options, Node& node);
  ~NodeCore();

  /// Stops, ends every connection; afterwards nothing runs here.
  void close();
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
  /// This is the child of a fork, and the node is its parent's: without threads, with locks that
  /// nobody may ever release, and with descriptors that are shared. Nothing here is touched.
  [[nodiscard]] bool forked() const { return forks() != forks_; }
  static constexpr const char* kForked =
      "the process forked, and this node belongs to its parent: make a Node in the child, or exec";
  [[nodiscard]] const Status& status() const { return status_; }

  void run();
  void run_background();
  void stop();
  /// The only poller, for a foreign loop; not while threads of the node turn it.
  [[nodiscard]] Poller& foreign_poller();
  [[nodiscard]] bool has_threads() const { return threads_running_.load(); }

  [[nodiscard]] rpc::NodeContext& context() { return context_; }
  [[nodiscard]] std::size_t pollers() const { return shards_.size(); }
  [[nodiscard]] Poller& poller(std::size_t i) { return shards_[i]->poller; }
  [[nodiscard]] rpc::Engine& engine(std::size_t i) { return *shards_[i]->engine; }
  /// The index of the poller that calls made here now belong to: this thread's, else one in turn.
  [[nodiscard]] std::size_t poller_for_calls();
  [[nodiscard]] NodeStats stats();

  /// Hands work to a poller; false if the node is closed (then it will not run).
  bool post(std::size_t poller, Work& work);
  /// Lets a lane go that could not be handed to its poller: at the end of `close`, when nothing
  /// turns it any more, or at once on any thread, since it does nothing any more.
  void let_lane_go(std::size_t poller, std::shared_ptr<rpc::Lane> lane);
  /// Runs `fn` on a poller's thread and waits; here if no thread turns it.
  void on_poller(std::size_t poller, const std::function<void()>& fn);

  Result<Server> serve(std::string_view address, std::span<Service* const> services);
  /// A drained server's last part goes. Poller 0.
  void forget(rpc::ServerPoint& point);
  Channel channel(std::string_view target, const ChannelOptions& options,
                  std::span<Service* const> callbacks);
  /// One channel for each address that tickets name; of too many the least recently used goes.
  Channel ticket_channel(const std::string& target);
  Result<Ticket> issue_ticket(std::vector<Block> blocks, std::string_view listen,
                              Duration deadline);
  /// Ends the tickets whose time is over and comes again at the next deadline. Poller 0.
  void sweep_tickets();
  [[nodiscard]] rpc::TicketTable& tickets() { return *tickets_; }

 private:
  struct Shard {
    explicit Shard(const PollerOptions& options) : poller(options) {}
    Poller poller;
    std::unique_ptr<rpc::Engine> engine;
    std::thread thread;
  };

  void run_what_is_left();
  void release_lanes();
  Status start_shards(const NodeOptions& options);
  Status start_shard(std::size_t index, FabricSource& source);
  Status offer_guards(const fabric::Fabric& fabric);

  const std::uint32_t forks_ = forks();
  SteadyClock steady_clock_;
  rpc::NodeContext context_;
  std::unique_ptr<FabricSource> own_source_;
  std::vector<std::unique_ptr<Shard>> shards_;
  Status status_;
  std::unique_ptr<rpc::TicketTable> tickets_;
  std::unique_ptr<Service> ticket_service_;
  Timer ticket_timer_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> threads_running_{false};
  std::atomic<std::size_t> next_poller_{0};
  std::mutex mutex_;  // post against close; servers, ticket channels, lanes
  std::vector<std::shared_ptr<rpc::ServerPoint>> servers_;
  struct TicketChannel {
    Channel channel;
    std::uint64_t used = 0;  ///< the count of uses at its last
  };
  std::unordered_map<std::string, TicketChannel> ticket_channels_;
  std::uint64_t ticket_channel_uses_ = 0;
  std::vector<std::pair<std::size_t, std::shared_ptr<rpc::Lane>>> lanes_left_;
  bool ended_ = false;  // close() is through
};

}  // namespace pawl::detail
