// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pawl/buffer.h"
#include "pawl/guard.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::memory {

class LeaseTable;
class Lease;

/// Why a lease ended: for counters, the flight recorder and messages.
enum class LeaseEnd : std::uint8_t {
  released,    ///< the reader is done with it
  timeout,     ///< its deadline, or its call's
  cancelled,   ///< its call was cancelled or dropped
  failed,      ///< its call ended with an error
  withdrawn,   ///< Block::retire or Region::reuse
  room,        ///< the pool needed the memory
  connection,  ///< the connection or endpoint ended
};

/// The owner's protocol object for leases whose guard needs more than the end of the lease before
/// the memory is free (window, disconnect), and who wants to know of ends by others.
class LeaseListener {
 public:
  /// Called once, after the generation changed, on the thread that ended the lease, with no lock
  /// held. It may only post to a poller.
  virtual void lease_ended(Lease& lease, LeaseEnd reason) = 0;

 protected:
  ~LeaseListener() = default;
};

/// One segment of a lease: bytes of one extent, on that extent's list of leases.
class LeaseSegment;

/// Bytes lent to one peer for one call and direction (or ticket). The slot and its generation word
/// live as long as the table (the process); a Lease* with a generation never means another lease.
///
/// The word is the state: odd = LENT, even = ended. `end` is the one place where it changes from
/// odd to even: one compare-and-swap, then a sequentially consistent fence, before anything that
/// makes the memory writable again. Whoever loses the compare-and-swap sees the word already
/// changed, so its own later writes come after the change as well.
class Lease {
 public:
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] Guard guard() const { return guard_; }
  [[nodiscard]] std::size_t segment_count() const;
  [[nodiscard]] std::uint64_t bytes() const;

  /// LENT with this generation. The check that CONFIRM answers. Any thread.
  [[nodiscard]] bool valid(std::uint64_t generation) const;
  /// Segment i was not withdrawn; meaningful only with `valid` checked before. Any thread.
  [[nodiscard]] bool segment_valid(std::size_t i) const;

  /// Ends the lease: true for the one caller that did it. Afterwards, for guards that need nothing
  /// else, the lease holds no memory any more; for the others it holds it until `settle`. Any
  /// thread. Idempotent.
  bool end(LeaseEnd reason);
  /// For guards that prove the end of remote access later: the proof is there, the memory goes
  /// back. Only after `end`. Any thread.
  void settle();
};

/// The handle by which a protocol object holds a lease: ends it (reason `cancelled`) and gives the
/// slot back when dropped. Move-only.
class LeaseHandle {
 public:
  LeaseHandle() = default;
  LeaseHandle(LeaseHandle&& other) noexcept;
  LeaseHandle& operator=(LeaseHandle&& other) noexcept;
  ~LeaseHandle();
  Lease* operator->() const { return lease_; }
  Lease& operator*() const { return *lease_; }
  explicit operator bool() const { return lease_ != nullptr; }

 private:
  friend class LeaseTable;
  explicit LeaseHandle(Lease* lease) : lease_(lease) {}
  Lease* lease_ = nullptr;
};

/// All leases of a node, with their generation words in one piece of registered memory. Any thread.
class LeaseTable {
 public:
  /// Lends `segments` (each one whole Block). `settles_later`: the guard needs `settle`.
  /// failed_precondition if a region is closed or a READ lands in a segment; resource_exhausted
  /// when leases_max slots are in use or lending would touch the landing reserve.
  Result<LeaseHandle> lend(std::span<const Block> segments, Guard guard, bool settles_later,
                           LeaseListener* listener, TimePoint now);

  [[nodiscard]] std::uint64_t live() const;
  /// The generation words, for registration, and the word of one slot.
  [[nodiscard]] std::span<std::byte> words() const;
};

}  // namespace pawl::memory
