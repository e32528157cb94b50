// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "memory/pool_core.h"

namespace pawl::detail {

using memory::Waiter;

bool PoolCore::wait(Waiter& waiter) {
  const Want want{waiter.orders(), waiter.bytes(), waiter.landing()};
  waiter.why = possible(want.bytes, want.landing);
  if (!waiter.why.ok()) return true;
  if (!want.landing) {
    if (Extent* extent = acquire_cached(want.orders.front())) {
      waiter.got.push_back(extent);
      return true;
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (closing_) {
      waiter.why = Status(Code::cancelled, "the pool was destroyed");
      return true;
    }
    const bool within_reserve = within_reserve_locked(want);
    if (may_pass_locked(want, ahead_locked()) &&
        allocate_locked(want, waiter.got) == Shortage::none) {
      overtake_locked(want, nullptr, within_reserve);
      return true;
    }
    queue_.push_back(waiter);
    waiter.queued = true;
    waiters_.fetch_add(1, std::memory_order_relaxed);
    ++waits_;
  }
  collect_caches();  // after it was counted: see ThreadCache::pop
  serve();
  return false;
}

void PoolCore::forget(Waiter& waiter) {
  {
    std::lock_guard lock(mutex_);
    if (!waiter.queued) return;
    queue_.remove(waiter);
    waiter.queued = false;
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  serve();  // it may have been all that stood in somebody's way
}

// --- deadlines and room ---------------------------------------------------------------------

Status PoolCore::deadline_status(const Waiter& waiter) const {
  if (growth_error_.ok()) {
    return Status(Code::deadline,
                  "no memory of the pool came free in time: drop buffers earlier, or raise "
                  "PoolOptions::bytes_max");
  }
  std::string text = std::to_string(waiter.bytes());
  text += " bytes of the pool did not come free in time, and it cannot grow: ";
  text += growth_error_.what();
  return Status::with_detail(Code::deadline, std::move(text), Ran::no, growth_error_.native());
}

Duration PoolCore::look_interval() const {
  return std::clamp<Duration>(options_.room_lease_age_min, 1ms, 1s);
}

// Grows if a failed growth may be tried again, and ends the oldest leases, a bounded number at a
// time, as long as somebody waits. Once per interval, however many wait.
void PoolCore::look_for_room() {
  constexpr int kLeasesMax = 64;
  const TimePoint now = clock_->now();
  {
    std::lock_guard lock(mutex_);
    if (now < look_at_) return;
    look_at_ = now + look_interval();
  }
  serve();
  for (int i = 0; i < kLeasesMax && waiters_.load(std::memory_order_relaxed) != 0; ++i) {
    if (end_oldest_lease() == 0) return;
  }
}

TimePoint PoolCore::look_again(Waiter& waiter) {
  const TimePoint now = clock_->now();
  List<Waiter> ready;
  {
    std::lock_guard lock(mutex_);
    if (!waiter.queued) return TimePoint::never();
    if (now >= waiter.deadline()) {
      waiter.why = deadline_status(waiter);
      ++timeouts_;
      unlink_locked(waiter, ready);
    }
  }
  if (!ready.empty()) {
    settle_all(ready);
    serve();  // it may have been all that stood in the way
    return TimePoint::never();
  }
  look_for_room();
  return std::min(waiter.deadline(), now + look_interval());
}

void PoolCore::look_after() { helper_.wake_at(clock_->now()); }

// On the helper's thread, for those without a poller.
void PoolCore::look_after_all() {
  const std::shared_ptr<PoolCore> alive = weak_from_this().lock();
  if (alive == nullptr) return;  // being destroyed: nobody waits
  const TimePoint now = clock_->now();
  List<Waiter> ready;
  TimePoint next = TimePoint::never();
  {
    std::lock_guard lock(mutex_);
    for (Waiter* w = queue_.front(); w != nullptr;) {
      Waiter* const behind = queue_.next(*w);
      if (w->without_poller()) {
        if (now >= w->deadline()) {
          w->why = deadline_status(*w);
          ++timeouts_;
          unlink_locked(*w, ready);
        } else {
          next = std::min({next, w->deadline(), now + look_interval()});
        }
      }
      w = behind;
    }
  }
  const bool ended = !ready.empty();
  settle_all(ready);
  if (ended) serve();
  if (next == TimePoint::never()) return;
  look_for_room();
  helper_.wake_at(next);
}

}  // namespace pawl::detail
