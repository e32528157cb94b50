// SPDX-License-Identifier: Apache-2.0
// The requester's side: requests start in the order of their posts, one after the other; sends and
// READs then wait for the peer's answer, binds and invalidates are done on the spot.
#include <algorithm>
#include <utility>

#include "fabric/sim/fabric.h"

namespace pawl::fabric {

void SimFabric::schedule_pump(SimEndpoint& endpoint, Duration delay) {
  if (endpoint.pump_scheduled) return;
  endpoint.pump_scheduled = true;
  network_.schedule(delay, node_, [id = endpoint.id](SimFabric& f) {
    if (SimEndpoint* e = f.find(id); e != nullptr) {
      e->pump_scheduled = false;
      f.pump(id);
    }
  });
}

/// Starts what may start. Only the head can wait: for a READ slot, a fence, or a window's work.
void SimFabric::pump(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  while (endpoint != nullptr && endpoint->state == SimState::ready && !endpoint->window_busy &&
         endpoint->next_start < endpoint->requests.size()) {
    const SimRequest& next = endpoint->requests[endpoint->next_start];
    if (next.fence && endpoint->reads_running > 0) return;
    if (next.op == Opcode::read && endpoint->reads_running >= endpoint->options.read_depth) return;
    if (draw_loss(*endpoint)) return;
    const std::uint64_t ticket = endpoint->first_ticket + endpoint->next_start++;
    trace(*endpoint, next.op == Opcode::read ? "starts read" : "starts", next.id);
    switch (next.op) {
      case Opcode::send:
        start_send(*endpoint, ticket);
        break;
      case Opcode::read:
        start_read(*endpoint, ticket);
        break;
      default:
        start_window(*endpoint, ticket);
        break;
    }
    endpoint = find(id);
  }
}

bool SimFabric::draw_loss(SimEndpoint& endpoint) {
  if (random().chance(options().connection_loss)) {
    const PeerGroup group = endpoint.options.group;
    for (auto& [id, other] : endpoints_) {
      if (other->options.group != group || other->state != SimState::ready) continue;
      fail(*other, Status(Code::unavailable, "the connection was lost (simulated)"), true,
           options().announce_errors);
    }
    return true;
  }
  if (random().chance(options().endpoint_loss)) {
    fail_endpoint(endpoint.id);
    return true;
  }
  return false;
}

void SimFabric::start_send(SimEndpoint& endpoint, std::uint64_t ticket) {
  const SimRequest& request = *endpoint.request(ticket);
  SimInbound inbound{.is_read = false, .ticket = ticket, .message = request.inline_bytes};
  inbound.bytes = request.bytes;
  if (request.inline_bytes.empty()) {
    inbound.message.resize(request.bytes);
    if (!memory_.gather(request.local, inbound.message)) {
      return finish(endpoint, ticket, CompletionStatus::local_error);
    }
  }
  ++endpoint.remote_running;
  network_.transmit(
      {.from = node_,
       .to = endpoint.peer.node,
       .bytes = SimPacket::kHeaderBytes + request.bytes,
       .waits = self(endpoint),
       .deliver = [to = endpoint.peer.endpoint, from = self(endpoint),
                   inbound = std::move(inbound)](
                      SimFabric& f) mutable { f.inbound_arrived(to, from, std::move(inbound)); }},
      &endpoint.order, draw(random(), options().stall));
}

void SimFabric::start_read(SimEndpoint& endpoint, std::uint64_t ticket) {
  const SimRequest& request = *endpoint.request(ticket);
  if (!memory_.covers(request.local)) {
    return finish(endpoint, ticket, CompletionStatus::local_error);
  }
  ++endpoint.remote_running;
  ++endpoint.reads_running;
  SimInbound inbound{.is_read = true, .ticket = ticket};
  inbound.from = request.remote;
  inbound.bytes = request.bytes;
  network_.transmit({.from = node_,
                     .to = endpoint.peer.node,
                     .bytes = SimPacket::kHeaderBytes,
                     .waits = self(endpoint),
                     .deliver = [to = endpoint.peer.endpoint, from = self(endpoint),
                                 inbound](SimFabric& f) { f.inbound_arrived(to, from, inbound); }},
                    &endpoint.order, draw(random(), options().stall));
}

void SimFabric::start_window(SimEndpoint& endpoint, std::uint64_t ticket) {
  endpoint.window_busy = true;
  network_.schedule(draw_up_to(random(), options().window_time_max), node_,
                    [id = endpoint.id, ticket](SimFabric& f) { f.window_done(id, ticket); });
}

void SimFabric::window_done(EndpointId id, std::uint64_t ticket) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return;
  endpoint->window_busy = false;
  SimRequest& request = *endpoint->request(ticket);
  release_window(request);
  const CompletionStatus status =
      request.op == Opcode::bind
          ? memory_.bind(request.window, request.window_key, id, request.bind_target)
          : memory_.invalidate(request.window, id);
  finish(*endpoint, ticket, status);
  pump(id);
}

/// The request will not touch its window any more: done, or its endpoint is in ERR.
void SimFabric::release_window(SimRequest& request) {
  if (!request.names_window) return;
  request.names_window = false;
  memory_.window_work_done(request.window);
}

/// The peer answered a send, or refused a READ.
void SimFabric::answered(EndpointId id, const SimPeer& peer, std::uint64_t ticket,
                         CompletionStatus status) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return;
  if (status != CompletionStatus::success) return finish(*endpoint, ticket, status);
  finish_later(*endpoint, ticket);
}

void SimFabric::read_landed(EndpointId id, const SimPeer& peer, std::uint64_t ticket,
                            std::uint64_t offset, const std::vector<std::byte>& bytes) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr) return;
  SimRequest* request = endpoint->request(ticket);
  // An endpoint in ERR whose flush is still to come lets what is under way land.
  if (request == nullptr || request->done) return;
  const bool landed = memory_.scatter(request->local, offset, bytes);
  if (!landed && endpoint->state == SimState::ready) {
    finish(*endpoint, ticket, CompletionStatus::local_error);
  }
}

void SimFabric::read_complete(EndpointId id, const SimPeer& peer, std::uint64_t ticket,
                              bool at_once) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return;
  finish_later(*endpoint, ticket, at_once);
}

void SimFabric::finish_later(SimEndpoint& endpoint, std::uint64_t ticket, bool at_once) {
  const Duration delay = at_once ? Duration{0}
                                 : draw_up_to(random(), options().completion_delay_max) +
                                       draw(random(), options().completion_stall);
  network_.schedule(delay, node_, [id = endpoint.id, ticket](SimFabric& f) {
    SimEndpoint* e = f.find(id);
    if (e == nullptr || e->state != SimState::ready) return;
    f.finish(*e, ticket, CompletionStatus::success);
    f.pump(id);
  });
}

void SimFabric::finish(SimEndpoint& endpoint, std::uint64_t ticket, CompletionStatus status) {
  SimRequest* request = endpoint.request(ticket);
  if (request == nullptr || request->done) return;
  request->done = true;
  const bool started = ticket < endpoint.first_ticket + endpoint.next_start;
  if (started && status != CompletionStatus::local_error) {
    if (request->op == Opcode::read) --endpoint.reads_running;
    if (request->op == Opcode::read || request->op == Opcode::send) --endpoint.remote_running;
  }
  const Completion completion{
      .id = request->id, .endpoint = endpoint.id, .op = request->op, .status = status};
  endpoint.signals.done(ticket, completion,
                        [&](const Completion& c) { push_completion(endpoint, c); });
  if (endpoint.state != SimState::ready) return;  // flush is walking through the requests
  if (status != CompletionStatus::success) {
    fail(endpoint,
         Status::with_detail(Code::unavailable,
                             "work on the connection to " + endpoint.peer_name +
                                 " failed: " + std::string(completion_status_name(status))),
         true, options().announce_errors && status != CompletionStatus::remote_access);
  }
  endpoint.drop_done();
}

// --- no answer -------------------------------------------------------------------------------

void SimFabric::suspect(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::ready || endpoint->suspected) return;
  if (endpoint->remote_running == 0) return;
  endpoint->suspected = true;
  network_.schedule(
      options().retry_timeout, node_,
      [id, suspicion = ++endpoint->suspicion](SimFabric& f) { f.retry_over(id, suspicion); });
}

void SimFabric::path_changed() {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->suspected && network_.path_open(node_, endpoint->peer.node) &&
        network_.peer_ready(endpoint->peer, self(*endpoint))) {
      endpoint->suspected = false;
    }
  }
}

void SimFabric::node_vanished(std::uint64_t node) {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->peer.node == node) suspect(id);
  }
}

void SimFabric::retry_over(EndpointId id, std::uint64_t suspicion) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return;
  if (!endpoint->suspected || endpoint->suspicion != suspicion) return;
  endpoint->suspected = false;
  for (std::size_t i = 0; i < endpoint->next_start; ++i) {
    const SimRequest& request = endpoint->requests[i];
    if (request.done || (request.op != Opcode::send && request.op != Opcode::read)) continue;
    return finish(*endpoint, endpoint->first_ticket + i, CompletionStatus::retry_exceeded);
  }
}

}  // namespace pawl::fabric
