// SPDX-License-Identifier: Apache-2.0
#include "pawl/timer.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "pawl/poller.h"

namespace pawl {
namespace {

// Four children per node: fewer cache lines per level than two.
constexpr std::size_t kChildren = 4;

}  // namespace

/// The heap of a poller's timers, ordered by (deadline, order of arming).
class TimerHeap {
 public:
  explicit TimerHeap(std::vector<Timer*>& timers) noexcept : timers_(timers) {}

  void push(Timer& timer) {
    timers_.push_back(&timer);
    move_up(timers_.size() - 1, timer);
  }
  void remove(Timer& timer) noexcept {
    const std::size_t hole = timer.heap_index_;
    Timer* last = timers_.back();
    timers_.pop_back();
    if (last == &timer) return;
    if (hole > 0 && before(*last, *timers_[parent(hole)])) {
      move_up(hole, *last);
    } else {
      move_down(hole, *last);
    }
  }

 private:
  static bool before(const Timer& a, const Timer& b) noexcept {
    return a.deadline_ != b.deadline_ ? a.deadline_ < b.deadline_ : a.order_ < b.order_;
  }
  static std::size_t parent(std::size_t i) noexcept { return (i - 1) / kChildren; }
  void place(std::size_t i, Timer& timer) noexcept {
    timers_[i] = &timer;
    timer.heap_index_ = i;
  }
  void move_up(std::size_t i, Timer& timer) noexcept {
    while (i > 0 && before(timer, *timers_[parent(i)])) {
      place(i, *timers_[parent(i)]);
      i = parent(i);
    }
    place(i, timer);
  }
  void move_down(std::size_t i, Timer& timer) noexcept {
    for (;;) {
      const std::size_t first = i * kChildren + 1;
      if (first >= timers_.size()) break;
      std::size_t best = first;
      const std::size_t end = std::min(first + kChildren, timers_.size());
      for (std::size_t child = first + 1; child < end; ++child) {
        if (before(*timers_[child], *timers_[best])) best = child;
      }
      if (!before(*timers_[best], timer)) break;
      place(i, *timers_[best]);
      i = best;
    }
    place(i, timer);
  }

  std::vector<Timer*>& timers_;
};

void Timer::arm(Poller& poller, TimePoint deadline, Fn fn, void* context) {
  cancel();
  PAWL_CHECK(fn != nullptr, "a timer is armed without a function");
  poller_ = &poller;
  deadline_ = deadline;
  fn_ = fn;
  context_ = context;
  poller.arm_timer(*this);
}

void Timer::cancel() noexcept {
  if (poller_ == nullptr) return;
  poller_->cancel_timer(*this);
  poller_ = nullptr;
}

void Poller::arm_timer(Timer& timer) {
  timer.order_ = timer_order_++;
  TimerHeap(timers_).push(timer);
}

void Poller::cancel_timer(Timer& timer) noexcept { TimerHeap(timers_).remove(timer); }

TimePoint Poller::next_timer() const noexcept {
  return timers_.empty() ? TimePoint::never() : timers_.front()->deadline_;
}

std::size_t Poller::run_timers() {
  // Bounded by what is armed now: a timer that arms itself for now fires in the next turn at
  // latest.
  const std::size_t most = timers_.size();
  std::size_t done = 0;
  while (done < most && !timers_.empty()) {
    Timer& timer = *timers_.front();
    if (timer.deadline_ > now_ || timer.deadline_ == TimePoint::never()) break;
    timer.cancel();
    timer.fn_(timer.context_);
    measure("timer", true);
    ++done;
  }
  return done;
}

}  // namespace pawl
