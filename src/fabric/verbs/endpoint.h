// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/socket/address.h"
#include "fabric/verbs/bootstrap.h"
#include "fabric/verbs/limits.h"
#include "fabric/verbs/queue_pair.h"
#include "fabric/verbs/work_ring.h"
#include "pawl/time.h"

namespace pawl::fabric::verbs {

enum class State : std::uint8_t {
  resolving,   ///< connecting end: the name is being looked up
  connecting,  ///< connecting end: the socket is being connected
  greeting,    ///< connecting end: waits for the answer
  incoming,    ///< accepting end: waits for the peer's request
  asked,       ///< accepting end: the application has been asked
  accepting,   ///< accepting end: has answered, waits for the peer's last word
  ready,       ///< work flows, once the application took `connected`
  error,       ///< the queue pair is in ERR, or there is none
};

/// The connecting end's list of addresses and how far it is through it.
struct ConnectAttempt {
  std::string text;  ///< the address as it was given
  std::vector<SocketAddress> addresses;
  std::size_t next = 0;  ///< the address that is tried next
  TimePoint deadline;    ///< of all
  std::string last_error;
  std::vector<std::byte> hello;
};

/// A receive that waits for `accept`, which says how large the queue is.
struct EarlyReceive {
  std::array<ibv_sge, kSegmentsMax> segments;
  int count = 0;
};

/// One queue pair with its bootstrap connection, and how far it is in its life. The fabric's files
/// are its functions. Poller only.
struct Endpoint {
  EndpointId id;
  State state = State::incoming;
  EndpointOptions options;
  std::string peer;
  ListenerId listener;  ///< accepting end
  TimePoint deadline = TimePoint::never();

  Bootstrap bootstrap;
  std::unique_ptr<ConnectAttempt> attempt;  ///< connecting end, until connected
  std::vector<std::byte> hello;             ///< accepting end: the peer's
  GidEntry source;                          ///< the address of ours
  Greeting own;
  Greeting theirs;

  QueuePair qp;
  ibv_cq* cq = nullptr;  ///< with entries reserved, until the queue pair is destroyed
  WorkRing sends, receives;
  std::uint32_t unsignalled = 0;    ///< at the end of `sends`
  std::vector<EarlyReceive> early;  ///< of `receives`, not given to the device yet

  bool confirmed = false;        ///< the connecting end's last word was said, or heard
  bool announced = false;        ///< the application took `connected`
  std::vector<Completion> held;  ///< successes from before that
  std::unique_ptr<Event> held_failure;

  bool hung_up = false;  ///< the peer's end is over; `deadline` is the end of the grace
  std::string why_hung_up;
  bool ending = false;      ///< in the list of those that have something to wait for
  bool closing = false;     ///< the application knows it no more
  bool abandoned = false;   ///< by `close`: of its events only the last one is of interest
  bool gone = false;        ///< the queue pair is destroyed, or there was none
  bool drain_over = false;  ///< it had its time to flush
  bool undying = false;     ///< its destruction failed and was reported
  bool silent = false;      ///< ends without an event
  std::uint64_t completions_until = 0;  ///< gone: the count of all completions at that moment
  Event last;                           ///< closing
};

/// wr_id: which endpoint, of which of its queues, the how manieth. The generation keeps late
/// completions of a slot's former endpoint apart.
enum class WorkQueue : std::uint8_t { send = 0, receive = 1 };

struct WorkName {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< its lower bits
  WorkQueue queue = WorkQueue::send;
  std::uint32_t sequence = 0;  ///< its lower bits

  static constexpr std::uint32_t low(std::uint64_t value, int bits) {
    return static_cast<std::uint32_t>(value & ((std::uint64_t{1} << bits) - 1));
  }
  static constexpr WorkName of(EndpointId id, WorkQueue queue, std::uint64_t sequence) {
    return {.slot = static_cast<std::uint32_t>(id.value),
            .generation = low(id.value >> 32, kGenerationBits),
            .queue = queue,
            .sequence = low(sequence, kSequenceBits)};
  }
  [[nodiscard]] constexpr std::uint64_t packed() const {
    std::uint64_t out = generation;
    out = out << kSlotBits | slot;
    out = out << 1 | static_cast<std::uint64_t>(queue);
    return out << kSequenceBits | sequence;
  }
  static constexpr WorkName unpack(std::uint64_t wr_id) {
    WorkName out;
    out.sequence = low(wr_id, kSequenceBits);
    wr_id >>= kSequenceBits;
    out.queue = static_cast<WorkQueue>(wr_id & 1);
    out.slot = low(wr_id >> 1, kSlotBits);
    out.generation = low(wr_id >> (1 + kSlotBits), kGenerationBits);
    return out;
  }
};

}  // namespace pawl::fabric::verbs
