// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pawl::fabric {

/// Values under ids that carry a generation: the id of an erased value never means another one
/// (until 2^31 values have used its slot). Ids are never 0 and their top bit is clear. Pointers
/// are valid until the next insert.
template <class T>
class SlotTable {
 public:
  std::uint64_t insert(T value) {
    std::uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.value = std::move(value);
    slot.used = true;
    ++size_;
    return (std::uint64_t{slot.generation} << 32) | index;
  }

  [[nodiscard]] T* find(std::uint64_t id) {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && slot.generation == id >> 32 ? &slot.value : nullptr;
  }
  [[nodiscard]] const T* find(std::uint64_t id) const {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    return slot.used && slot.generation == id >> 32 ? &slot.value : nullptr;
  }

  void erase(std::uint64_t id) {
    if (find(id) == nullptr) return;
    Slot& slot = slots_[static_cast<std::uint32_t>(id)];
    slot.value = T{};
    slot.used = false;
    slot.generation = (slot.generation % 0x7fffffff) + 1;
    free_.push_back(static_cast<std::uint32_t>(id));
    --size_;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// The id of the value in slot `index`, which is the lower half of its id; 0 if it is empty.
  [[nodiscard]] std::uint64_t id_at(std::uint32_t index) const {
    if (index >= slots_.size() || !slots_[index].used) return 0;
    return (std::uint64_t{slots_[index].generation} << 32) | index;
  }

  /// f(id, value) for each; it may erase values and must not insert.
  template <class F>
  void for_each(F&& f) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used) f(id_at(i), slots_[i].value);
    }
  }
  template <class F>
  void for_each(F&& f) const {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used) f(id_at(i), slots_[i].value);
    }
  }

 private:
  struct Slot {
    T value{};
    std::uint32_t generation = 1;
    bool used = false;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

}  // namespace pawl::fabric
