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
  /// The unit of `block`, `reuse` and of what makes a Block stale; divides the region's size. A
  /// block costs 8 bytes of book-keeping.
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
  /// failed_precondition if a byte belongs to another Region or buffer of this pool;
  /// invalid_argument for a size that is no number of blocks, and for host memory that is not
  /// mapped readable and writable now. Not seen: memory of another pool, what is unmapped or
  /// protected later, a mapped file that is shorter than its mapping, bounds of device memory.
  static Result<Region> create(Pool& pool, std::span<std::byte> memory,
                               std::shared_ptr<void> keep_alive, const RegionOptions& options = {});

  [[nodiscard]] std::size_t block_bytes() const;
  [[nodiscard]] std::size_t blocks() const;
  [[nodiscard]] std::size_t size() const;
  explicit operator bool() const { return static_cast<bool>(extent_); }

  /// Blocks [first, first + count) as one Block of their present content, which can be lent until
  /// `reuse`, or a pull, takes one of them: from then on this Block, its copies and slices that
  /// touch what was taken are refused with `stale`, also after the blocks are readable again: call
  /// `block` again. failed_precondition while a READ lands there; invalid_argument out of range.
  Result<Block> block(std::size_t first, std::size_t count = 1) const;

  /// Ends every lease that touches blocks [first, first + count) and makes every Block of them
  /// stale, then returns them writable: the only supported way to write to a region whose Blocks
  /// were given to anybody. The right to write lasts until the next `block` of these blocks.
  /// failed_precondition while a READ lands there. unavailable while a peer that was lent them
  /// under `hold_until_ack` has not acknowledged the end of its call: the leases are ended and the
  /// Blocks stale all the same, but the bytes stay as they are; call again later.
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
