// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/tcp/limits.h"
#include "fabric/tcp/memory_table.h"
#include "fabric/tcp/tcp_fabric.h"
#include "fabric/tcp/wire.h"
#include "pawl/detail/frame_vector.h"

namespace pawl::fabric::tcp {

/// A frame on its way out. It is made again for each sendmsg until the socket took its first byte;
/// from then on it is the endpoint's current frame and its head is fixed.
struct OutFrame {
  FrameType type = FrameType::ack;
  std::uint64_t sequence = 0;      // message, read_request: of the send queue
  std::uint64_t acknowledged = 0;  // message, ack: what its head says
  std::array<std::byte, kReadRequestBytes> head;
  std::array<std::byte, kTrailerBytes> trailer;
  std::uint32_t head_bytes = kFrameBytes;
  std::uint32_t body_bytes = 0;
  std::uint32_t trailer_bytes = 0;
  std::uint32_t sent = 0;

  [[nodiscard]] std::uint32_t bytes() const { return head_bytes + body_bytes + trailer_bytes; }
};

/// What one sendmsg of one endpoint gathers.
struct Plan {
  std::array<OutFrame, kFlushFramesMax> frames;
  std::array<iovec, kFlushVectorsMax> vectors;
  std::size_t frame_count = 0;
  std::size_t vector_count = 0;
  std::size_t bytes = 0;
  std::size_t staged = 0;  // bytes of the staging buffer in use
  bool lent = false;       // holds memory that peers READ
  bool cut = false;        // the last frame is not whole: nothing may follow it

  void clear() {
    frame_count = vector_count = bytes = staged = 0;
    lent = cut = false;
  }
  [[nodiscard]] bool room() const {
    return !cut && frame_count < frames.size() && vector_count + kSegmentsMax + 2 <= vectors.size();
  }
  void add(const std::byte* from, std::size_t count) {
    // sendmsg does not write there.
    vectors[vector_count++] = {const_cast<std::byte*>(from), count};
    bytes += count;
  }
};

/// What the endpoints of one fabric share. Poller only, but `memory`.
struct Core {
  explicit Core(const TcpOptions& given) : options(given) {}

  TcpOptions options;
  MemoryTable memory;
  TimePoint now;  ///< of this turn
  std::uint64_t turn = 0;
  std::uint64_t work_done = 0;                ///< system calls that moved bytes or found something
  detail::FrameDeque<Event> events;           ///< not yet taken
  std::vector<EndpointId> active;             ///< have something to do in the next turn
  detail::FrameDeque<EndpointId> completing;  ///< have completions or their last event to give
  std::vector<EndpointId> timed;              ///< have a deadline
  TimePoint next_deadline = TimePoint::never();
  std::uint64_t work_requests = 0;  ///< accepted and not completed
  std::size_t receive_budget = 0;   ///< bytes left in this turn
  std::unique_ptr<std::byte[]> input = std::make_unique<std::byte[]>(kInputBytes);
  std::unique_ptr<std::byte[]> staging = std::make_unique<std::byte[]>(kStagingBytes);
  Plan plan;
};

}  // namespace pawl::fabric::tcp
