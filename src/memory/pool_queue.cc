// SPDX-License-Identifier: Apache-2.0
// Who is served when (docs/ownership.md, Memory of the pool).
//
// The queue is in the order of arrival and is served from the front. A request that cannot be
// served now does not stop smaller ones behind it, but they may take no more in all than its own
// bytes while it waits (`Waiter::overtakable`): so it waits at most as if one more request of its
// size had been ahead of it. Then nobody behind it is served before it, and what comes free
// gathers for it. A request of the same size never passes. Landing within its reserve passes
// ordinary requests freely: they could not use that memory.
#include <algorithm>
#include <mutex>
#include <utility>

#include "memory/pool_core.h"

namespace pawl::detail {

using memory::Waiter;

// Tells waiters. Those without a poller run their callback here, which may give memory back and so
// come here again: they are then told by the outer call, so that the stack stays flat.
void PoolCore::settle_all(List<Waiter>& ready) {
  thread_local List<Waiter>* outer = nullptr;
  if (outer != nullptr) {
    outer->splice_back(ready);
    return;
  }
  outer = &ready;
  while (Waiter* waiter = ready.pop_front()) waiter->settled();
  outer = nullptr;
}

bool PoolCore::within_reserve_locked(const Want& want) const {
  const std::size_t reserve = options_.bytes_max - lendable_bytes_max_;
  return want.landing && uncharged_bytes_ + want.bytes <= reserve;
}

PoolCore::Ahead PoolCore::ahead_locked() const {
  Ahead ahead;
  for (const Waiter* w = queue_.front(); w != nullptr; w = queue_.next(*w)) {
    std::size_t& least = w->landing() ? ahead.landing : ahead.ordinary;
    least = std::min(least, w->overtakable());
  }
  return ahead;
}

bool PoolCore::may_pass_locked(const Want& want, const Ahead& ahead) const {
  return want.bytes <= ahead.landing &&
         (want.bytes <= ahead.ordinary || within_reserve_locked(want));
}

// `want` was served before those in the queue up to `until` (nullptr: before all).
void PoolCore::overtake_locked(const Want& want, const Waiter* until, bool within_reserve) {
  for (Waiter* w = queue_.front(); w != until; w = queue_.next(*w)) {
    if (w->landing() || !within_reserve) w->overtaken += want.bytes;
  }
}

void PoolCore::serve() {
  for (;;) {
    List<Waiter> ready;
    std::size_t slab_bytes = 0;
    {
      std::lock_guard lock(mutex_);
      slab_bytes = serve_locked(ready);
    }
    settle_all(ready);
    if (slab_bytes == 0 || !make_slab(slab_bytes)) return;
  }
}

// Returns the slab that is to be made for those who still wait; 0: none.
std::size_t PoolCore::serve_locked(List<Waiter>& ready) {
  std::size_t slab_bytes = 0;
  Ahead ahead;
  for (Waiter* w = queue_.front(); w != nullptr && ahead.landing != 0;) {
    Waiter* const next = queue_.next(*w);
    const Want want{w->orders(), w->bytes(), w->landing()};
    bool over = false;
    if (may_pass_locked(want, ahead)) {
      const bool within_reserve = within_reserve_locked(want);
      const Shortage shortage = allocate_locked(want, w->got);
      if (shortage == Shortage::none) {
        overtake_locked(want, w, within_reserve);
        over = true;
      } else if (shortage == Shortage::memory) {
        if (slab_bytes == 0) slab_bytes = claim_growth_locked(want);
        over = hopeless_locked(*w, want);
      }
    }
    if (over) {
      unlink_locked(*w, ready);
    } else {
      std::size_t& least = want.landing ? ahead.landing : ahead.ordinary;
      least = std::min(least, w->overtakable());
    }
    w = next;
  }
  return slab_bytes;
}

// True, with the reason in the waiter, if no release can help it and no growth is to come: it is
// told why, instead of when.
bool PoolCore::hopeless_locked(Waiter& waiter, const Want& want) {
  if (growing_) return false;
  if (!ever_locked(want)) {
    waiter.why = never_status(want);
    return true;
  }
  if (arena_.bytes_out() != 0 || growth_error_.ok() || growth_bytes_locked(want) != 0) return false;
  waiter.why = growth_error_;
  return true;
}

void PoolCore::unlink_locked(Waiter& waiter, List<Waiter>& ready) {
  queue_.remove(waiter);
  waiter.queued = false;
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  waiter.keep();
  ready.push_back(waiter);
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

}  // namespace pawl::detail
