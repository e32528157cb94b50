// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pawl::memory {

/// Which use of a region's bytes a Block is of. One counter for the region; each new use of some
/// blocks advances it and is noted for them. A Block carries the counter at which it was made, and
/// is of the present use while none of its blocks has a later note.
///
/// Copying while another thread may begin a new use is a sequence lock: `same`, copy,
/// `same_after_copy`. Who begins a use may write when `advance` returned.
class BlockUses {
 public:
  explicit BlockUses(std::size_t blocks)
      : begun_(std::make_unique<std::atomic<std::uint64_t>[]>(blocks)) {}

  /// What a Block that is made now carries. Any thread; the caller sees to it that no new use of
  /// its blocks begins meanwhile.
  [[nodiscard]] std::uint64_t now() const { return now_.load(std::memory_order_relaxed); }

  /// A new use of blocks [first, last]. Whoever calls is alone (the region's mutex), and fenced: no
  /// store that follows passes before the notes, or before a change of a lease's word that was
  /// seen.
  void advance(std::size_t first, std::size_t last);

  /// No use of blocks [first, last] began after `use`. Any thread.
  [[nodiscard]] bool same(std::size_t first, std::size_t last, std::uint64_t use) const {
    for (std::size_t i = first; i <= last; ++i) {
      if (begun_[i].load(std::memory_order_acquire) > use) return false;
    }
    return true;
  }
  /// The same after a copy: true if all that was copied is of that use.
  [[nodiscard]] bool same_after_copy(std::size_t first, std::size_t last, std::uint64_t use) const;

 private:
  std::atomic<std::uint64_t> now_{0};
  std::unique_ptr<std::atomic<std::uint64_t>[]> begun_;  // of each block: its last use
};

}  // namespace pawl::memory
