// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "memory/landing.h"
#include "rpc/client_call.h"

namespace pawl::rpc {

/// Where the segments of an answer land. A segment that has bytes to land gets landing memory;
/// `parts` has the others' entries already.
struct ClientCall::Landings : detail::InFrames {
  struct Segment {
    SegmentDescriptor descriptor;
    std::size_t offset = 0;     ///< of the wanted range in the segment
    std::size_t bytes = 0;      ///< wanted; 0: nothing lands
    std::size_t inline_at = 0;  ///< where its bytes begin in `inline_bytes`
    memory::Landing landing;
  };

  detail::FrameVector<Segment> segments;
  Payload inline_bytes;
  Parts parts;
};

}  // namespace pawl::rpc
