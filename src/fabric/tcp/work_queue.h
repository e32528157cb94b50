// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "fabric/tcp/limits.h"
#include "fabric/work.h"
#include "pawl/memory_kind.h"

/// The queues of an endpoint. Slots are addressed by sequence numbers that only grow; each queue
/// is a row of such numbers, between which its work requests are in one phase of their life.
namespace pawl::fabric::tcp {

template <class T>
class SlotRing {
 public:
  /// Room for at least `count` slots; what lies in [first, last) is kept.
  void reserve(std::uint32_t count, std::uint64_t first, std::uint64_t last) {
    const std::uint64_t size = std::bit_ceil(std::uint64_t{count < 1 ? 1 : count});
    if (slots_ != nullptr && size <= mask_ + 1) return;
    auto slots = std::make_unique<T[]>(size);
    for (std::uint64_t at = first; at != last; ++at)
      slots[at & (size - 1)] = std::move((*this)[at]);
    slots_ = std::move(slots);
    mask_ = size - 1;
  }
  [[nodiscard]] T& operator[](std::uint64_t sequence) { return slots_[sequence & mask_]; }

 private:
  std::unique_ptr<T[]> slots_;
  std::uint64_t mask_ = 0;
};

/// Local bytes as the poller touches them: directly, or through `kind` if that is set.
struct Segment {
  std::byte* address = nullptr;
  std::uint32_t length = 0;
  MemoryKind* kind = nullptr;
};

/// The local side of one work request, and how far it has been filled.
struct Scatter {
  std::array<Segment, kSegmentsMax> segments{};
  std::uint8_t count = 0;
  std::uint8_t at = 0;       // the segment that the next byte goes to
  std::uint32_t offset = 0;  // in that segment
  std::uint64_t length = 0;  // of all segments

  /// Stores bytes at the position and moves it; they fit.
  void fill(const std::byte* from, std::size_t bytes);
  /// Moves the position over bytes that were received in place.
  void skip(std::size_t bytes);
};

struct SendSlot {
  std::uint64_t id = 0;
  Opcode op = Opcode::send;
  bool signalled = true;
  bool fence = false;
  bool covered = true;       // the local segments lie in their registrations
  bool inlined = false;      // the bytes are in `inline_bytes`
  bool transmitted = false;  // the socket took the whole frame
  bool done = false;
  CompletionStatus status = CompletionStatus::success;
  std::int32_t native = 0;
  Scatter local;         // send: gathered from; read: scattered to
  RemoteAddress remote;  // read
  std::uint64_t read_id = 0;
  std::uint32_t landing_left = 0;  // read: bytes that the peer has not announced in pieces
  WindowId window;                 // bind, invalidate
  std::uint64_t window_key = 0;
  LocalSegment bind_target;
  std::array<std::byte, kInlineBytesMax> inline_bytes;
};

/// Sends, READs, binds and invalidates, in the order of their posts. They execute, transmit and
/// complete in that order, as a queue pair's do:
///
///   head <= emit <= settled <= transmit <= execute <= tail
///
/// [head, emit) may be returned by poll; [emit, settled) is done, but unsignalled and waits for the
/// next signalled one; [settled, transmit) waits for the peer; [transmit, execute) has been
/// executed and waits for the socket; [execute, tail) waits for its turn.
/// (A request that fails before it was transmitted ends the endpoint, and everything is flushed.)
struct SendQueue {
  SlotRing<SendSlot> ring;
  std::uint32_t depth = 0;
  std::uint64_t head = 0, emit = 0, settled = 0, transmit = 0, execute = 0, tail = 0;
  std::uint64_t unacknowledged = 0;  ///< the first send that may not be acknowledged yet

  /// Moves `settled` and `emit` over what is done. Silent requests that fill half of the queue are
  /// signalled here.
  void settle() {
    while (settled != execute && ring[settled].done) {
      const bool signalled = ring[settled].signalled;
      ++settled;
      if (signalled || settled - emit > depth / 2) emit = settled;
    }
  }
};

struct ReceiveSlot {
  std::uint64_t id = 0;
  bool covered = true;
  CompletionStatus status = CompletionStatus::success;
  std::uint32_t bytes = 0;
  Scatter local;
};

/// [head, filled) may be returned by poll; [filled, tail) waits for messages, in that order.
struct ReceiveQueue {
  SlotRing<ReceiveSlot> ring;
  std::uint32_t depth = 0;
  std::uint64_t head = 0, filled = 0, tail = 0;
};

/// A READ that the peer wants served. They are served in the order of their arrival.
struct ServedRead {
  std::uint64_t id = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t sent = 0;  // bytes in pieces that the socket took whole
};

struct ReadService {
  SlotRing<ServedRead> ring;
  std::uint32_t depth = 0;
  std::uint64_t head = 0, tail = 0;
};

/// The READs of this end that the peer has to answer, oldest first: sequence numbers of the send
/// queue. Read ids count from 0, so the answer to the oldest carries `head`.
struct ReadsOut {
  SlotRing<std::uint64_t> ring;
  std::uint32_t depth = 0;  ///< the minimum of both ends
  std::uint64_t head = 0, tail = 0;
  std::uint64_t bytes = 0;  ///< still to land
};

}  // namespace pawl::fabric::tcp
