// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/signal_order.h"
#include "fabric/sim/network.h"

namespace pawl::fabric {

/// A request of the send queue: send, read, bind or invalidate.
struct SimRequest {
  std::uint64_t id = 0;
  Opcode op = Opcode::send;
  bool fence = false;
  bool done = false;
  bool names_window = false;  // a bind or invalidate that may still be executed
  std::vector<LocalSegment> local;
  std::vector<std::byte> inline_bytes;  // a copy, made by post
  std::uint64_t bytes = 0;
  RemoteAddress remote;
  WindowId window;
  std::uint64_t window_key = 0;  // what this bind opens
  LocalSegment bind_target;
};

struct SimReceive {
  std::uint64_t id = 0;
  std::vector<LocalSegment> local;
  std::uint64_t bytes = 0;
};

/// A READ at its owner, while it is served.
struct SimServing {
  EndpointId endpoint;  // of the owner
  SimPeer reader;
  std::uint64_t ticket = 0;  // of the reader's request
  RemoteAddress from;
  std::uint64_t bytes = 0;
  std::uint64_t served = 0;
  TimePoint order{0};  // packets of one answer arrive in order
};

/// What the peer sent and no receive has taken yet: a message, or a READ behind it.
struct SimInbound {
  bool is_read = false;
  std::uint64_t ticket = 0;  // of the sender's request
  std::vector<std::byte> message;
  RemoteAddress from;
  std::uint64_t bytes = 0;
};

enum class SimState : std::uint8_t {
  connecting,  // connect was called; the answer is due
  requested,   // a connect_request waits for accept or reject
  accepted,    // the peer's confirmation is due
  ready,
  error,
};

/// One end of a connected pair of queues. A struct of SimFabric's.
struct SimEndpoint {
  EndpointId id;
  SimState state = SimState::connecting;
  SimPeer peer;
  std::string peer_name;
  EndpointOptions options;
  bool connected_taken = false;  // poll_event returned `connected`
  bool closing = false;          // close was called
  bool flushed = false;
  TimePoint order{0};  // of messages and requests to the peer

  // Requests in post order; those before `next_start` have been started.
  std::deque<SimRequest> requests;
  std::uint64_t first_ticket = 0;
  std::size_t next_start = 0;
  SignalOrder signals;
  bool pump_scheduled = false;
  bool window_busy = false;  // a bind or invalidate is being done
  std::uint32_t reads_running = 0;
  std::uint32_t remote_running = 0;  // sends and READs without an answer
  std::uint32_t sends_held = 0;      // accepted and not returned by poll
  std::uint32_t receives_held = 0;

  std::deque<SimReceive> receives;
  std::deque<SimInbound> inbound;
  std::uint64_t inbound_taken = 0;
  bool not_ready = false;  // the head of inbound found no receive

  bool suspected = false;  // the retry timer runs
  std::uint64_t suspicion = 0;

  SimRequest* request(std::uint64_t ticket) {
    const std::uint64_t at = ticket - first_ticket;
    return ticket < first_ticket || at >= requests.size() ? nullptr : &requests[at];
  }
  void drop_done() {
    while (!requests.empty() && next_start > 0 && requests.front().done) {
      requests.pop_front();
      ++first_ticket;
      --next_start;
    }
  }
};

}  // namespace pawl::fabric
