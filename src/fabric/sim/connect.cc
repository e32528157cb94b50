// SPDX-License-Identifier: Apache-2.0
// The handshake: request → accept (or refusal) → confirmation. Both ends know the other's endpoint
// from it; a late answer finds its endpoint gone and abandons the other half.
#include <algorithm>
#include <utility>

#include "fabric/sim/fabric.h"

namespace pawl::fabric {
namespace {

constexpr std::uint64_t kHandshakeBytes = 64;

Status hello_too_large() {
  return Status(Code::too_large, "hello is longer than kHelloBytesMax (4096)");
}

std::string_view node_of(std::string_view address) { return address.substr(0, address.find(':')); }

}  // namespace

Result<ListenerId> SimFabric::listen(std::string_view address) {
  if (crashed_) return Status(Code::unavailable, "this sim node has crashed");
  if (node_of(address) != name_) {
    return Status::with_detail(Code::invalid_argument, "cannot listen on '" + std::string(address) +
                                                           "': this node is '" + name_ +
                                                           "' in the simulated network");
  }
  std::string chosen(address);
  const auto taken = [&] {
    return std::any_of(listeners_.begin(), listeners_.end(),
                       [&](const auto& listener) { return listener.second == chosen; });
  };
  if (chosen == name_ + ":0") {
    std::uint64_t service = 0;
    do {
      chosen = name_ + ":" + std::to_string(++service);
    } while (taken());
  } else if (taken()) {
    return Status::with_detail(Code::already_exists,
                               "'" + chosen + "' is listened on already; use '" + name_ + ":0'");
  }
  const ListenerId id{next_listener_++};
  listeners_[id] = std::move(chosen);
  return id;
}

std::string SimFabric::listener_address(ListenerId listener) const {
  const auto found = listeners_.find(listener);
  return found == listeners_.end() ? std::string() : found->second;
}

void SimFabric::close_listener(ListenerId listener) { listeners_.erase(listener); }

Result<EndpointId> SimFabric::connect(std::string_view address, const EndpointOptions& options,
                                      std::span<const std::byte> hello, TimePoint deadline) {
  if (crashed_) return Status(Code::unavailable, "this sim node has crashed");
  if (hello.size() > kHelloBytesMax) return hello_too_large();
  if (node_of(address).empty()) {
    return Status(Code::invalid_argument, "a sim address is \"node\" or \"node:service\"");
  }
  SimEndpoint& endpoint = add_endpoint(SimState::connecting);
  endpoint.options = clamped(options);
  endpoint.peer_name = node_of(address);
  endpoint.peer.node = network_.node_named(endpoint.peer_name);
  trace(endpoint, "connect");
  const EndpointId id = endpoint.id;
  if (endpoint.peer.node == 0) {
    // Nobody of that name: what a port without a listener answers.
    network_.schedule(
        2 * this->options().latency, node_, [id, name = std::string(address)](auto& f) {
          f.connect_refused(id, Status::with_detail(Code::unavailable, "no node at '" + name + "'"),
                            {});
        });
  } else {
    ConnectRequest request{.from = self(endpoint),
                           .from_name = name_,
                           .address = std::string(address),
                           .hello = {hello.begin(), hello.end()}};
    network_.transmit(
        {.from = node_,
         .to = endpoint.peer.node,
         .bytes = kHandshakeBytes + hello.size(),
         .waits = {},
         .deliver = [request = std::move(request)](SimFabric& f) { f.connect_requested(request); }},
        &endpoint.order, draw(random(), this->options().stall));
  }
  network_.schedule_at(deadline, node_, [id, name = std::string(address)](SimFabric& f) {
    SimEndpoint* late = f.find(id);
    if (late == nullptr || late->state != SimState::connecting) return;
    f.abandon(late->peer.node, id);
    f.connect_failed(*late, Status::with_detail(Code::deadline, "no answer from '" + name +
                                                                    "' before the deadline"));
  });
  return id;
}

void SimFabric::connect_requested(const ConnectRequest& request) {
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(), [&](const auto& entry) {
    return entry.second == request.address;
  });
  if (listener == listeners_.end()) {
    return refuse(
        request.from,
        Status::with_detail(Code::unavailable, "nobody listens at '" + request.address + "'"), {});
  }
  if (random().chance(options().connect_refused)) {
    return refuse(request.from, Status(Code::unavailable, "refused (simulated)"), {});
  }
  SimEndpoint& endpoint = add_endpoint(SimState::requested);
  endpoint.peer = request.from;
  endpoint.peer_name = request.from_name;
  endpoint.options = clamped({.receive_depth = capabilities_.receive_depth_max});  // until accept
  trace(endpoint, "is asked for");
  push_event({.kind = EventKind::connect_request,
              .endpoint = endpoint.id,
              .listener = listener->first,
              .peer_address = request.from_name,
              .hello = request.hello});
}

Status SimFabric::accept(EndpointId id, const EndpointOptions& options,
                         std::span<const std::byte> hello) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::requested) {
    return Status(Code::failed_precondition,
                  "nothing to accept: the peer gave up, or was answered");
  }
  if (hello.size() > kHelloBytesMax) return hello_too_large();
  const EndpointOptions chosen = clamped(options);
  if (endpoint->receives_held > chosen.receive_depth) {
    return Status(Code::resource_exhausted, "more receives were posted than receive_depth takes");
  }
  endpoint->options = chosen;
  endpoint->state = SimState::accepted;
  trace(*endpoint, "accept");
  network_.transmit({.from = node_,
                     .to = endpoint->peer.node,
                     .bytes = kHandshakeBytes + hello.size(),
                     .waits = {},
                     .deliver = [to = endpoint->peer.endpoint, from = self(*endpoint),
                                 answer = std::vector<std::byte>(hello.begin(), hello.end())](
                                    SimFabric& f) { f.connect_accepted(to, from, answer); }},
                    &endpoint->order, draw(random(), this->options().stall));
  network_.schedule(this->options().handshake_timeout, node_, [id](SimFabric& f) {
    SimEndpoint* late = f.find(id);
    if (late == nullptr || late->state != SimState::accepted) return;
    f.abandon(late->peer.node, id);
    f.connect_failed(*late, Status(Code::deadline, "the peer did not confirm the connection"));
  });
  return {};
}

void SimFabric::reject(EndpointId id, std::span<const std::byte> hello) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::requested) return;
  refuse(endpoint->peer, Status(Code::unavailable, "the peer rejected the connection"), hello);
  flush(*endpoint);
  endpoints_.erase(id);
}

void SimFabric::refuse(const SimPeer& peer, const Status& why, std::span<const std::byte> hello) {
  hello = hello.first(std::min(hello.size(), kHelloBytesMax));
  network_.transmit({.from = node_,
                     .to = peer.node,
                     .bytes = kHandshakeBytes + hello.size(),
                     .waits = {},
                     .deliver = [to = peer.endpoint, why,
                                 answer = std::vector<std::byte>(hello.begin(), hello.end())](
                                    SimFabric& f) { f.connect_refused(to, why, answer); }});
}

void SimFabric::connect_refused(EndpointId id, const Status& why,
                                const std::vector<std::byte>& hello) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::connecting) return;
  connect_failed(*endpoint, why, hello);
}

void SimFabric::connect_accepted(EndpointId id, const SimPeer& peer,
                                 const std::vector<std::byte>& hello) {
  SimEndpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != SimState::connecting) {
    return abandon(peer.node, id);
  }
  endpoint->peer = peer;
  endpoint->state = SimState::ready;
  trace(*endpoint, "connected");
  push_event({.kind = EventKind::connected,
              .endpoint = id,
              .peer_address = endpoint->peer_name,
              .hello = hello});
  network_.transmit({.from = node_,
                     .to = peer.node,
                     .bytes = kHandshakeBytes,
                     .waits = {},
                     .deliver = [to = peer.endpoint, from = self(*endpoint)](
                                    SimFabric& f) { f.connect_confirmed(to, from); }},
                    &endpoint->order);
}

void SimFabric::connect_confirmed(EndpointId id, const SimPeer& peer) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr || endpoint->state != SimState::accepted) return;
  endpoint->state = SimState::ready;
  trace(*endpoint, "connected");
  push_event({.kind = EventKind::connected, .endpoint = id, .peer_address = endpoint->peer_name});
}

/// Tells the other half, whichever endpoint it is, that `endpoint` of this node is no more.
void SimFabric::abandon(std::uint64_t node, EndpointId endpoint) {
  network_.transmit(
      {.from = node_,
       .to = node,
       .bytes = kHandshakeBytes,
       .waits = {},
       .deliver = [from = SimPeer{node_, endpoint}](SimFabric& f) { f.connect_abandoned(from); }});
}

void SimFabric::connect_abandoned(const SimPeer& peer) {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->peer != peer) continue;
    if (endpoint->state == SimState::requested || endpoint->state == SimState::accepted) {
      return connect_failed(*endpoint,
                            Status(Code::unavailable, "the peer gave up while connecting"));
    }
    if (endpoint->state == SimState::ready) return peer_failed(id, peer);
  }
}

void SimFabric::connect_failed(SimEndpoint& endpoint, Status why, std::vector<std::byte> hello) {
  trace(endpoint, "connect failed");
  end(endpoint, {.kind = EventKind::connect_failed,
                 .endpoint = endpoint.id,
                 .hello = std::move(hello),
                 .status = std::move(why)});
}

}  // namespace pawl::fabric
