// SPDX-License-Identifier: Apache-2.0
// The side that receives messages and is read from. Messages and READ requests of one endpoint are
// taken in the order of their arrival; a message without a receive holds back all behind it.
#include <algorithm>
#include <utility>

#include "fabric/sim/fabric.h"

namespace pawl::fabric {

void SimFabric::inbound_arrived(EndpointId id, const SimPeer& peer, SimInbound inbound) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr || endpoint->state == SimState::error) {
    return network_.suspect(peer);  // nobody answers: the sender retries until it gives up
  }
  endpoint->inbound.push_back(std::move(inbound));
  take_inbound(id);
}

void SimFabric::take_inbound(EndpointId id) {
  SimEndpoint* endpoint = find(id);
  while (endpoint != nullptr && endpoint->state == SimState::ready && endpoint->connected_taken &&
         !endpoint->inbound.empty()) {
    if (endpoint->inbound.front().is_read) {
      serve_later(*endpoint);
    } else if (!take_message(*endpoint)) {
      return;
    }
    endpoint = find(id);
  }
}

/// Puts the first message into the first receive; false if there is none.
bool SimFabric::take_message(SimEndpoint& endpoint) {
  if (endpoint.receives.empty()) {
    message_waits(endpoint);
    return false;
  }
  endpoint.not_ready = false;
  const SimInbound inbound = std::move(endpoint.inbound.front());
  endpoint.inbound.pop_front();
  ++endpoint.inbound_taken;
  const SimReceive receive = std::move(endpoint.receives.front());
  endpoint.receives.pop_front();
  const bool fits =
      inbound.message.size() <= receive.bytes && memory_.scatter(receive.local, 0, inbound.message);
  Completion completion{.id = receive.id, .endpoint = endpoint.id, .op = Opcode::receive};
  completion.status = fits ? CompletionStatus::success : CompletionStatus::local_error;
  completion.bytes = fits ? static_cast<std::uint32_t>(inbound.message.size()) : 0;
  push_completion(endpoint, completion);
  answer(endpoint, inbound.ticket,
         fits ? CompletionStatus::success : CompletionStatus::remote_operation);
  if (!fits) {
    fail(endpoint, Status(Code::internal, "a message did not fit the receive that it met"), true,
         false);
  }
  return true;
}

void SimFabric::message_waits(SimEndpoint& endpoint) {
  if (endpoint.not_ready) return;
  endpoint.not_ready = true;
  trace(endpoint, "has no receive for a message");
  network_.schedule(options().receiver_not_ready_timeout, node_,
                    [id = endpoint.id, waiting = endpoint.inbound_taken](SimFabric& f) {
                      SimEndpoint* e = f.find(id);
                      if (e == nullptr || e->state != SimState::ready || !e->not_ready) return;
                      if (e->inbound_taken != waiting) return;
                      f.answer(*e, e->inbound.front().ticket, CompletionStatus::receiver_not_ready);
                    });
}

/// Sends the fate of a message back to its sender.
void SimFabric::answer(SimEndpoint& endpoint, std::uint64_t ticket, CompletionStatus status,
                       TimePoint* order) {
  network_.transmit({.from = node_,
                     .to = endpoint.peer.node,
                     .bytes = SimPacket::kHeaderBytes,
                     .waits = endpoint.peer,
                     .deliver = [to = endpoint.peer.endpoint, from = self(endpoint), ticket,
                                 status](SimFabric& f) { f.answered(to, from, ticket, status); }},
                    order);
}

// --- READs -----------------------------------------------------------------------------------

void SimFabric::serve_later(SimEndpoint& endpoint) {
  const SimInbound& inbound = endpoint.inbound.front();
  auto serving = std::make_shared<SimServing>();
  serving->endpoint = endpoint.id;
  serving->reader = endpoint.peer;
  serving->ticket = inbound.ticket;
  serving->from = inbound.from;
  serving->bytes = inbound.bytes;
  endpoint.inbound.pop_front();
  ++endpoint.inbound_taken;
  network_.schedule(draw(random(), options().read_delay), node_,
                    [serving](SimFabric& f) { f.serve_packet(serving); });
}

/// Samples the next packet of an answer now, and goes on when the wire is free again.
void SimFabric::serve_packet(const std::shared_ptr<SimServing>& serving) {
  SimServing& s = *serving;
  SimEndpoint* endpoint = find(s.endpoint, s.reader);
  if (endpoint == nullptr || endpoint->state != SimState::ready) return network_.suspect(s.reader);
  const SimMemory::Reader reader{.group = endpoint->options.group, .endpoint = s.endpoint};
  if (!memory_.readable(reader, s.from, s.bytes)) return refuse_read(*endpoint, s);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(options().packet_bytes, s.bytes - s.served));
  const RemoteAddress from{.key = s.from.key, .address = s.from.address + s.served};
  if (!memory_.read(reader, from, bytes)) return refuse_read(*endpoint, s);
  const std::uint64_t offset = s.served;
  s.served += bytes.size();
  const bool last = s.served == s.bytes;
  const TimePoint free =
      network_.transmit({.from = node_,
                         .to = s.reader.node,
                         .bytes = SimPacket::kHeaderBytes + bytes.size(),
                         .waits = s.reader,
                         .deliver =
                             [to = s.reader.endpoint, owner = self(*endpoint), ticket = s.ticket,
                              offset, last, bytes = std::move(bytes)](SimFabric& f) {
                               f.read_landed(to, owner, ticket, offset, bytes);
                               if (last) f.read_complete(to, owner, ticket, false);
                             }},
                        &s.order);
  if (last) return trace(*endpoint, "served a read of", s.bytes);
  network_.schedule_at(free + draw(random(), options().packet_stall), node_,
                       [serving](SimFabric& f) { f.serve_packet(serving); });
}

/// The key opens nothing (any more). Both ends go to ERR; the refusal tells the reader.
void SimFabric::refuse_read(SimEndpoint& endpoint, SimServing& serving) {
  trace(endpoint, "refuses a read of", serving.bytes);
  const bool inexact = serving.served > 0 && SimMemory::is_window_key(serving.from.key) &&
                       random().chance(options().inexact_revocation);
  if (inexact) {
    network_.transmit(
        {.from = node_,
         .to = serving.reader.node,
         .bytes = SimPacket::kHeaderBytes,
         .waits = serving.reader,
         .deliver = [to = serving.reader.endpoint, owner = self(endpoint), ticket = serving.ticket](
                        SimFabric& f) { f.read_complete(to, owner, ticket, true); }},
        &serving.order);
    endpoint.order = std::max(endpoint.order, serving.order);
  } else {
    answer(endpoint, serving.ticket, CompletionStatus::remote_access, &serving.order);
  }
  fail(endpoint, Status(Code::unavailable, "the device took the endpoint to ERR"), true, inexact);
}

void SimFabric::peer_failed(EndpointId id, const SimPeer& peer) {
  SimEndpoint* endpoint = find(id, peer);
  if (endpoint == nullptr) return;
  if (endpoint->state == SimState::accepted) {
    return connect_failed(*endpoint, Status(Code::unavailable, "the peer closed while connecting"));
  }
  if (endpoint->state != SimState::ready) return;
  fail(*endpoint, Status(Code::unavailable, "the peer's end of the connection failed"), true,
       false);
}

}  // namespace pawl::fabric
