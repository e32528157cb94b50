// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pawl {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;

/// A point on a Clock: nanoseconds since an arbitrary start. Only differences mean anything; it is
/// never wall-clock time and never goes back.
struct TimePoint {
  std::int64_t ns = 0;

  static constexpr TimePoint never() { return TimePoint{INT64_MAX}; }
  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
};

/// Saturates instead of overflowing: `now + Duration::max()` is `never()`.
constexpr TimePoint operator+(TimePoint t, Duration d) {
  const std::int64_t n = d.count();
  if (n >= 0 && t.ns > INT64_MAX - n) return TimePoint::never();
  if (n < 0 && t.ns < INT64_MIN - n) return TimePoint{INT64_MIN};
  return TimePoint{t.ns + n};
}
constexpr TimePoint operator-(TimePoint t, Duration d) { return TimePoint{t.ns - d.count()}; }
constexpr Duration operator-(TimePoint a, TimePoint b) { return Duration(a.ns - b.ns); }

/// Where time comes from. Injected everywhere: the system's steady clock in production, a
/// hand-moved or simulated one in tests. Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
  /// What the calling thread has run; only differences mean anything. In a time of its own a thread
  /// is never kept waiting for a core: as much as has passed.
  [[nodiscard]] virtual Duration thread_ran() const { return Duration(now().ns); }
};

/// CLOCK_MONOTONIC, and CLOCK_THREAD_CPUTIME_ID for what a thread ran. The one place of the library
/// that reads a clock (src/base/clock.cc).
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override;
  [[nodiscard]] Duration thread_ran() const override;
};

/// A clock that stands still until it is told to move: for deterministic tests. One thread moves
/// it, any reads it: a pool's helper does, while somebody waits for memory without a poller.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint{1'000'000'000}) : ns_(start.ns) {}
  [[nodiscard]] TimePoint now() const override {
    return TimePoint{ns_.load(std::memory_order_acquire)};
  }
  void advance(Duration d) { ns_.store((now() + d).ns, std::memory_order_release); }
  void set(TimePoint t) {
    if (t > now()) ns_.store(t.ns, std::memory_order_release);
  }

 private:
  std::atomic<std::int64_t> ns_;
};

}  // namespace pawl
