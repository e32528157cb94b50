// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"
#include "pawl/poller.h"

namespace pawl {

struct Poller::SourceEntry {
  /// A descriptor that was reported this often in a row without an event is muted.
  static constexpr std::uint32_t kFruitlessWakesMax = 16;

  PollSource* source = nullptr;  // nullptr: removed in this turn
  int fd = -1;
  bool reported = false;  // the kernel said ready since the last poll
  bool muted = false;     // edge-triggered: reported again only when it changes
  std::uint32_t fruitless_wakes = 0;
};

/// The descriptors of a poller: an epoll that holds those of the sources, an eventfd for wake-ups
/// by other threads, and a timerfd. Poller thread, except wake().
struct Poller::Kernel {
 public:
  Kernel();

  [[nodiscard]] int epoll_fd() const noexcept { return epoll_.get(); }

  void watch(SourceEntry& entry);
  void forget(SourceEntry& entry);
  void set_muted(SourceEntry& entry, bool muted);

  /// The epoll becomes readable at `next`, seen from `now`; never() for not at all.
  void set_timer(TimePoint next, TimePoint now);

  /// Waits and marks the entries that are ready. Gives how many wake-ups of other threads it saw.
  std::uint64_t wait(int timeout_ms);

  /// Any thread; once for each end of a sleep.
  void wake() noexcept;
  /// One wake() was or will be called.
  void expect_wake() noexcept { ++wakes_expected_; }
  /// Returns when every wake() that is expected has written, so that nobody uses this any more.
  void await_wakes();

 private:
  std::uint64_t take_wakes() noexcept;

  UniqueFd epoll_;
  UniqueFd event_;
  UniqueFd timer_;
  TimePoint timer_set_ = TimePoint::never();
  std::int64_t wakes_expected_ = 0;  // minus those that were read
};

/// A pause for a loop that spins.
inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace pawl
