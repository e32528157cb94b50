// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rpc/wire.h"

namespace pawl::rpc {

/// Encoded session frames that wait for credit, in order. Bounded in bytes, whatever the peer does:
/// memory of frames that went out is used again before it is more than that of those that wait.
class FrameQueue {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20;  ///< of what waits

  /// Copies the frame behind the others. False: kBytesMax wait.
  [[nodiscard]] bool push(const FrameHeader& header, std::span<const std::byte> body);
  /// Moves as many whole frames from the front as fit into `out`; returns their bytes, and counts
  /// them in `frames`.
  std::size_t take(std::span<std::byte> out, std::uint16_t& frames);
  void clear();

  [[nodiscard]] bool empty() const { return frames_ == 0; }
  /// Bytes of memory that it holds.
  [[nodiscard]] std::size_t memory() const { return bytes_.capacity(); }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // of what waits
  std::uint32_t frames_ = 0;
};

}  // namespace pawl::rpc
