// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "memory/lease.h"
#include "memory/piece.h"
#include "memory/small_mutex.h"
#include "pawl/memory_kind.h"

namespace pawl::detail {
class PoolCore;
}

namespace pawl::memory {

/// All leases of a node, with their generation words in one piece of registered memory. Slots and
/// words live as long as the table, which lives as long as the node's memory. Any thread.
class LeaseTable {
 public:
  static constexpr std::size_t kSegmentsMax = 1024;  ///< of one lease
  static constexpr std::uint32_t kLeasesMax = (1u << 18) - 2;

  /// `seed`: 0 = the first generations are unpredictable; else they repeat by the seed.
  LeaseTable(detail::PoolCore& core, std::uint32_t leases_max, std::uint64_t seed);
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;
  ~LeaseTable();

  /// Lends `segments` (each one whole Block, none empty) under one lease. `settles_later`: the
  /// guard needs `settle`. The handle may be of a lease that a withdrawal has already ended.
  /// invalid_argument for no segments, an empty Block, or verify_read over memory that is not host
  /// memory; too_large above kSegmentsMax; failed_precondition if a region is closed, or a range
  /// is landing or was not given up by its writer (Region::block); resource_exhausted when
  /// leases_max slots are in use or lending would take the landing reserve.
  Result<LeaseHandle> lend(std::span<const Block> segments, Guard guard, bool settles_later,
                           LeaseListener* listener, TimePoint now);

  /// Leases that are LENT. Walks all slots: for stats.
  [[nodiscard]] std::uint64_t live() const;
  [[nodiscard]] std::uint32_t leases_max() const { return leases_max_; }

  /// The generation words as registered memory, for `expose`; what the reader of verify_read READs.
  [[nodiscard]] std::span<const std::byte> words() const { return words_; }
  [[nodiscard]] MemoryHandle words_handle(std::size_t device) const {
    return piece_->handle(device);
  }
  [[nodiscard]] const std::byte* word_address(std::uint32_t slot) const {
    return words_.data() + std::size_t{slot} * sizeof(GenerationWord);
  }

  /// Ends up to `count` of the oldest leases whose end gives memory back to the pool: of guards
  /// that settle at once, lent before `before`, over pool memory that only leases hold. Returns how
  /// many it ended. No lock held.
  std::size_t end_oldest(std::size_t count, TimePoint before);

  /// The pool is gone: lends no more. True if no slot is in use; else PoolCore::part_is_over is
  /// called when the last one came back.
  [[nodiscard]] bool close();

  [[nodiscard]] detail::PoolCore& core() const { return core_; }

 private:
  friend class Lease;
  struct Candidate {
    std::int64_t lent_at;
    std::uint32_t slot;
    std::uint64_t generation;
  };

  Status check(std::span<const Block> segments, Guard guard) const;
  Lease* take_slot();
  Lease* fresh_slot();
  void recycle(Lease& lease);
  [[nodiscard]] GenerationWord& word(std::uint32_t slot) const {
    return reinterpret_cast<GenerationWord*>(words_.data())[slot];
  }
  bool next_candidate(TimePoint before, Candidate& out);
  void find_candidates(TimePoint before);
  bool gives_room(const Candidate& candidate, bool end);

  detail::PoolCore& core_;
  const std::uint32_t leases_max_;
  HostMemory host_;
  std::span<std::byte> words_;
  std::optional<Piece> piece_;
  Lease* leases_ = nullptr;                       // leases_max of them, made when first used
  std::atomic<std::int64_t>* lent_at_ = nullptr;  // by slot; INT64_MAX: not for room
  std::size_t side_bytes_ = 0;

  /// The slots that are free (a LIFO) and how many are in use, in one word, see lease_table.cc.
  alignas(64) std::atomic<std::uint64_t> slots_{0};
  alignas(64) std::atomic<std::uint32_t> used_slots_{0};  // slots that were ever used
  SmallMutex fresh_mutex_;
  Random random_;

  SmallMutex room_mutex_;              // guards the following
  std::vector<Candidate> candidates_;  // the oldest last
  TimePoint search_again_;
};

}  // namespace pawl::memory
