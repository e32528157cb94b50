// SPDX-License-Identifier: Apache-2.0
#include "fabric/sim/fabric.h"

#include <algorithm>
#include <utility>

#include "fabric/check_work.h"

namespace pawl::fabric {

SimFabric::SimFabric(SimNetwork& network, std::string name)
    : SimFabric(network, std::move(name), network.options().capabilities) {}

SimFabric::SimFabric(SimNetwork& network, std::string name, const Capabilities& capabilities)
    : network_(network),
      name_(std::move(name)),
      capabilities_(capabilities),
      memory_(network.random().next(), capabilities.exact_keys),
      next_endpoint_(1 + network.random().below(1u << 16) * 4096) {
  node_ = network_.join(*this);
}

SimFabric::~SimFabric() { network_.leave(node_); }

// --- memory ----------------------------------------------------------------------------------

Result<MemoryHandle> SimFabric::register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                                MemoryUse use) {
  return memory_.add(memory, kind, use);
}

Status SimFabric::deregister_memory(MemoryHandle handle) { return memory_.remove(handle); }

void SimFabric::close_group(PeerGroup group) { memory_.close_group(group); }

Result<RemoteAddress> SimFabric::expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                        std::uint64_t length) {
  return memory_.expose(group, memory, base, length);
}

Result<WindowId> SimFabric::allocate_window() {
  if (capabilities_.windows == WindowSupport::none) {
    return Status(Code::unimplemented, "this device has no memory windows");
  }
  return memory_.add_window();
}

std::uint64_t SimFabric::next_window_key(WindowId window) const {
  return memory_.next_window_key(window);
}

Status SimFabric::free_window(WindowId window) { return memory_.remove_window(window); }

// --- endpoints -------------------------------------------------------------------------------

SimEndpoint* SimFabric::find(EndpointId endpoint) {
  const auto found = endpoints_.find(endpoint);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

SimEndpoint* SimFabric::find(EndpointId endpoint, const SimPeer& peer) {
  SimEndpoint* found = find(endpoint);
  return found == nullptr || found->peer != peer ? nullptr : found;
}

SimEndpoint& SimFabric::add_endpoint(SimState state) {
  const EndpointId id{next_endpoint_++};
  auto endpoint = std::make_unique<SimEndpoint>();
  endpoint->id = id;
  endpoint->state = state;
  return *endpoints_.emplace(id, std::move(endpoint)).first->second;
}

EndpointOptions SimFabric::clamped(const EndpointOptions& options) const {
  EndpointOptions result = options;
  result.send_depth = std::clamp(options.send_depth, 1u, capabilities_.send_depth_max);
  result.receive_depth = std::clamp(options.receive_depth, 1u, capabilities_.receive_depth_max);
  result.read_depth = std::clamp(options.read_depth, 1u, capabilities_.read_depth_max);
  return result;
}

bool SimFabric::ready_for(EndpointId endpoint, const SimPeer& peer) const {
  const auto found = endpoints_.find(endpoint);
  return found != endpoints_.end() && found->second->peer == peer &&
         found->second->state == SimState::ready;
}

void SimFabric::set_error(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr) return;
  if (endpoint->state == SimState::ready) fail(*endpoint, {}, false, options().announce_errors);
}

void SimFabric::fail_endpoint(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return;
  fail(*endpoint, Status(Code::unavailable, "the device took the endpoint to ERR (simulated)"),
       true, options().announce_errors);
}

void SimFabric::close(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->closing) return;
  trace(*endpoint, "close");
  endpoint->closing = true;
  switch (endpoint->state) {
    case SimState::connecting:
      abandon(endpoint->peer.node, id);
      break;
    case SimState::requested:
      refuse(endpoint->peer, Status(Code::unavailable, "the peer closed the connection"), {});
      break;
    case SimState::accepted:
    case SimState::ready:
      fail(*endpoint, {}, false, options().announce_errors);
      return;  // closed follows the flush
    case SimState::error:
      if (!endpoint->flushed) return;
      break;
  }
  end(*endpoint, {.kind = EventKind::closed, .endpoint = id});
}

/// Takes the endpoint to ERR. Its own requests are flushed a little later; until then answers of
/// its READs still land.
void SimFabric::fail(SimEndpoint& endpoint, Status why, bool by_itself, bool announce) {
  if (endpoint.state == SimState::error) return;
  trace(endpoint, by_itself ? "fails" : "goes to ERR");
  endpoint.state = SimState::error;
  for (SimRequest& request : endpoint.requests) release_window(request);
  if (!announce && !endpoint.inbound.empty()) network_.suspect(endpoint.peer);
  endpoint.inbound.clear();
  if (announce) {
    network_.transmit({.from = node_,
                       .to = endpoint.peer.node,
                       .bytes = 16,
                       .waits = endpoint.peer,
                       .deliver = [to = endpoint.peer.endpoint, from = self(endpoint)](
                                      SimFabric& f) { f.peer_failed(to, from); }},
                      &endpoint.order);
  }
  if (by_itself) {
    push_event({.kind = EventKind::failed, .endpoint = endpoint.id, .status = std::move(why)});
  }
  network_.schedule(draw_up_to(random(), options().flush_delay_max), node_,
                    [id = endpoint.id](SimFabric& f) { f.flush_due(id); });
}

void SimFabric::flush_due(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr) return;
  flush(*endpoint);
  if (endpoint->closing) end(*endpoint, {.kind = EventKind::closed, .endpoint = id});
}

void SimFabric::flush(SimEndpoint& endpoint) {
  if (endpoint.flushed) return;
  endpoint.flushed = true;
  endpoint.state = SimState::error;
  for (std::size_t i = 0; i < endpoint.requests.size(); ++i) {
    if (!endpoint.requests[i].done) {
      finish(endpoint, endpoint.first_ticket + i, CompletionStatus::flushed);
    }
  }
  endpoint.signals.flush([&](const Completion& c) { push_completion(endpoint, c); });
  endpoint.requests.clear();
  for (const SimReceive& receive : endpoint.receives) {
    push_completion(endpoint, {.id = receive.id,
                               .endpoint = endpoint.id,
                               .op = Opcode::receive,
                               .status = CompletionStatus::flushed});
  }
  endpoint.receives.clear();
}

/// The endpoint is gone; `last` follows everything that it completed.
void SimFabric::end(SimEndpoint& endpoint, Event last) {
  flush(endpoint);
  push_event(std::move(last), true);
  endpoints_.erase(endpoint.id);
}

void SimFabric::fail_connections_to(std::uint64_t node) {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->peer.node == node && endpoint->state == SimState::ready) {
      fail(*endpoint, Status(Code::unavailable, "the connection was lost (simulated)"), true,
           false);
    }
  }
}

void SimFabric::crashed() {
  crashed_ = true;
  listeners_.clear();
  device_event(Status(Code::unavailable, "the node crashed (simulated)"));
  std::vector<EndpointId> unfinished;
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->state == SimState::ready) {
      fail(*endpoint, Status(Code::unavailable, "the node crashed (simulated)"), true, false);
    } else if (endpoint->state != SimState::error) {
      unfinished.push_back(id);
    }
  }
  for (const EndpointId id : unfinished) {
    connect_failed(*find(id), Status(Code::unavailable, "the node crashed (simulated)"));
  }
}

void SimFabric::device_event(Status status) {
  push_event({.kind = EventKind::device, .status = std::move(status)});
}

// --- posting ---------------------------------------------------------------------------------

Status SimFabric::check(const SimEndpoint& endpoint, const WorkRequest& work) const {
  if (endpoint.state == SimState::error || endpoint.closing) {
    return Status(Code::failed_precondition, "the endpoint is in ERR: close it and connect again");
  }
  if (work.op == Opcode::receive) {
    if (endpoint.receives_held >= endpoint.options.receive_depth) {
      return Status(Code::resource_exhausted, "the receive queue is full: poll first");
    }
  } else {
    if (!endpoint.connected_taken) {
      return Status(Code::failed_precondition, "the endpoint is not connected yet");
    }
    if (endpoint.sends_held >= endpoint.options.send_depth) {
      return Status(Code::resource_exhausted, "the send queue is full: poll first");
    }
  }
  if ((work.op == Opcode::bind || work.op == Opcode::invalidate) &&
      !memory_.window_exists(work.window)) {
    return Status(Code::not_found, "no such window: it was freed, or is another device's");
  }
  return check_work(capabilities_, work);
}

std::size_t SimFabric::post(EndpointId id, std::span<const WorkRequest> chain, Status& why) {
  why = {};
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr) {
    why = Status(Code::failed_precondition, "the endpoint is closed");
    return 0;
  }
  std::size_t accepted = 0;
  for (const WorkRequest& work : chain) {
    why = check(*endpoint, work);
    if (!why.ok()) break;
    accept_work(*endpoint, work);
    ++accepted;
  }
  return accepted;
}

void SimFabric::accept_work(SimEndpoint& endpoint, const WorkRequest& work) {
  ++work_requests_;
  std::uint64_t bytes = 0;
  for (const LocalSegment& segment : work.local) bytes += segment.length;
  if (work.op == Opcode::receive) {
    ++endpoint.receives_held;
    endpoint.receives.push_back(
        {.id = work.id, .local = {work.local.begin(), work.local.end()}, .bytes = bytes});
    if (!endpoint.inbound.empty()) {
      network_.schedule(endpoint.not_ready ? options().receiver_not_ready_delay : Duration{0},
                        node_, [id = endpoint.id](SimFabric& f) { f.take_inbound(id); });
    }
    return;
  }
  ++endpoint.sends_held;
  SimRequest request{.id = work.id, .op = work.op, .fence = work.fence, .done = false};
  request.bytes = bytes;
  request.remote = work.remote;
  request.window = work.window;
  request.bind_target = work.bind_target;
  if (work.inline_payload && work.op == Opcode::send) {
    for (const LocalSegment& segment : work.local) {
      request.inline_bytes.insert(request.inline_bytes.end(), segment.address,
                                  segment.address + segment.length);
    }
  } else {
    request.local.assign(work.local.begin(), work.local.end());
  }
  if (work.op == Opcode::bind) request.window_key = memory_.take_window_key(work.window);
  if (work.op == Opcode::bind || work.op == Opcode::invalidate) {
    request.names_window = true;
    memory_.window_work_posted(work.window);
  }
  endpoint.signals.add(work.signalled, endpoint.options.send_depth);
  endpoint.requests.push_back(std::move(request));
  schedule_pump(endpoint, draw_up_to(random(), options().post_delay_max));
}

// --- completions and events ------------------------------------------------------------------

void SimFabric::push_completion(SimEndpoint& endpoint, const Completion& completion) {
  if (network_.tracing()) trace(endpoint, completion_status_name(completion.status), completion.id);
  completions_.push_back(completion);
  ++completions_pushed_;
}

void SimFabric::push_event(Event event, bool after_completions) {
  events_.push_back(
      {.event = std::move(event), .after = after_completions ? completions_pushed_ : 0});
}

std::size_t SimFabric::poll(TimePoint now, std::span<Completion> out) {
  network_.run_until(std::max(now, network_.now()));
  std::size_t count = 0;
  while (count < out.size() && !completions_.empty()) {
    const Completion& completion = completions_.front();
    if (SimEndpoint* endpoint = find(completion.endpoint); endpoint != nullptr) {
      --(completion.op == Opcode::receive ? endpoint->receives_held : endpoint->sends_held);
    }
    out[count++] = completion;
    completions_.pop_front();
    ++completions_returned_;
    --work_requests_;
  }
  return count;
}

bool SimFabric::poll_event(Event& out) {
  if (events_.empty() || events_.front().after > completions_returned_) return false;
  out = std::move(events_.front().event);
  events_.pop_front();
  if (out.kind == EventKind::connected) {
    if (SimEndpoint* endpoint = find(out.endpoint); endpoint != nullptr) {
      endpoint->connected_taken = true;
      network_.schedule(Duration{0}, node_,
                        [id = out.endpoint](SimFabric& f) { f.take_inbound(id); });
    }
  }
  return true;
}

TimePoint SimFabric::next_event_time() const {
  if (!completions_.empty() || !events_.empty()) return network_.now();
  return network_.next_event_time();
}

bool SimFabric::arm() { return next_event_time() > network_.now(); }

Fabric::Resources SimFabric::resources() const {
  const SimMemory::Counts counts = memory_.counts();
  return {.endpoints = endpoints_.size(),
          .listeners = listeners_.size(),
          .keys = counts.keys,
          .windows = counts.windows,
          .registrations = counts.registrations,
          .work_requests = work_requests_};
}

void SimFabric::trace(const SimEndpoint& endpoint, std::string_view what, std::uint64_t number) {
  if (!network_.tracing()) return;
  std::string line = std::to_string(endpoint.id.value) + "->" + endpoint.peer_name + " ";
  line += what;
  if (number != 0) line += " " + std::to_string(number);
  network_.trace(node_, line);
}

}  // namespace pawl::fabric
