// SPDX-License-Identifier: Apache-2.0
#include "fabric/sim/network.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "fabric/sim/fabric.h"

namespace pawl::fabric {

SimNetwork::SimNetwork(std::uint64_t seed, SimOptions options)
    : seed_(seed), options_(options), random_(seed) {}

SimNetwork::~SimNetwork() = default;

// --- time ------------------------------------------------------------------------------------

TimePoint SimNetwork::next_event_time() const {
  return queue_.empty() ? TimePoint::never() : queue_.top().time;
}

bool SimNetwork::step() {
  if (queue_.empty()) return false;
  // priority_queue gives no way to move an element out; it is popped right after.
  Scheduled next = std::move(const_cast<Scheduled&>(queue_.top()));
  queue_.pop();
  clock_.set(next.time);
  const auto found = nodes_.find(next.node);
  if (found != nodes_.end()) next.what(*found->second.fabric);
  return true;
}

void SimNetwork::run_until(TimePoint time) {
  while (next_event_time() <= time && step()) {
  }
  if (time != TimePoint::never()) clock_.set(time);
}

void SimNetwork::schedule(Duration delay, std::uint64_t node,
                          std::function<void(SimFabric&)> what) {
  schedule_at(now() + delay, node, std::move(what));
}

void SimNetwork::schedule_at(TimePoint time, std::uint64_t node,
                             std::function<void(SimFabric&)> what) {
  if (time == TimePoint::never()) return;
  queue_.push({.time = std::max(time, now()),
               .sequence = next_sequence_++,
               .node = node,
               .what = std::move(what)});
}

// --- nodes -----------------------------------------------------------------------------------

std::uint64_t SimNetwork::join(SimFabric& fabric) {
  const std::string name(fabric.node_name());
  PAWL_CHECK(!names_.contains(name),
             "a sim node of this name is alive: crash or destroy it before it is made again");
  const std::uint64_t node = next_node_++;
  nodes_[node] = {.fabric = &fabric,
                  .name = name,
                  .alive = true,
                  .send_free = now(),
                  .receive_free = now(),
                  .extra = draw(random_, options_.slow_node)};
  names_[name] = node;
  return node;
}

void SimNetwork::leave(std::uint64_t node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  if (found->second.alive) crash(found->second.name);
  nodes_.erase(node);
}

std::uint64_t SimNetwork::node_named(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? 0 : found->second;
}

bool SimNetwork::alive(std::uint64_t node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.alive;
}

bool SimNetwork::peer_ready(const SimPeer& peer, const SimPeer& from) const {
  return alive(peer.node) && nodes_.at(peer.node).fabric->ready_for(peer.endpoint, from);
}

void SimNetwork::suspect(const SimPeer& requester) {
  const auto found = nodes_.find(requester.node);
  if (found != nodes_.end()) found->second.fabric->suspect(requester.endpoint);
}

// --- the wire --------------------------------------------------------------------------------

Duration SimNetwork::wire_time(std::uint64_t bytes) const {
  return Duration(
      static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / options_.bytes_per_second));
}

Duration SimNetwork::slowness(const Node& node) const {
  const auto found = slow_nodes_.find(node.name);
  return node.extra + (found == slow_nodes_.end() ? Duration{0} : found->second);
}

TimePoint SimNetwork::transmit(SimPacket packet, TimePoint* order, Duration extra) {
  const auto from = nodes_.find(packet.from);
  const auto to = nodes_.find(packet.to);
  if (from == nodes_.end() || !from->second.alive) return now();
  const Duration wire = wire_time(packet.bytes);
  TimePoint& send_free = from->second.send_free;
  send_free = std::max(send_free, now()) + wire;
  const TimePoint free = send_free;
  TimePoint arrival =
      free + options_.latency + draw_up_to(random_, options_.jitter) + slowness(from->second);
  if (to != nodes_.end()) {
    arrival = arrival + slowness(to->second);
    TimePoint& receive_free = to->second.receive_free;
    receive_free = std::max(receive_free + wire, arrival);
    arrival = receive_free;
  }
  arrival = arrival + extra;
  if (order != nullptr) {
    arrival = std::max(arrival, *order);
    *order = arrival;
  }
  // The event belongs to the sender's fabric object only in name: arrive() looks at both ends.
  queue_.push({.time = arrival,
               .sequence = next_sequence_++,
               .node = packet.from,
               .what = [this, packet = std::move(packet)](SimFabric&) mutable { arrive(packet); }});
  return free;
}

bool SimNetwork::blocked(const Node& from, const Node& to) const {
  return blocked_nodes_.contains(from.name) || blocked_nodes_.contains(to.name) ||
         blocked_paths_.contains({from.name, to.name});
}

bool SimNetwork::path_open(std::uint64_t a, std::uint64_t b) const {
  if (!alive(a) || !alive(b)) return false;
  return !blocked(nodes_.at(a), nodes_.at(b)) && !blocked(nodes_.at(b), nodes_.at(a));
}

void SimNetwork::arrive(SimPacket& packet) {
  if (!alive(packet.from) || !alive(packet.to)) return suspect(packet.waits);
  const Node& to = nodes_.at(packet.to);
  if (blocked(nodes_.at(packet.from), to)) {
    suspect(packet.waits);
    held_.push_back(std::move(packet));
    return;
  }
  packet.deliver(*to.fabric);
}

void SimNetwork::release_held() {
  std::deque<SimPacket> held;
  held.swap(held_);
  for (SimPacket& packet : held) arrive(packet);
  for (auto& [number, node] : nodes_) node.fabric->path_changed();
}

// --- faults ----------------------------------------------------------------------------------

void SimNetwork::block(std::string_view from, std::string_view to) {
  blocked_paths_.emplace(from, to);
}

void SimNetwork::unblock(std::string_view from, std::string_view to) {
  blocked_paths_.erase({std::string(from), std::string(to)});
  release_held();
}

void SimNetwork::block_link(std::string_view a, std::string_view b) {
  block(a, b);
  block(b, a);
}

void SimNetwork::unblock_link(std::string_view a, std::string_view b) {
  blocked_paths_.erase({std::string(a), std::string(b)});
  unblock(b, a);
}

void SimNetwork::block_node(std::string_view name) { blocked_nodes_.emplace(name); }

void SimNetwork::unblock_node(std::string_view name) {
  blocked_nodes_.erase(std::string(name));
  release_held();
}

void SimNetwork::slow_down(std::string_view name, Duration extra) {
  slow_nodes_[std::string(name)] = extra;
}

void SimNetwork::crash(std::string_view name) {
  const std::uint64_t number = node_named(name);
  if (number == 0) return;
  trace(number, "crashes");
  Node& node = nodes_.at(number);
  node.alive = false;
  names_.erase(node.name);
  std::erase_if(
      held_, [&](const SimPacket& packet) { return packet.from == number || packet.to == number; });
  node.fabric->crashed();
  for (auto& [other, peer] : nodes_) {
    if (other != number) peer.fabric->node_vanished(number);
  }
}

void SimNetwork::fail_connections(std::string_view a, std::string_view b) {
  const std::uint64_t from = node_named(a);
  const std::uint64_t to = node_named(b);
  if (from == 0 || to == 0) return;
  nodes_.at(from).fabric->fail_connections_to(to);
  nodes_.at(to).fabric->fail_connections_to(from);
}

void SimNetwork::device_event(std::string_view name, Status status) {
  const std::uint64_t node = node_named(name);
  if (node != 0) nodes_.at(node).fabric->device_event(std::move(status));
}

void SimNetwork::trace(std::uint64_t node, std::string_view text) const {
  if (!trace_) return;
  const auto found = nodes_.find(node);
  char time[32];
  std::snprintf(time, sizeof time, "%.3f us ", static_cast<double>(now().ns) / 1000);
  std::string line(time);
  line += found == nodes_.end() ? "?" : found->second.name;
  line += ": ";
  line += text;
  trace_(line);
}

}  // namespace pawl::fabric
