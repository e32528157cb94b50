// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "memory/extent.h"
#include "memory/lease.h"
#include "pawl/buffer.h"
#include "pawl/region.h"

namespace pawl {

/// The memory layer's way into Buffers and Blocks.
struct BufferAccess {
  static Buffer buffer(detail::ExtentRef extent, std::byte* data, std::size_t size) {
    return Buffer(std::move(extent), data, size);
  }
  /// `use`: of a region's bytes, RegionCore::use.
  static Block block(detail::ExtentRef extent, std::byte* data, std::size_t size,
                     std::uint64_t use) {
    return Block(std::move(extent), data, size, use);
  }
  static std::uint64_t use(const Block& block) { return block.use_; }
  /// `stale` for a Block of a region whose bytes are in another use since it was made.
  static Status present(const Block& block);
  /// True for memory of this pool and of regions made with it, and for empty handles.
  static bool of_pool(const Block& block, const detail::PoolCore& pool) {
    return !block.extent_ || &block.extent_->core() == &pool;
  }
  static bool of_pool(const Buffer& buffer, const detail::PoolCore& pool) {
    return !buffer.extent_ || &buffer.extent_->core() == &pool;
  }
  static const detail::ExtentRef& reference(const Block& block) { return block.extent_; }
  static const detail::ExtentRef& reference(const Buffer& buffer) { return buffer.extent_; }
  static detail::ExtentRef take(Buffer&& buffer) { return std::move(buffer.extent_); }
  /// Where a handle over this device finds the memory; 0 if it is not registered there.
  static MemoryHandle handle(const Buffer& buffer, std::size_t device) {
    return buffer.extent_ ? buffer.extent_->handle(device) : MemoryHandle{};
  }
  static MemoryHandle handle(const Block& block, std::size_t device) {
    return block.extent_ ? block.extent_->handle(device) : MemoryHandle{};
  }
};

struct RegionAccess {
  static bool of_pool(const Region& region, const detail::PoolCore& pool) {
    return !region.extent_ || &region.extent_->core() == &pool;
  }
  static const detail::ExtentRef& reference(const Region& region) { return region.extent_; }
  static Region region(detail::ExtentRef extent) { return Region(std::move(extent)); }
};

}  // namespace pawl
