// SPDX-License-Identifier: Apache-2.0
#include "fabric/faulty/faulty_fabric.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pawl::fabric {

namespace {

// What is held is the poller's: windows are freed on its thread, also where that blocks it.
Capabilities on_the_poller(Capabilities inner) {
  inner.window_calls_block = false;
  return inner;
}

}  // namespace

FaultyFabric::FaultyFabric(Fabric& inner, const FaultPlan& plan, ReuseOracle* oracle)
    : inner_(inner),
      capabilities_(on_the_poller(inner.capabilities())),
      plan_(plan),
      oracle_(oracle),
      random_(plan.seed) {}

FaultyFabric::Endpoint* FaultyFabric::find(EndpointId endpoint) {
  const auto found = endpoints_.find(endpoint);
  return found == endpoints_.end() ? nullptr : &found->second;
}

// --- connections -----------------------------------------------------------------------------

Result<EndpointId> FaultyFabric::connect(std::string_view address, const EndpointOptions& options,
                                         std::span<const std::byte> hello, TimePoint deadline) {
  Result<EndpointId> id = inner_.connect(address, options, hello, deadline);
  if (!id.ok()) return id;
  Endpoint& endpoint = endpoints_[*id];
  endpoint.send_depth = std::clamp(options.send_depth, 1u, capabilities().send_depth_max);
  endpoint.deadline = deadline;
  endpoint.refused = random_.chance(plan_.refuse_connect);
  endpoint.lose = !endpoint.refused && random_.chance(plan_.lose_connected);
  if (endpoint.refused) ++counters_.connects_refused;
  return id;
}

Status FaultyFabric::accept(EndpointId id, const EndpointOptions& options,
                            std::span<const std::byte> hello) {
  Status status = inner_.accept(id, options, hello);
  if (Endpoint* endpoint = find(id); endpoint != nullptr && status.ok()) {
    endpoint->send_depth = std::clamp(options.send_depth, 1u, capabilities().send_depth_max);
  }
  return status;
}

void FaultyFabric::reject(EndpointId id, std::span<const std::byte> hello) {
  inner_.reject(id, hello);
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->connected) return;
  endpoint->rejected = true;
  goes_to_error(*endpoint);
  if (endpoint->outstanding == 0) endpoints_.erase(id);
}

/// What is held will never reach the device: it is flushed here.
void FaultyFabric::goes_to_error(Endpoint& endpoint) {
  if (endpoint.error) return;
  endpoint.error = true;
  flush_held(endpoint);
  endpoint.signals.flush([this](const Completion& c) { hand_out(c); });
}

void FaultyFabric::set_error(EndpointId id) {
  inner_.set_error(id);
  Endpoint* endpoint = find(id);
  if (endpoint != nullptr && endpoint->connected) goes_to_error(*endpoint);
}

void FaultyFabric::fail_endpoint(EndpointId id) {
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr) return;
  fail(id, *endpoint, Status(Code::unavailable, "the endpoint was failed (injected)"));
}

void FaultyFabric::fail(EndpointId id, Endpoint& endpoint, Status why) {
  if (!endpoint.connected || endpoint.error) return;
  ++counters_.endpoints_failed;
  inner_.set_error(id);
  goes_to_error(endpoint);
  take_failed(endpoint, {.kind = EventKind::failed, .endpoint = id, .status = std::move(why)});
}

void FaultyFabric::close(EndpointId id) {
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->closing || endpoint->rejected) return;
  endpoint->closing = true;
  goes_to_error(*endpoint);
  inner_.close(id);
}

Result<RemoteAddress> FaultyFabric::expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                           std::uint64_t length) {
  Result<RemoteAddress> remote = inner_.expose(group, memory, base, length);
  if (remote.ok() && oracle_ != nullptr) oracle_->on_expose(group, *remote, base);
  return remote;
}

/// Connects that were refused, or whose `connected` was lost: the device closes them, and take_last
/// makes a connect_failed of that.
void FaultyFabric::end_faulty_connects() {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.ended || endpoint.closing) continue;
    if (endpoint.refused || (endpoint.lost && endpoint.deadline <= now_)) {
      endpoint.ended = true;
      inner_.close(id);
    }
  }
}

// --- events ----------------------------------------------------------------------------------

void FaultyFabric::push_event(Event event, bool after_completions) {
  events_.push_back({.event = std::move(event), .after = after_completions ? ready_pushed_ : 0});
}

bool FaultyFabric::take_inner_event() {
  Event event;
  if (!inner_.poll_event(event)) return false;
  if (event.kind == EventKind::connect_request) endpoints_[event.endpoint] = {};
  Endpoint* endpoint = find(event.endpoint);
  if (endpoint == nullptr) {
    push_event(std::move(event), false);
    return true;
  }
  switch (event.kind) {
    case EventKind::connected:
      if (endpoint->refused || endpoint->ended) break;
      if (endpoint->lose) {
        endpoint->lost = true;
        ++counters_.connected_lost;
        break;
      }
      endpoint->connected = true;
      push_event(std::move(event), false);
      break;
    case EventKind::failed:
      goes_to_error(*endpoint);
      take_failed(*endpoint, std::move(event));
      break;
    case EventKind::connect_failed:
    case EventKind::closed:
      take_last(*endpoint, std::move(event));
      break;
    case EventKind::connect_request:
    case EventKind::device:
      push_event(std::move(event), false);
      break;
  }
  return true;
}

void FaultyFabric::take_failed(Endpoint& endpoint, Event event) {
  if (!endpoint.connected || endpoint.failed || endpoint.closing) return;
  endpoint.failed = true;
  push_event(std::move(event), false);
}

void FaultyFabric::take_last(Endpoint& endpoint, Event event) {
  goes_to_error(endpoint);
  release_completions_of(event.endpoint);
  endpoint.signals.flush([this](const Completion& c) { hand_out(c); });
  if (endpoint.ended && !endpoint.closing) {
    event.kind = EventKind::connect_failed;
    event.status = endpoint.refused
                       ? Status(Code::unavailable, "the connect was refused (injected)")
                       : Status(Code::deadline, "the answer to the connect was lost (injected)");
  }
  push_event(std::move(event), true);
}

bool FaultyFabric::poll_event(Event& out) {
  while (events_.empty()) {
    if (!take_inner_event()) return false;
  }
  if (events_.front().after > ready_returned_) return false;
  out = std::move(events_.front().event);
  events_.pop_front();
  if (out.kind == EventKind::closed || out.kind == EventKind::connect_failed) {
    endpoints_.erase(out.endpoint);
  }
  return true;
}

// --- time ------------------------------------------------------------------------------------

std::size_t FaultyFabric::poll(TimePoint now, std::span<Completion> out) {
  now_ = std::max(now_, now);
  end_faulty_connects();
  release_due_reads();
  for (auto& [id, endpoint] : endpoints_) advance_queue(endpoint);
  std::array<Completion, 64> buffer;
  while (ready_.size() < out.size()) {
    const std::size_t count = inner_.poll(now, buffer);
    for (std::size_t i = 0; i < count; ++i) take_completion(buffer[i]);
    if (count == 0) break;
  }
  release_due_completions();
  std::size_t count = 0;
  while (count < out.size() && !ready_.empty()) {
    const Completion& completion = out[count++] = ready_.front();
    ready_.pop_front();
    ++ready_returned_;
    Endpoint* endpoint = find(completion.endpoint);
    if (endpoint == nullptr) continue;
    --endpoint->outstanding;
    if (completion.op != Opcode::receive) --endpoint->sends_held;
    if (endpoint->rejected && endpoint->outstanding == 0) endpoints_.erase(completion.endpoint);
  }
  return count;
}

TimePoint FaultyFabric::next_event_time() const {
  if (!ready_.empty() || !events_.empty()) return now_;
  TimePoint next = inner_.next_event_time();
  if (!held_reads_.empty()) next = std::min(next, held_reads_.begin()->first);
  if (!held_completions_.empty()) next = std::min(next, held_completions_.begin()->first.first);
  for (const auto& [id, endpoint] : endpoints_) {
    if (endpoint.refused && !endpoint.ended) return now_;
    if (endpoint.lost && !endpoint.ended) next = std::min(next, endpoint.deadline);
    if (endpoint.queue.empty()) continue;
    // One that is due and still here waits for a READ that is held.
    const TimePoint due = work_.at(endpoint.queue.front()).due;
    if (due > now_) next = std::min(next, due);
  }
  return next;
}

bool FaultyFabric::arm() {
  const bool due = !held_reads_.empty() && held_reads_.begin()->first <= now_;
  return ready_.empty() && events_.empty() && !due && inner_.arm();
}

Fabric::Resources FaultyFabric::resources() const {
  Resources resources = inner_.resources();
  resources.endpoints = endpoints_.size();
  resources.work_requests = work_.size() + ready_.size();
  for (const auto& [id, endpoint] : endpoints_) {
    resources.work_requests += endpoint.signals.waiting();
  }
  return resources;
}

}  // namespace pawl::fabric
