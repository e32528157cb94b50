// SPDX-License-Identifier: Apache-2.0
#pragma once

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
};

/// CLOCK_MONOTONIC. The one place of the library that reads a clock (src/base/clock.cc).
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override;
};

/// A clock that stands still until it is told to move: for deterministic tests. One thread.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint{1'000'000'000}) : now_(start) {}
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration d) { now_ = now_ + d; }
  void set(TimePoint t) {
    if (t > now_) now_ = t;
  }

 private:
  TimePoint now_;
};

}  // namespace pawl
