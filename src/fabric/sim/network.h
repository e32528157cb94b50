// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/random_delay.h"
#include "fabric/sim/options.h"
#include "fabric/work.h"
#include "pawl/status.h"
#include "pawl/time.h"

namespace pawl::fabric {

class SimFabric;

/// An endpoint of some fabric in the network. `node` names one SimFabric object and is never used
/// again, so a restarted node is another one.
struct SimPeer {
  std::uint64_t node = 0;
  EndpointId endpoint;
  friend bool operator==(const SimPeer&, const SimPeer&) = default;
};

/// Something that travels from one node to another. Nothing is ever lost between living nodes: on
/// a blocked path it waits for the unblocking, and whoever needs it has a retry timeout.
struct SimPacket {
  static constexpr std::uint64_t kHeaderBytes = 32;

  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t bytes = 0;
  SimPeer waits;  ///< the requester that gets no answer as long as this does not arrive
  std::function<void(SimFabric&)> deliver;
};

/// A network in one process and in virtual time: the clock, the seeded randomness, the queue of
/// what will happen, the wire, and the faults that a test asks for. The same seed, options and
/// calls give the same run. One thread (registration and free_window excepted, as in fabric.h).
///
/// Nodes get `clock()` injected; whoever drives the run lets the nodes take turns until none makes
/// progress, then moves on to the next event or timer (see SimLoop). Outlives its fabrics.
class SimNetwork {
 public:
  explicit SimNetwork(std::uint64_t seed, SimOptions options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  SimOptions& options() { return options_; }

  [[nodiscard]] TimePoint next_event_time() const;
  /// Moves to the next event and lets it happen; false if nothing is scheduled.
  bool step();
  /// Lets everything happen that is due up to `time`, and moves the clock there.
  void run_until(TimePoint time);

  // --- faults, at any time, by node name (also across a restart under the same name) -----------

  /// What `from` sends no longer reaches `to`, until unblocked.
  void block(std::string_view from, std::string_view to);
  void unblock(std::string_view from, std::string_view to);
  void block_link(std::string_view a, std::string_view b);
  void unblock_link(std::string_view a, std::string_view b);
  /// Nothing reaches or leaves the node: pulled cable, stopped process.
  void block_node(std::string_view name);
  void unblock_node(std::string_view name);
  /// Adds `extra` to the latency of every packet from and to the node; 0 ends it.
  void slow_down(std::string_view name, Duration extra);
  /// The node's endpoints vanish without a word; peers learn by retry_exceeded, connects are
  /// refused. Its SimFabric flushes what it had, so that the owner can be torn down, and refuses
  /// new work. A new SimFabric may take the name at once.
  void crash(std::string_view name);
  /// Takes every endpoint between two nodes to ERR.
  void fail_connections(std::string_view a, std::string_view b);
  /// Gives the node a device event.
  void device_event(std::string_view name, Status status);

  /// Called with one line per event of interest: "12.345 us a: 7 send 100 bytes". Empty = off.
  void set_trace(std::function<void(std::string_view)> trace) { trace_ = std::move(trace); }

  // --- for SimFabric ---------------------------------------------------------------------------

  std::uint64_t join(SimFabric& fabric);  ///< the new node number
  void leave(std::uint64_t node);
  [[nodiscard]] std::uint64_t node_named(std::string_view name) const;  ///< 0 = none alive
  [[nodiscard]] bool alive(std::uint64_t node) const;
  Random& random() { return random_; }

  /// Calls `what` on the node's fabric after `delay`, if it still exists.
  void schedule(Duration delay, std::uint64_t node, std::function<void(SimFabric&)> what);
  void schedule_at(TimePoint time, std::uint64_t node, std::function<void(SimFabric&)> what);
  /// Puts a packet on the wire. `order`, if given, keeps packets of one stream in order: it holds
  /// the arrival of the last one. Returns when the wire of `from` is free again.
  TimePoint transmit(SimPacket packet, TimePoint* order = nullptr, Duration extra = Duration{0});
  /// True if packets travel both ways now.
  [[nodiscard]] bool path_open(std::uint64_t a, std::uint64_t b) const;
  /// True if `peer` exists, is connected to `from`, and works.
  [[nodiscard]] bool peer_ready(const SimPeer& peer, const SimPeer& from) const;
  /// Starts the retry timer of a requester.
  void suspect(const SimPeer& requester);

  [[nodiscard]] bool tracing() const { return static_cast<bool>(trace_); }
  void trace(std::uint64_t node, std::string_view text) const;

 private:
  struct Node {
    SimFabric* fabric = nullptr;
    std::string name;
    bool alive = true;
    TimePoint send_free;  // when its wire has carried what was given to it
    TimePoint receive_free;
    Duration extra{0};  // slow_node, drawn once
  };
  struct Scheduled {
    TimePoint time;
    std::uint64_t sequence = 0;
    std::uint64_t node = 0;
    std::function<void(SimFabric&)> what;
    bool operator>(const Scheduled& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  void arrive(SimPacket& packet);
  [[nodiscard]] bool blocked(const Node& from, const Node& to) const;
  [[nodiscard]] Duration slowness(const Node& node) const;
  [[nodiscard]] Duration wire_time(std::uint64_t bytes) const;
  void release_held();

  std::uint64_t seed_;
  SimOptions options_;
  Random random_;
  ManualClock clock_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_node_ = 1;
  std::priority_queue<Scheduled, std::vector<Scheduled>, std::greater<>> queue_;
  std::map<std::uint64_t, Node> nodes_;
  std::map<std::string, std::uint64_t, std::less<>> names_;  // of living nodes
  std::set<std::pair<std::string, std::string>> blocked_paths_;
  std::set<std::string, std::less<>> blocked_nodes_;
  std::map<std::string, Duration, std::less<>> slow_nodes_;
  std::deque<SimPacket> held_;  // arrived at a block, in order
  std::function<void(std::string_view)> trace_;
};

}  // namespace pawl::fabric
