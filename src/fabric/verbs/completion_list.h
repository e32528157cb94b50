// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/work.h"

namespace pawl::fabric::verbs {

/// Completions that poll has not returned yet, first in, first out. Keeps its memory.
class CompletionList {
 public:
  void push(const Completion& completion) {
    items_.push_back(completion);
    ++pushed_;
  }
  std::size_t take(std::span<Completion> out) {
    const std::size_t n = std::min(out.size(), size());
    std::copy_n(items_.begin() + static_cast<std::ptrdiff_t>(head_), n, out.begin());
    head_ += n;
    if (head_ == items_.size()) {
      items_.clear();
      head_ = 0;
    } else if (head_ >= kCompactAt) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return n;
  }
  [[nodiscard]] std::size_t size() const { return items_.size() - head_; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// How many were ever put in, and how many were ever taken out.
  [[nodiscard]] std::uint64_t pushed() const { return pushed_; }
  [[nodiscard]] std::uint64_t taken() const { return pushed_ - size(); }

 private:
  static constexpr std::size_t kCompactAt = 1024;  // taken items in front of the others

  std::vector<Completion> items_;
  std::size_t head_ = 0;
  std::uint64_t pushed_ = 0;
};

}  // namespace pawl::fabric::verbs
