// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pawl {

/// A first-in first-out queue with a fixed capacity, allocated once. One thread.
template <class T>
class Ring {
 public:
  explicit Ring(std::size_t capacity) : slots_(capacity) {
    PAWL_CHECK(capacity > 0, "a ring needs room for one element");
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool full() const noexcept { return size_ == slots_.size(); }

  /// False (and `value` is dropped) if the ring is full.
  [[nodiscard]] bool push(T value) {
    if (full()) return false;
    slots_[wrap(head_ + size_)].emplace(std::move(value));
    ++size_;
    return true;
  }
  /// The oldest element. The ring must not be empty.
  [[nodiscard]] T& front() { return at(0); }
  /// The element `i` places behind the oldest.
  [[nodiscard]] T& at(std::size_t i) {
    PAWL_CHECK(i < size_, "a ring is read behind its end");
    return *slots_[wrap(head_ + i)];
  }
  /// Takes the oldest element out. The ring must not be empty.
  T pop() {
    PAWL_CHECK(size_ > 0, "an element is taken from an empty ring");
    std::optional<T>& slot = slots_[head_];
    T value = std::move(*slot);
    slot.reset();
    head_ = wrap(head_ + 1);
    --size_;
    return value;
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  [[nodiscard]] std::size_t wrap(std::size_t i) const noexcept {
    return i >= slots_.size() ? i - slots_.size() : i;
  }

  std::vector<std::optional<T>> slots_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace pawl
