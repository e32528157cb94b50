// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pawl/time.h"

namespace pawl {

/// Counts durations in log-linear buckets: 32 per power of two, so a quantile is at most 3.2 %
/// above the true one. Fixed size (15 KiB), no allocation, from 0 to 2^63 ns. One thread; merge
/// copies of several.
class Histogram {
 public:
  void add(Duration value) noexcept;
  void merge(const Histogram& other) noexcept;
  void clear() noexcept { *this = Histogram(); }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] Duration sum() const noexcept { return Duration(sum_ns_); }
  [[nodiscard]] Duration mean() const noexcept;
  [[nodiscard]] Duration min() const noexcept { return Duration(count_ == 0 ? 0 : min_ns_); }
  [[nodiscard]] Duration max() const noexcept { return Duration(max_ns_); }
  /// The smallest bucket's upper edge that at least this share (0 to 1) of the values reaches,
  /// never above max(). 0 if empty.
  [[nodiscard]] Duration quantile(double share) const noexcept;
  [[nodiscard]] Duration p50() const noexcept { return quantile(0.5); }
  [[nodiscard]] Duration p99() const noexcept { return quantile(0.99); }
  [[nodiscard]] Duration p999() const noexcept { return quantile(0.999); }

 private:
  static constexpr int kSubBits = 5;
  static constexpr std::size_t kSub = std::size_t{1} << kSubBits;
  static constexpr std::size_t kBuckets = (64 - kSubBits) * kSub;

  static std::size_t bucket_of(std::uint64_t ns) noexcept;
  static std::uint64_t upper_edge(std::size_t bucket) noexcept;
  void add_to_sum(std::int64_t ns) noexcept;

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::int64_t sum_ns_ = 0;
  std::int64_t min_ns_ = INT64_MAX;
  std::int64_t max_ns_ = 0;
};

}  // namespace pawl
