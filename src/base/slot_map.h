// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"

namespace pawl {

/// Names an element of a SlotMap: the slot, and how often the slot had been used before. An id is
/// never given out twice within 2^32 uses of one slot. 0 is never an id.
struct SlotId {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;

  [[nodiscard]] constexpr std::uint64_t packed() const noexcept {
    return (std::uint64_t{generation} << 32) | index;
  }
  static constexpr SlotId unpack(std::uint64_t packed) noexcept {
    return SlotId{static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
  }
  friend constexpr bool operator==(SlotId, SlotId) = default;
};

/// Elements under ids that go stale: looking up the id of an erased element gives nullptr, also
/// when its slot is in use again. Bounded; allocates only where it holds more than ever before;
/// elements never move. Ids may come from a peer: any bit pattern is safe. One thread.
template <class T>
class SlotMap {
 public:
  /// `first_generation`: where the generations start (a random one keeps the ids of two
  /// incarnations apart).
  explicit SlotMap(std::size_t capacity, std::uint32_t first_generation = 1)
      : capacity_(capacity), first_generation_(first_generation == 0 ? 1 : first_generation) {
    PAWL_CHECK(capacity < kNone, "a slot map has room for less than 2^32 - 1 elements");
  }
  SlotMap(const SlotMap&) = delete;
  SlotMap& operator=(const SlotMap&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool full() const noexcept { return size_ == capacity_; }

  /// Makes an element; nothing if the map is full (then nothing was made).
  template <class... Args>
  std::optional<SlotId> emplace(Args&&... args) {
    if (full()) return std::nullopt;
    if (free_ == kNone) add_slot();
    const std::uint32_t index = free_;
    Slot& slot = slots_[index];
    slot.value.emplace(std::forward<Args>(args)...);
    free_ = slot.next_free;
    ++size_;
    return SlotId{index, slot.generation};
  }

  /// The element, or nullptr if the id is stale or was never given out.
  [[nodiscard]] T* find(SlotId id) noexcept {
    if (id.index >= slots_.size()) return nullptr;
    Slot& slot = slots_[id.index];
    if (slot.generation != id.generation || !slot.value.has_value()) return nullptr;
    return &*slot.value;
  }
  [[nodiscard]] const T* find(SlotId id) const noexcept {
    return const_cast<SlotMap*>(this)->find(id);
  }

  /// Destroys the element; its id is stale from now on. False if it was stale already.
  bool erase(SlotId id) noexcept {
    if (find(id) == nullptr) return false;
    Slot& slot = slots_[id.index];
    // The generation changes first, so that the element's destructor cannot find itself.
    if (++slot.generation == 0) slot.generation = 1;
    slot.value.reset();
    slot.next_free = free_;
    free_ = id.index;
    --size_;
    return true;
  }

  /// Calls fn(SlotId, T&) for every element; fn may erase the element it was given.
  template <class Fn>
  void for_each(Fn&& fn) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.value.has_value()) {
        fn(SlotId{static_cast<std::uint32_t>(i), slot.generation}, *slot.value);
      }
    }
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Slot {
    std::optional<T> value;
    std::uint32_t generation;
    std::uint32_t next_free = kNone;
  };

  void add_slot() {
    free_ = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back().generation = first_generation_;
  }

  const std::size_t capacity_;
  const std::uint32_t first_generation_;
  std::deque<Slot> slots_;
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace pawl
