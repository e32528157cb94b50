// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "pawl/node.h"
#include "support/narrow_fabric.h"

namespace pawl::testing {

inline constexpr std::size_t kOneBuffer = std::size_t{64} << 10;  ///< the smallest slab

/// A resource of which there is as little as can be.
struct TightCase {
  const char* name;
  void (*set)(NodeOptions& node, Narrow& device);
  /// Of two callers that each hold their only buffer, neither can serve the other.
  bool into_own = true;
  std::size_t bytes_max = kOneBuffer;  ///< of one bulk call
};

inline void PrintTo(const TightCase& tight, std::ostream* out) { *out << tight.name; }

inline constexpr std::uint32_t kSessionReceives = 16;  ///< besides receive_messages

inline void one_receive(NodeOptions& node, Narrow& device) {
  node.receive_messages = 1;
  device.most.receive_depth_max = kSessionReceives + 1;
}
inline void small_receives(NodeOptions& node, Narrow&) { node.receive_bytes = 1024; }
inline void small_messages(NodeOptions&, Narrow& device) { device.most.message_bytes_max = 1024; }
inline void few_receives(NodeOptions&, Narrow& device) {
  device.most.receive_depth_max = kSessionReceives + 1;
}
inline void one_completion(NodeOptions&, Narrow& device) { device.poll_batch = 1; }
inline void one_handler(NodeOptions& node, Narrow&) { node.handlers_per_turn = 1; }
inline void one_send(NodeOptions&, Narrow& device) { device.most.send_depth_max = 1; }
inline void one_read(NodeOptions&, Narrow& device) { device.most.read_depth_max = 1; }
/// The hello of a data endpoint takes the place of the only READ.
inline void one_send_one_read(NodeOptions& node, Narrow& device) {
  one_send(node, device);
  one_read(node, device);
}
inline void small_reads(NodeOptions&, Narrow& device) { device.most.read_bytes_max = 512; }
inline void one_segment(NodeOptions&, Narrow& device) {
  device.most.send_segments_max = device.most.receive_segments_max = device.most.read_segments_max =
      1;
  device.most.inline_bytes_max = 0;
}
/// Room for one buffer to lend and one to land in.
inline void two_buffers(NodeOptions& node, Narrow&) {
  node.pool.bytes_max = 2 * kOneBuffer;
  node.pool.slab_bytes = kOneBuffer;
  node.pool.landing_reserve_bytes = kOneBuffer;
  node.pool.room_lease_age_min = std::chrono::hours(1);  // nobody's lease makes room for another
}
/// With the default of a quarter to land in.
inline void one_slab(NodeOptions& node, Narrow&) {
  node.pool.bytes_max = node.pool.slab_bytes = kOneBuffer;
  node.pool.room_lease_age_min = std::chrono::hours(1);
}
inline void all_at_once(NodeOptions& node, Narrow& device) {
  for (const auto set : {one_receive, small_receives, small_messages, few_receives, one_completion,
                         one_handler, one_send, one_read, small_reads, one_segment, two_buffers}) {
    set(node, device);
  }
}

inline constexpr std::array kTightCases = {
    TightCase{"ReceivesOfOne", one_receive},
    TightCase{"ReceivesOf1024Bytes", small_receives},
    TightCase{"MessagesOf1024BytesInTheDevice", small_messages},
    TightCase{"AFewReceivesInTheDevice", few_receives},
    TightCase{"PollBatchOfOne", one_completion},
    TightCase{"HandlersOfOneATurn", one_handler},
    TightCase{"SendQueueOfOne", one_send},
    TightCase{"ReadDepthOfOne", one_read},
    TightCase{"SendQueueAndReadDepthOfOne", one_send_one_read},
    TightCase{"ReadsOf512Bytes", small_reads},
    TightCase{"OneSegment", one_segment},
    TightCase{"OneBufferToLendAndOneToLandIn", two_buffers, false},
    TightCase{"PoolOfOneSlab", one_slab, false, kOneBuffer / 4},
    TightCase{"AllOfThatAtOnce", all_at_once, false},
};

}  // namespace pawl::testing
