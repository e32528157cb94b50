// SPDX-License-Identifier: Apache-2.0
#include "demo_hold.h"

#include <algorithm>

namespace pawl::tools {

namespace {

// READs of one call that are held, in the mean.
constexpr double kHeld = 0.15;
// Large files are few calls a second: where they have to show it all, each must.
constexpr double kHeldLarge = 1.0;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;  // at most, of one READ

constexpr int kLargeFactor = 4;      // behind the small ones
constexpr int kLargeOnlyFactor = 2;  // nothing goes first
constexpr std::int64_t kLargeBytesPerSecond = std::int64_t{64} << 20;

int large_factor(const RowSettings& settings) {
  return settings.large_only ? kLargeOnlyFactor : kLargeFactor;
}

/// What a large call may take because of its bytes.
Duration for_bytes(std::size_t bytes) {
  constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
  return Duration(static_cast<std::int64_t>(bytes) * kNanosecondsPerSecond / kLargeBytesPerSecond);
}

}  // namespace

void set_files(RowSettings& settings, const Corpus& corpus) {
  settings.large_only = true;
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    if (corpus.file(i).size() <= kLargeFileBytes) settings.large_only = false;
  }
  settings.large_shows = !corpus.tells_files_apart(kLargeFileBytes);
}

Duration deadline_of(const RowSettings& settings, std::size_t bytes) {
  if (bytes <= kLargeFileBytes) return settings.deadline;
  return settings.deadline * large_factor(settings) + for_bytes(bytes);
}

Duration small_deadline_for(const RowSettings& settings, std::size_t bytes, Duration took) {
  if (bytes <= kLargeFileBytes) return took;
  return std::max(took - for_bytes(bytes), Duration{0}) / large_factor(settings);
}

fabric::RandomDelay hold_of(const RowSettings& settings, std::size_t bytes) {
  const std::size_t reads = std::max<std::size_t>(1, (bytes + kReadBytes - 1) / kReadBytes);
  const double held = settings.large_shows && bytes > kLargeFileBytes ? kHeldLarge : kHeld;
  return {.probability = std::min(1.0, held / static_cast<double>(reads)),
          .min = Duration{0},
          .max = deadline_of(settings, bytes) * kHoldDeadlines};
}

}  // namespace pawl::tools
