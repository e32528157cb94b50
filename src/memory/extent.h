// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/list.h"
#include "memory/piece.h"
#include "memory/small_mutex.h"
#include "pawl/status.h"

namespace pawl::memory {
class Arena;
class Lease;
class RegionCore;
class Slab;
enum class LeaseEnd : std::uint8_t;
struct LeaseSegment;
struct FreeList;  // tag
}  // namespace pawl::memory

namespace pawl::detail {

class PoolCore;

/// A run of registered bytes that is handed out as a whole: a pool buffer, a region of the user's,
/// a piece for message slots. It counts who holds it (Buffers, Blocks, leases and landings one
/// each) and lists the segments that are lent from it. Made with its slab; nothing is allocated
/// when it is handed out. The last reference sends it home, from any thread.
///
/// Rule for the mutex: it guards the list of segments (and a region's other state). No lease is
/// finished, no reference dropped and no listener called while it is held, because those take other
/// extents' mutexes. The pool's mutex may be taken inside.
class alignas(64) Extent : public ListNode<memory::FreeList> {
 public:
  /// Of a pool: `order` is its size class.
  Extent(std::byte* base, std::size_t bytes, memory::Piece& piece, PoolCore& core)
      : base_(base), bytes_(bytes), piece_(piece), core_(core) {}
  /// Of a region or of message slots.
  Extent(memory::Piece& piece, PoolCore& core, memory::RegionCore* region)
      : base_(piece.memory().data()),
        bytes_(piece.memory().size()),
        piece_(piece),
        core_(core),
        region_(region),
        home_(region != nullptr ? Home::region : Home::messages) {}
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;
  ~Extent();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] MemoryKind& kind() const { return piece_.kind(); }
  [[nodiscard]] MemoryHandle handle(std::size_t device) const { return piece_.handle(device); }
  [[nodiscard]] PoolCore& core() const { return core_; }
  [[nodiscard]] memory::RegionCore* region() const { return region_; }
  [[nodiscard]] bool from_pool() const { return home_ == Home::pool; }
  /// What is handed out as a whole around `range`: the buffer, or the blocks of a region.
  [[nodiscard]] std::span<std::byte> whole(std::span<const std::byte> range) const;
  [[nodiscard]] memory::SmallMutex& mutex() { return mutex_; }

  // --- references ---------------------------------------------------------------------------

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// Sends the extent home with the last reference. Takes locks: never with one held.
  void release() noexcept {
    // A sole holder needs no read-modify-write: nobody else can add a reference.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      go_home();
    }
  }
  /// True if the caller's reference is the only one.
  [[nodiscard]] bool sole() const { return references_.load(std::memory_order_acquire) == 1; }
  [[nodiscard]] std::uint32_t references() const {
    return references_.load(std::memory_order_relaxed);
  }
  /// The pool hands it out: the caller has the only reference.
  void hand_out() noexcept { references_.store(1, std::memory_order_relaxed); }

  // --- leases -------------------------------------------------------------------------------

  /// Segments on the lists: a hint without the mutex.
  [[nodiscard]] std::size_t lent() const { return lent_.load(std::memory_order_relaxed); }

  /// May a Block of these bytes, made at `use` of a region, be lent? Refuses closed regions, bytes
  /// that are in another use since, and what would take the landing reserve. With the mutex held.
  Status admit(std::span<const std::byte> range, std::uint64_t use);
  /// Puts a segment on its list, takes it off. With the mutex held. `unlist` returns true if a
  /// closed region has nothing left in flight: then region_idle() is due, outside the mutex.
  void list(memory::LeaseSegment& segment);
  [[nodiscard]] bool unlist(memory::LeaseSegment& segment);
  void region_idle();

  /// Takes all bytes, or those of a range, back from every lease: when it returns, each lease of
  /// theirs (or its segment, where the lease has others) has its word changed, also those that
  /// other threads are just ending. The caller holds a reference and not the mutex.
  void withdraw_all(memory::LeaseEnd reason) { withdraw({base_, bytes_}, reason); }
  void withdraw(std::span<const std::byte> range, memory::LeaseEnd reason);

 private:
  friend class memory::Arena;
  friend class PoolCore;

  enum class Home : std::uint8_t { pool, region, messages };

  void go_home() noexcept;

  std::byte* const base_;
  std::size_t bytes_;
  memory::Piece& piece_;
  PoolCore& core_;
  memory::RegionCore* const region_ = nullptr;
  memory::Slab* slab_ = nullptr;
  std::atomic<std::uint32_t> references_{0};
  memory::SmallMutex mutex_;
  List<memory::LeaseSegment> segments_;  // a region has more lists of its own
  std::atomic<std::uint32_t> lent_{0};
  const Home home_ = Home::pool;
  std::uint8_t order_ = 0;        // size class: 4 KiB << order; the pool's mutex
  std::uint8_t frame_state_ = 0;  // Arena's; the pool's mutex
  bool charged_ = false;          // counts against what lending may use; the extent's mutex
};
static_assert(sizeof(Extent) == 128);

}  // namespace pawl::detail
