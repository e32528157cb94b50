// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "pawl/buffer.h"
#include "pawl/memory_kind.h"
#include "pawl/operation.h"
#include "pawl/quarantine.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl {

namespace detail {
class PoolCore;  // src/memory/pool_core.h
}

struct PoolOptions {
  /// Memory that the pool may ever take from the system, slabs and all.
  std::size_t bytes_max = std::size_t{1} << 30;
  /// Part of bytes_max that lending cannot use, so that what was asked for can still land.
  /// Default: a quarter.
  std::size_t landing_reserve_bytes = SIZE_MAX;
  /// Memory is taken from the system and registered in pieces of this size: a power of two from
  /// 64 KiB to 64 MiB, at most bytes_max; larger buffers get a slab of their own. 0: 64 MiB, or
  /// less in a small pool.
  std::size_t slab_bytes = 0;
  /// Slabs made when the pool is made, before anything asks.
  std::size_t bytes_at_start = 0;
  /// Bound on memory in quarantine, in bytes. From there on new transfers are refused, with
  /// whatever peer (resource_exhausted): what is to land here, and what is to be lent under
  /// hold_until_ack. Nothing is released early. How long it may be there is
  /// NodeOptions::quarantine_timeout.
  std::size_t quarantine_bytes_max = std::size_t{256} << 20;
  /// Leases that may exist at the same time, at most 262142. 8 bytes each are registered at the
  /// start.
  std::uint32_t leases_max = 65536;
  /// When memory is short, leases older than this are ended, oldest first, to make room.
  Duration room_lease_age_min = std::chrono::milliseconds(1);
  /// 0: the first generations of leases are unpredictable. Else they repeat by this seed, for
  /// simulation.
  std::uint64_t generation_seed = 0;
  /// nullptr: HostMemory. Must outlive the pool.
  MemoryKind* kind = nullptr;
  /// Grow on the calling thread instead of a helper thread: for simulation and tests only.
  bool grow_inline = false;
};

struct PoolStats {
  std::uint64_t bytes_total = 0;   ///< taken from the system
  std::uint64_t bytes_in_use = 0;  ///< held by Buffers, Blocks, leases and landings
  std::uint64_t bytes_cached = 0;  ///< free, in the caches of threads
  std::uint64_t bytes_landing = 0;
  std::uint64_t bytes_quarantined = 0;
  std::uint64_t buffers_quarantined = 0;
  /// bytes_quarantined by the number of their QuarantineReason.
  std::array<std::uint64_t, kQuarantineReasons> bytes_quarantined_by_reason{};
  Duration quarantined_longest{0};  ///< how long the oldest of it has been there
  std::uint64_t leases_live = 0;
  std::uint64_t acquires = 0;
  std::uint64_t waits = 0;     ///< acquires that had to wait
  std::uint64_t timeouts = 0;  ///< waits that ended at their deadline
  std::uint64_t waiting = 0;
  std::uint64_t leases_ended_for_room = 0;
  std::uint64_t slabs = 0;
  std::uint64_t bytes_huge_pages = 0;              ///< of the pool's memory kind
  std::uint64_t bytes_transparent_huge_pages = 0;  ///< asked for; the kernel decides

  [[nodiscard]] std::uint64_t bytes_quarantined_for(QuarantineReason reason) const {
    return bytes_quarantined_by_reason[static_cast<std::size_t>(reason)];
  }
};

/// Registered buffers in size classes of powers of two from 4 KiB to 64 MiB, for every fabric and
/// device of a node. Any thread; acquire and release on one thread stay in that thread's cache.
/// Growth (allocation, registration) happens on a helper thread, never in a poller's turn. The
/// pool must outlive nothing: Buffers, Blocks and leases keep what they need alive. Options that
/// cannot work are named by every acquire (invalid_argument).
class Pool {
 public:
  static constexpr std::size_t kBufferBytesMin = 4096;
  static constexpr std::size_t kBufferBytesMax = std::size_t{64} << 20;

  /// Growth problems show at the first acquire that needs them, by name.
  explicit Pool(const PoolOptions& options = {}, const Clock* clock = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// A buffer of `bytes` bytes (size() == bytes, capacity the class) if one is free now, perhaps
  /// because an old lease was ended for it. too_large above kBufferBytesMax, what may be lent or
  /// what the slabs can hold; invalid_argument for 0; resource_exhausted otherwise: also if others
  /// come first, and while the pool has yet to grow (a new pool is empty, see bytes_at_start;
  /// `acquire` waits for growth).
  Result<Buffer> try_acquire(std::size_t bytes);

  /// Waits for one, in turn (docs/ownership.md), at most until `deadline` from now (code deadline).
  /// When memory is short the pool ends its oldest leases to make room. Who waits on a poller is
  /// told from its ready queue, never inside the release that made room; who waits without one, on
  /// the thread that made room: from the ready queue of the poller that it turns, if it turns one.
  Operation<Result<Buffer>> acquire(std::size_t bytes,
                                    Duration deadline = std::chrono::seconds(30));

  /// A Block with a copy of `bytes`, for small or static content.
  Result<Block> copy_of(std::span<const std::byte> bytes);

  [[nodiscard]] PoolStats stats() const;
  /// For the layers of the library.
  [[nodiscard]] detail::PoolCore& core() const { return *core_; }

 private:
  std::shared_ptr<detail::PoolCore> core_;
};

}  // namespace pawl
