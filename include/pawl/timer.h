// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pawl/time.h"

namespace pawl {

class Poller;

/// Calls a function once at a point in time, on the poller's thread. Timers of one poller fire in
/// the order of (deadline, arming). Intrusive: arming allocates nothing, costs O(log n). Poller
/// thread.
class Timer {
 public:
  using Fn = void (*)(void* context);

  Timer() noexcept = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { cancel(); }

  /// fn(context) will be called in the first turn whose now() reached `deadline`; `never()` never
  /// fires. Armed already: moves. fn may arm or destroy the timer.
  void arm(Poller& poller, TimePoint deadline, Fn fn, void* context);
  /// fn will not be called. Nothing happens if the timer is not armed.
  void cancel() noexcept;

  [[nodiscard]] bool armed() const noexcept { return poller_ != nullptr; }
  [[nodiscard]] TimePoint deadline() const noexcept { return deadline_; }

 private:
  friend class Poller;
  friend class TimerHeap;

  Poller* poller_ = nullptr;  // set while armed
  TimePoint deadline_;
  std::uint64_t order_ = 0;
  std::size_t heap_index_ = 0;
  Fn fn_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace pawl
