// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/extent.h"
#include "memory/piece.h"
#include "pawl/memory_kind.h"
#include "pawl/pool.h"

namespace pawl::memory {

inline constexpr std::size_t kFrameBytes = Pool::kBufferBytesMin;
inline constexpr unsigned kOrders = 15;  // 4 KiB << 0 … 4 KiB << 14 = 64 MiB
static_assert(kFrameBytes << (kOrders - 1) == Pool::kBufferBytesMax);

/// The size class of a buffer: the smallest order whose buffers hold `bytes` (1 … 64 MiB).
constexpr unsigned order_of(std::size_t bytes) {
  return static_cast<unsigned>(std::bit_width((bytes - 1) / kFrameBytes));
}
constexpr std::size_t order_bytes(unsigned order) { return kFrameBytes << order; }

/// One piece of memory from the system and the extents over it: one per frame of 4 KiB, made when
/// a buffer first starts there, for as long as the slab lives.
class Slab {
 public:
  Slab(std::span<std::byte> memory, MemoryKind& kind, detail::PoolCore& core);
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  /// Gives the memory back to its kind. Nothing of it is in use, and it is not registered any more.
  ~Slab();

  [[nodiscard]] Piece& piece() { return piece_; }
  [[nodiscard]] std::size_t bytes() const { return piece_.memory().size(); }
  [[nodiscard]] std::size_t frames() const { return bytes() / kFrameBytes; }
  [[nodiscard]] detail::Extent& extent(std::size_t frame);
  /// The extent that starts at this frame, nullptr if none ever did.
  [[nodiscard]] detail::Extent* find(std::size_t frame);
  [[nodiscard]] std::size_t frame_of(const detail::Extent& extent) const {
    return static_cast<std::size_t>(extent.base() - piece_.memory().data()) / kFrameBytes;
  }
  /// False if the system had no room for the extents.
  [[nodiscard]] bool usable() const { return extents_ != nullptr; }

 private:
  Piece piece_;
  detail::PoolCore& core_;
  detail::Extent* extents_ = nullptr;  // room for one per frame; touched only where made
  std::vector<bool> made_;
};

/// Buddy allocation of power-of-two extents in slabs, with a twist: a freed extent first goes,
/// whole, to a LIFO list of its class, so that it is the next one handed out; only when a class
/// finds nothing are all lists merged into buddies. So no class keeps memory that another one
/// needs. Guarded by the pool's mutex.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  void add(std::unique_ptr<Slab> slab);
  /// nullptr if nothing of that size is free, also after merging.
  detail::Extent* allocate(unsigned order);
  void free(detail::Extent& extent);

  [[nodiscard]] std::size_t bytes_total() const { return bytes_total_; }
  [[nodiscard]] std::size_t bytes_out() const { return bytes_out_; }
  [[nodiscard]] std::vector<std::unique_ptr<Slab>>& slabs() { return slabs_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Slab>>& slabs() const { return slabs_; }

 private:
  using Free = List<detail::Extent, FreeList>;
  enum State : std::uint8_t { kTail, kOut, kRecent, kMerged };

  static Slab& slab_of(detail::Extent& extent);
  detail::Extent* take(unsigned order);
  void merge_all();
  void merge(detail::Extent& extent);

  std::vector<std::unique_ptr<Slab>> slabs_;
  std::array<Free, kOrders> recent_;  // freed, not merged: last in, first out
  std::array<Free, kOrders> merged_;
  std::size_t recent_count_ = 0;
  std::size_t bytes_total_ = 0;
  std::size_t bytes_out_ = 0;
};

}  // namespace pawl::memory
