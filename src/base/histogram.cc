// SPDX-License-Identifier: Apache-2.0
#include "base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace pawl {

std::size_t Histogram::bucket_of(std::uint64_t ns) noexcept {
  if (ns < kSub) return static_cast<std::size_t>(ns);
  const int exponent = static_cast<int>(std::bit_width(ns)) - 1;
  const int shift = exponent - kSubBits;
  const std::uint64_t sub = (ns >> shift) & (kSub - 1);
  return (static_cast<std::size_t>(shift) + 1) * kSub + static_cast<std::size_t>(sub);
}

std::uint64_t Histogram::upper_edge(std::size_t bucket) noexcept {
  if (bucket < kSub) return bucket;
  const std::size_t shift = bucket / kSub - 1;
  const std::uint64_t lower = (kSub + bucket % kSub) << shift;
  return lower + ((std::uint64_t{1} << shift) - 1);
}

// Sums stay at the largest value instead of overflowing.
void Histogram::add_to_sum(std::int64_t ns) noexcept {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  sum_ns_ = ns > kMax - sum_ns_ ? kMax : sum_ns_ + ns;
}

void Histogram::add(Duration value) noexcept {
  const std::int64_t ns = std::max<std::int64_t>(value.count(), 0);
  ++buckets_[bucket_of(static_cast<std::uint64_t>(ns))];
  ++count_;
  add_to_sum(ns);
  min_ns_ = std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
}

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  add_to_sum(other.sum_ns_);
  min_ns_ = std::min(min_ns_, other.min_ns_);
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

Duration Histogram::mean() const noexcept {
  return Duration(count_ == 0 ? 0 : sum_ns_ / static_cast<std::int64_t>(count_));
}

Duration Histogram::quantile(double share) const noexcept {
  if (count_ == 0) return Duration(0);
  const double wanted = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count_));
  const auto rank = std::max<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) {
      return Duration(std::min<std::int64_t>(static_cast<std::int64_t>(upper_edge(i)), max_ns_));
    }
  }
  return max();
}

}  // namespace pawl
