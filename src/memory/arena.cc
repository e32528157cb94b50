// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "base/check.h"
#include "memory/lease.h"
#include "memory/pool_core.h"

namespace pawl::memory {

using detail::Extent;

// --- Slab -----------------------------------------------------------------------------------

Slab::Slab(std::span<std::byte> memory, MemoryKind& kind, detail::PoolCore& core)
    : piece_(memory, kind, MemoryUse::bulk), core_(core), made_(memory.size() / kFrameBytes) {
  // Zero pages that cost nothing until an extent is made in them.
  void* room = ::mmap(nullptr, frames() * sizeof(Extent), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) extents_ = static_cast<Extent*>(room);
}

Slab::~Slab() {
  if (extents_ != nullptr) {
    for (std::size_t i = 0; i < frames(); ++i) {
      if (made_[i]) extents_[i].~Extent();
    }
    ::munmap(static_cast<void*>(extents_), frames() * sizeof(Extent));
  }
  piece_.kind().free(piece_.memory());
}

Extent* Slab::find(std::size_t frame) { return made_[frame] ? &extents_[frame] : nullptr; }

Extent& Slab::extent(std::size_t frame) {
  if (!made_[frame]) {
    new (&extents_[frame])
        Extent(piece_.memory().data() + frame * kFrameBytes, kFrameBytes, piece_, core_);
    made_[frame] = true;
  }
  return extents_[frame];
}

// --- Arena ----------------------------------------------------------------------------------

Arena::~Arena() {
  for (Free& list : recent_) list.clear();
  for (Free& list : merged_) list.clear();
}

Slab& Arena::slab_of(Extent& extent) { return *extent.slab_; }

void Arena::add(std::unique_ptr<Slab> slab) {
  Extent& whole = slab->extent(0);
  whole.slab_ = slab.get();
  whole.order_ = static_cast<std::uint8_t>(order_of(slab->bytes()));
  whole.frame_state_ = kMerged;
  merged_[whole.order_].push_front(whole);
  bytes_total_ += slab->bytes();
  slabs_.push_back(std::move(slab));
}

Extent* Arena::allocate(unsigned order) {
  Extent* extent = take(order);
  if (extent == nullptr && recent_count_ != 0) {
    merge_all();
    extent = take(order);
  }
  if (extent == nullptr) return nullptr;
  extent->frame_state_ = kOut;
  extent->bytes_ = order_bytes(order);
  bytes_out_ += extent->bytes_;
  return extent;
}

// The last one freed, else one that is split off the smallest merged one.
Extent* Arena::take(unsigned order) {
  if (Extent* recent = recent_[order].pop_front()) {
    --recent_count_;
    return recent;
  }
  unsigned from = order;
  while (from < kOrders && merged_[from].empty()) ++from;
  if (from == kOrders) return nullptr;
  Extent* extent = merged_[from].pop_front();
  Slab& slab = slab_of(*extent);
  const std::size_t frame = slab.frame_of(*extent);
  while (from > order) {
    --from;
    Extent& upper = slab.extent(frame + (std::size_t{1} << from));
    upper.slab_ = &slab;
    upper.order_ = static_cast<std::uint8_t>(from);
    upper.frame_state_ = kMerged;
    merged_[from].push_front(upper);
  }
  extent->order_ = static_cast<std::uint8_t>(order);
  return extent;
}

void Arena::free(Extent& extent) {
  PAWL_CHECK(extent.frame_state_ == kOut, "memory came back to its pool twice");
  bytes_out_ -= extent.bytes_;
  extent.frame_state_ = kRecent;
  recent_[extent.order_].push_front(extent);
  ++recent_count_;
}

void Arena::merge_all() {
  for (Free& list : recent_) {
    while (Extent* extent = list.pop_front()) merge(*extent);
  }
  recent_count_ = 0;
}

void Arena::merge(Extent& extent) {
  Slab& slab = slab_of(extent);
  std::size_t frame = slab.frame_of(extent);
  unsigned order = extent.order_;
  extent.frame_state_ = kTail;
  while (order + 1 < kOrders && (std::size_t{2} << order) <= slab.frames()) {
    Extent* buddy = slab.find(frame ^ (std::size_t{1} << order));
    if (buddy == nullptr || buddy->frame_state_ != kMerged || buddy->order_ != order) break;
    merged_[order].remove(*buddy);
    buddy->frame_state_ = kTail;
    frame &= ~(std::size_t{1} << order);
    ++order;
  }
  Extent& whole = slab.extent(frame);
  whole.order_ = static_cast<std::uint8_t>(order);
  whole.frame_state_ = kMerged;
  merged_[order].push_front(whole);
}

}  // namespace pawl::memory
