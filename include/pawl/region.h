// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "pawl/buffer.h"
#include "pawl/memory_kind.h"
#include "pawl/operation.h"
#include "pawl/pool.h"
#include "pawl/result.h"

namespace pawl {

struct RegionOptions {
  /// The unit of `block` and `reuse`; divides the region's size.
  std::size_t block_bytes = 4096;
  /// nullptr: host memory. Must outlive the region.
  MemoryKind* kind = nullptr;
};

/// Memory of the user's own (a KV cache, a mapped file, device memory), registered as a whole with
/// every device of a pool's node and divided in blocks of one size. A handle: copies refer to the
/// same region; any thread.
class Region {
 public:
  Region() = default;

  /// Registers `memory`. `keep_alive` is dropped after the last lease ended, the last READ into it
  /// completed and the last Region and Block are gone; until then the memory must stay mapped.
  /// There is no way to free it earlier. Blocks the calling thread while devices register.
  static Result<Region> create(Pool& pool, std::span<std::byte> memory,
                               std::shared_ptr<void> keep_alive, const RegionOptions& options = {});

  [[nodiscard]] std::size_t block_bytes() const;
  [[nodiscard]] std::size_t blocks() const;
  [[nodiscard]] std::size_t size() const;
  explicit operator bool() const { return static_cast<bool>(extent_); }

  /// Blocks [first, first + count) as one Block, which can be lent. failed_precondition while a
  /// READ lands there; invalid_argument out of range.
  Result<Block> block(std::size_t first, std::size_t count = 1) const;

  /// Ends every lease that touches blocks [first, first + count), then returns them writable: the
  /// only supported way to write to a region that was lent. failed_precondition while a READ lands
  /// there. The right to write lasts until the next `block` of these blocks.
  Result<std::span<std::byte>> reuse(std::size_t first, std::size_t count = 1) const;

  /// Ends all leases, refuses new ones, and completes when no READ, lease or quarantine holds the
  /// memory any more and it is deregistered: from then on it may be unmapped.
  Operation<Status> close();

 private:
  friend struct RegionAccess;
  explicit Region(detail::ExtentRef extent) : extent_(std::move(extent)) {}

  detail::ExtentRef extent_;
};

}  // namespace pawl
