// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/work.h"

namespace pawl::fabric::verbs {

/// What the fabric remembers of a posted work request.
struct Posted {
  std::uint64_t id = 0;
  WindowId window;  ///< bind, invalidate
  Opcode op = Opcode::send;
  bool marker = false;  ///< the fabric's own: it shows that everything before it is over
};

/// The posted and uncompleted requests of one queue of a queue pair, oldest first, under sequence
/// numbers that only grow. Allocates in `reserve` alone.
class WorkRing {
 public:
  /// Room for so many. What is in it stays.
  void reserve(std::uint32_t count) {
    std::vector<Posted> slots(std::bit_ceil(std::size_t{count < 1 ? 1 : count}));
    PAWL_CHECK(slots.size() >= size(), "a ring is not made smaller than what is in it");
    for (std::uint64_t at = first_; at != next_; ++at) slots[at & (slots.size() - 1)] = slot(at);
    slots_ = std::move(slots);
  }
  [[nodiscard]] std::uint64_t first() const { return first_; }
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(next_ - first_); }
  [[nodiscard]] std::size_t capacity() const { return slots_.size(); }
  [[nodiscard]] bool empty() const { return first_ == next_; }

  void push(const Posted& posted) {
    PAWL_CHECK(size() < slots_.size(), "a ring has room for the depth of its queue");
    slot(next_++) = posted;
  }
  Posted pop() {
    PAWL_CHECK(!empty(), "a request is taken from an empty ring");
    return slot(first_++);
  }

 private:
  Posted& slot(std::uint64_t sequence) { return slots_[sequence & (slots_.size() - 1)]; }

  std::vector<Posted> slots_;
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace pawl::fabric::verbs
