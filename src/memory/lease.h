// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/list.h"
#include "memory/generation_word.h"
#include "memory/quarantine.h"
#include "memory/registrar.h"
#include "pawl/buffer.h"
#include "pawl/guard.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::detail {
class Extent;
}

namespace pawl::memory {

class Lease;
class LeaseTable;

/// Why a lease ended: for counters, the flight recorder and messages.
enum class LeaseEnd : std::uint8_t {
  released,    ///< the reader is done with it
  timeout,     ///< its deadline, or its call's
  cancelled,   ///< its call was cancelled or dropped
  failed,      ///< its call ended with an error
  withdrawn,   ///< Block::retire, Region::reuse or Region::close
  room,        ///< the pool needed the memory
  connection,  ///< the connection or endpoint ended
};
std::string_view lease_end_name(LeaseEnd reason);

/// The owner's protocol object for leases whose guard needs more than the end of the lease before
/// the memory is free, and who wants to know of ends by others: under `window` a revoke has to
/// start when another thread retires a Block. Calls come on the thread that ended or withdrew,
/// with no lock held, perhaps before `lend` returned, never after the LeaseHandle is gone (its
/// destructor waits for a call that is under way). They may only post to a poller; they must not
/// drop the handle.
class LeaseListener {
 public:
  /// Called once, after the generation changed. Not for the end by the handle's destructor.
  virtual void lease_ended(Lease& lease, LeaseEnd reason) = 0;
  /// Segment i was taken back; the lease goes on with the others.
  virtual void segment_withdrawn(Lease& lease, std::size_t i) = 0;

 protected:
  ~LeaseListener() = default;
};

/// One segment of a lease: bytes of one extent, on a list of that extent.
struct LeaseSegment : ListNode<> {
  enum class Place : std::uint8_t { unlisted, listed, taken };

  Lease* lease = nullptr;
  detail::Extent* extent = nullptr;
  detail::ExtentRef memory;  // dropped by whoever moves `place` to taken
  std::span<const std::byte> bytes;
  std::uint64_t use = 0;                   // of a region's bytes: the Block's
  GenerationWord word;                     // the lease's generation while lent, then one more
  LeaseSegment* next_withdrawn = nullptr;  // with the two below: the withdrawing thread's
  bool memory_due = false;                 // it took the segment and owes the reference's drop
  bool idle_due = false;
  std::atomic<Place> place{Place::unlisted};
  std::uint32_t index = 0;
};

/// True if two ranges have a byte in common.
constexpr bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

/// Bytes lent to one peer for one call and direction (or ticket). Lives in its slot of the table
/// for ever; a `Lease&` means the same lease as long as its handle exists and, where the guard
/// settles later, until `settle`.
///
/// The word is the state: odd = LENT, even = ended. Ownership of the memory: one reference per
/// segment, from `lend` until the end (`settle` for guards that settle later), or until the
/// segment is withdrawn.
class Lease {
 public:
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] Guard guard() const { return guard_; }
  [[nodiscard]] bool settles_later() const { return settles_later_; }
  [[nodiscard]] TimePoint lent_at() const { return lent_at_; }
  [[nodiscard]] std::size_t segment_count() const { return segment_count_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// The lent bytes of segment i and their registration; for descriptors, before the end.
  [[nodiscard]] std::span<const std::byte> segment_bytes(std::size_t i) const;
  [[nodiscard]] MemoryHandle segment_handle(std::size_t i, std::size_t device) const;
  /// The start of the extent that the segment is part of, and its length: what a key opens.
  [[nodiscard]] std::span<std::byte> segment_extent(std::size_t i) const;

  /// LENT with this generation: the check that CONFIRM answers. Any thread.
  [[nodiscard]] bool valid(std::uint64_t generation) const {
    return word_->load(std::memory_order_acquire) == generation && (generation & 1) != 0;
  }
  [[nodiscard]] bool live() const { return valid(generation_); }
  /// Segment i of the lease with this generation was not withdrawn. Says nothing of the lease's own
  /// end: CONFIRM answers `valid(g) && segment_valid(g, i)` for each segment. Any thread.
  [[nodiscard]] bool segment_valid(std::uint64_t generation, std::size_t i) const {
    return segment(i).word.load(std::memory_order_acquire) == generation;
  }

  /// Ends the lease: true for the one caller that did it. Afterwards, for guards that need nothing
  /// else, the lease holds no memory any more; for the others it holds it until `settle`. A lease
  /// that somebody else is just ending may hold its memory for a moment longer. Any thread.
  bool end(LeaseEnd reason);
  /// For guards that prove the end of remote access later: the proof is there, the memory goes
  /// back, and unless the handle still exists the Lease is gone. Once, after the end. Any thread.
  void settle();
  /// The same for one segment after `segment_withdrawn`. Then `settle` covers the others.
  void settle_segment(std::size_t i);
  /// Why it ended; meaningful after the end.
  [[nodiscard]] LeaseEnd end_reason() const { return reason_.load(std::memory_order_relaxed); }

  /// For guards that settle later: shows the memory as held for a reason, in stats and bounds;
  /// settling ends it, `none` too. The holder's thread.
  void set_quarantine(QuarantineReason reason, TimePoint now);

 private:
  friend class LeaseHandle;
  friend class LeaseTable;
  friend class detail::Extent;

  static constexpr std::size_t kInlineSegments = 4;
  static constexpr std::uint32_t kListed = 1;  // phase_
  static constexpr std::uint32_t kEnded = 2;
  static constexpr std::uint32_t kGateClosed = 1u << 31;  // listener_gate_

  Lease(LeaseTable& table, std::uint32_t slot, GenerationWord& word)
      : table_(table), word_(&word), slot_(slot) {}

  LeaseSegment& segment(std::size_t i) {
    return i < kInlineSegments ? inline_[i] : more_[i - kInlineSegments];
  }
  const LeaseSegment& segment(std::size_t i) const {
    return i < kInlineSegments ? inline_[i] : more_[i - kInlineSegments];
  }
  /// Withdrawing a segment ends the whole lease: it is its only one, or the guard's check reads one
  /// word for all.
  [[nodiscard]] bool ends_whole() const {
    return segment_count_ == 1 || guard_ == Guard::verify_read;
  }

  void prepare(std::span<const Block> segments, Guard guard, bool settles_later,
               LeaseListener* listener, TimePoint now);
  Status list_segments();
  Status list_single();
  Status list_many();
  void refused();
  // `ended` is for the winner of end_word only.
  void ended(LeaseEnd reason);
  void finish();
  void give_back(LeaseSegment& segment);
  void give_back_all();
  /// The two halves of Extent::withdraw: with the extent's mutex held (true: the second half is
  /// due), and without.
  bool withdraw(LeaseSegment& segment);
  void withdrawn(LeaseSegment& segment, LeaseEnd reason);

  bool enter_listener();
  void leave_listener() { listener_gate_.fetch_sub(1, std::memory_order_release); }
  void close_listener();

  void hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  bool try_hold();
  void drop_hold();

  LeaseTable& table_;
  GenerationWord* const word_;
  std::uint64_t generation_ = 0;
  const std::uint32_t slot_;
  std::atomic<std::uint32_t> holds_{0};  // handle, finishing, settling, withdrawals under way
  std::atomic<std::uint32_t> next_free_{0};
  std::atomic<std::uint32_t> phase_{0};          // many segments: listed and ended, whoever is last
  std::atomic<std::uint32_t> listener_gate_{0};  // calls under way; closed
  std::atomic<std::uint32_t> remaining_{0};      // segments not withdrawn
  std::uint32_t segment_count_ = 0;
  Guard guard_ = Guard::verify;
  bool settles_later_ = false;
  std::atomic<LeaseEnd> reason_{LeaseEnd::released};
  std::atomic<bool> settled_{false};
  LeaseListener* listener_ = nullptr;
  TimePoint lent_at_;
  std::uint64_t bytes_ = 0;
  Quarantined quarantine_;
  std::array<LeaseSegment, kInlineSegments> inline_;
  std::unique_ptr<LeaseSegment[]> more_;  // kept with the slot
  std::size_t more_capacity_ = 0;
};

/// The handle by which a protocol object holds a lease: ends it (reason `cancelled`) when dropped.
/// The slot goes back when the handle is gone and the memory given back. Move-only. Where the guard
/// settles later, somebody still owes `settle` after the drop.
class LeaseHandle {
 public:
  LeaseHandle() = default;
  LeaseHandle(LeaseHandle&& other) noexcept : lease_(std::exchange(other.lease_, nullptr)) {}
  LeaseHandle& operator=(LeaseHandle&& other) noexcept {
    if (this != &other) {
      reset();
      lease_ = std::exchange(other.lease_, nullptr);
    }
    return *this;
  }
  ~LeaseHandle() { reset(); }
  void reset() noexcept;
  Lease* operator->() const { return lease_; }
  Lease& operator*() const { return *lease_; }
  explicit operator bool() const { return lease_ != nullptr; }

 private:
  friend class LeaseTable;
  explicit LeaseHandle(Lease* lease) : lease_(lease) {}
  Lease* lease_ = nullptr;
};

}  // namespace pawl::memory
