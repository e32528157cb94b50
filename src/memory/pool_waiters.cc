// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "memory/pool_core.h"

namespace pawl::detail {

using memory::Waiter;

namespace {

// Tells waiters. Those without a poller run their callback here, which may give memory back and so
// come here again: they are then told by the outer call, so that the stack stays flat.
void settle_all(List<Waiter>& ready) {
  thread_local List<Waiter>* outer = nullptr;
  if (outer != nullptr) {
    outer->splice_back(ready);
    return;
  }
  outer = &ready;
  while (Waiter* waiter = ready.pop_front()) waiter->settled();
  outer = nullptr;
}

}  // namespace

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
    if (barred_locked(want) == Shortage::none &&
        allocate_locked(want, waiter.got) == Shortage::none) {
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

void PoolCore::unlink_locked(Waiter& waiter, List<Waiter>& ready) {
  queue_.remove(waiter);
  waiter.queued = false;
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  waiter.keep();
  ready.push_back(waiter);
}

void PoolCore::forget(Waiter& waiter) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    if (!waiter.queued) return;
    first = queue_.front() == &waiter;
    queue_.remove(waiter);
    waiter.queued = false;
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (first) serve();  // it may have been all that stood in the way
}

// First come, first served. Behind the first one that cannot be served nobody is, except landing
// within its reserve.
void PoolCore::serve() {
  List<Waiter> ready;
  std::size_t missing = 0;
  {
    std::lock_guard lock(mutex_);
    const std::size_t reserve = options_.bytes_max - lendable_bytes_max_;
    bool ordinary_waits = false;
    for (Waiter* w = queue_.front(); w != nullptr;) {
      Waiter* const next = queue_.next(*w);
      const Want want{w->orders(), w->bytes(), w->landing()};
      const bool may =
          !ordinary_waits || (want.landing && uncharged_bytes_ + want.bytes <= reserve);
      if (may && allocate_locked(want, w->got) == Shortage::none) {
        unlink_locked(*w, ready);
      } else {
        if (missing == 0) missing = want.bytes;
        if (want.landing) break;
        ordinary_waits = true;
      }
      w = next;
    }
  }
  settle_all(ready);
  if (missing != 0) request_growth(missing);
}

void PoolCore::fail_waiters(const Status& why) {
  List<Waiter> ready;
  {
    std::lock_guard lock(mutex_);
    while (Waiter* waiter = queue_.front()) {
      waiter->why = why;
      unlink_locked(*waiter, ready);
    }
  }
  settle_all(ready);
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

// The oldest leases end, a bounded number at a time, as long as somebody waits.
void PoolCore::make_room() {
  constexpr int kLeasesMax = 64;
  const TimePoint before = clock_->now() - options_.room_lease_age_min;
  for (int i = 0; i < kLeasesMax && waiters_.load(std::memory_order_relaxed) != 0; ++i) {
    if (leases_->end_oldest(1, before) == 0) return;
    ended_for_room_.fetch_add(1, std::memory_order_relaxed);
  }
}

TimePoint PoolCore::look_again(Waiter& waiter) {
  const TimePoint now = clock_->now();
  List<Waiter> ready;
  std::size_t missing = 0;
  {
    std::lock_guard lock(mutex_);
    if (!waiter.queued) return TimePoint::never();
    if (now >= waiter.deadline()) {
      waiter.why = deadline_status(waiter);
      ++timeouts_;
      unlink_locked(waiter, ready);
    } else {
      missing = waiter.bytes();
    }
  }
  if (missing == 0) {
    settle_all(ready);
    serve();  // it may have been all that stood in the way
    return TimePoint::never();
  }
  request_growth(missing);
  make_room();
  return std::min(waiter.deadline(), now + options_.room_lease_age_min);
}

void PoolCore::look_after() { helper_.wake_at(clock_->now()); }

// On the helper's thread, for those without a poller.
void PoolCore::look_after_all() {
  const std::shared_ptr<PoolCore> alive = weak_from_this().lock();
  if (alive == nullptr) return;  // being destroyed: nobody waits
  const TimePoint now = clock_->now();
  List<Waiter> ready;
  std::size_t missing = 0;
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
          missing = std::max(missing, w->bytes());
          next = std::min({next, w->deadline(), now + options_.room_lease_age_min});
        }
      }
      w = behind;
    }
  }
  const bool ended = !ready.empty();
  settle_all(ready);
  if (ended) serve();
  if (missing != 0) {
    request_growth(missing);
    make_room();
    helper_.wake_at(next);
  }
}

}  // namespace pawl::detail
