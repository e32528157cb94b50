// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_core.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"

namespace pawl::detail {

using memory::order_bytes;
using memory::order_of;
using memory::ThreadCache;

// --- what is wanted -------------------------------------------------------------------------

Status PoolCore::possible(std::size_t bytes, bool landing) const {
  if (!misuse_.ok()) return misuse_;
  const std::size_t limit = landing ? options_.bytes_max : lendable_bytes_max_;
  if (bytes <= limit) return {};
  std::string text = std::to_string(bytes);
  text += landing ? " bytes at once are more than PoolOptions::bytes_max ("
                  : " bytes are more than bytes_max less landing_reserve_bytes (";
  text += std::to_string(limit);
  text += "): raise PoolOptions::bytes_max or ask for less";
  return Status::with_detail(Code::too_large, std::move(text));
}

Status PoolCore::shortage_status(Shortage shortage, const Want& want) const {
  switch (shortage) {
    case Shortage::behind_waiters:
      return Status(Code::resource_exhausted,
                    "others wait for memory of this pool: use acquire, "
                    "which queues, or raise PoolOptions::bytes_max");
    case Shortage::reserve:
      return Status(Code::resource_exhausted,
                    "what may be lent is in use and the rest is the landing reserve: drop buffers, "
                    "use acquire, which waits, or raise PoolOptions::bytes_max");
    case Shortage::never:
      return never_status(want);
    case Shortage::memory:
    case Shortage::none:
      break;
  }
  std::lock_guard lock(mutex_);
  if (growing_) {
    return Status(Code::resource_exhausted,
                  "no buffer is free and the pool is just growing: use acquire, which waits");
  }
  if (growth_error_.ok()) {
    return Status(Code::resource_exhausted,
                  "all of PoolOptions::bytes_max is in use or too scattered for this size: drop "
                  "buffers, use acquire, which waits, or raise bytes_max");
  }
  std::string text("no buffer of ");
  text += std::to_string(want.bytes);
  text += " bytes is free and the pool cannot grow: ";
  text += growth_error_.what();
  return Status::with_detail(Code::resource_exhausted, std::move(text), Ran::no,
                             growth_error_.native());
}

Status PoolCore::admit_transfer() const {
  if (!quarantine_.full()) return {};
  return Status(Code::resource_exhausted,
                "as much memory as PoolOptions::quarantine_bytes_max allows is in quarantine, held "
                "by READs that their devices have not given up or for peers that have not "
                "acknowledged a cancel: new transfers are refused until some is back");
}

Status PoolCore::never_status(const Want& want) const {
  std::string text = std::to_string(want.bytes);
  text +=
      " bytes do not fit: PoolOptions::bytes_max is divided into slabs that are too small for "
      "them, and slabs stay. Raise bytes_max or PoolOptions::slab_bytes, or have the large "
      "slabs made first (bytes_at_start)";
  return Status::with_detail(Code::too_large, std::move(text));
}

// --- taking ---------------------------------------------------------------------------------

Extent* PoolCore::acquire_cached(unsigned order) {
  if (order >= ThreadCache::kOrdersCached) return nullptr;
  ThreadCache* cache = memory::this_thread_cache(*this);
  return cache != nullptr ? cache->pop(order, waiters_) : nullptr;
}

Result<Buffer> PoolCore::try_acquire(std::size_t bytes) {
  if (bytes - 1 >= Pool::kBufferBytesMax) [[unlikely]] {
    if (bytes == 0) return Status(Code::invalid_argument, "a buffer of 0 bytes was asked for");
    return Status(Code::too_large,
                  "a buffer holds at most 64 MiB (Pool::kBufferBytesMax): use several segments");
  }
  const unsigned order = order_of(bytes);
  Extent* extent = acquire_cached(order);
  if (extent == nullptr) {
    Status why;
    extent = allocate_one(order, why);
    if (extent == nullptr) return why;
  }
  extent->hand_out();
  return BufferAccess::buffer(ExtentRef(extent), extent->base(), bytes);
}

Extent* PoolCore::allocate_one(unsigned order, Status& why) {
  const std::uint8_t orders[] = {static_cast<std::uint8_t>(order)};
  const Want want{orders, order_bytes(order), false};
  // Not the thread's: making room may run a callback of the user's, which acquires too.
  FrameVector<Extent*> got;
  why = allocate(want, got);
  return why.ok() ? got.front() : nullptr;
}

Result<FrameVector<Buffer>> PoolCore::try_acquire_landing(std::span<const std::size_t> sizes) {
  if (Status refused = admit_transfer(); !refused.ok()) return refused;
  FrameVector<std::uint8_t> orders;
  orders.reserve(sizes.size());
  std::size_t total = 0;
  for (std::size_t bytes : sizes) {
    if (bytes == 0 || bytes > Pool::kBufferBytesMax) {
      return Status(Code::invalid_argument, "a landing buffer has 1 byte to 64 MiB");
    }
    orders.push_back(static_cast<std::uint8_t>(order_of(bytes)));
    total += order_bytes(orders.back());
  }
  FrameVector<Extent*> got;
  got.reserve(sizes.size());
  if (Status why = allocate(Want{orders, total, true}, got); !why.ok()) return why;
  FrameVector<Buffer> buffers;
  buffers.reserve(sizes.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    got[i]->hand_out();
    buffers.push_back(BufferAccess::buffer(ExtentRef(got[i]), got[i]->base(), sizes[i]));
  }
  return buffers;
}

PoolCore::Shortage PoolCore::attempt(const Want& want, FrameVector<Extent*>& got) {
  std::lock_guard lock(mutex_);
  const bool within_reserve = within_reserve_locked(want);
  if (!may_pass_locked(want, ahead_locked())) return Shortage::behind_waiters;
  const Shortage shortage = allocate_locked(want, got);
  if (shortage == Shortage::none) overtake_locked(want, nullptr, within_reserve);
  return shortage == Shortage::memory && !ever_locked(want) ? Shortage::never : shortage;
}

// At once or not at all: what is free, then what lies in the threads' caches, then (inline only)
// growth, then the oldest leases.
Status PoolCore::allocate(const Want& want, FrameVector<Extent*>& got) {
  constexpr int kRoomRoundsMax = 64;
  if (Status impossible = possible(want.bytes, want.landing); !impossible.ok()) return impossible;
  const auto is_short = [](Shortage s) { return s == Shortage::memory || s == Shortage::reserve; };
  Shortage shortage = attempt(want, got);
  if (is_short(shortage) && collect_caches()) shortage = attempt(want, got);
  while (shortage == Shortage::memory && request_growth(want)) shortage = attempt(want, got);
  for (int i = 0; i < kRoomRoundsMax && is_short(shortage); ++i) {
    if (end_oldest_lease() == 0) break;
    shortage = attempt(want, got);
  }
  return shortage == Shortage::none ? Status() : shortage_status(shortage, want);
}

PoolCore::Shortage PoolCore::allocate_locked(const Want& want, FrameVector<Extent*>& got) {
  if (closing_) return Shortage::memory;
  if (!want.landing && charged_bytes_ + want.bytes > lendable_bytes_max_) return Shortage::reserve;
  for (std::uint8_t order : want.orders) {
    Extent* extent = arena_.allocate(order);
    if (extent == nullptr) {
      for (Extent* e : got) arena_.free(*e);
      got.clear();
      return Shortage::memory;
    }
    got.push_back(extent);
  }
  for (Extent* extent : got) extent->charged_ = !want.landing;
  (want.landing ? uncharged_bytes_ : charged_bytes_) += want.bytes;
  ++shared_acquires_;
  return Shortage::none;
}

std::size_t PoolCore::end_oldest_lease() {
  const std::size_t ended = leases_->end_oldest(1, clock_->now() - options_.room_lease_age_min);
  if (ended == 0) return 0;
  ended_for_room_.fetch_add(ended, std::memory_order_relaxed);
  collect_caches();  // the memory may have gone to one
  return ended;
}

// --- lending what landed --------------------------------------------------------------------

Status PoolCore::charge(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const std::size_t left = lendable_bytes_max_ - std::min(charged_bytes_, lendable_bytes_max_);
  bool refused = bytes > left;
  const auto contends = [&](const memory::Waiter& w) {
    return !w.landing() && w.bytes() > left - bytes;
  };
  for (const memory::Waiter& w : queue_) {
    if (refused) break;
    refused = contends(w) && bytes > w.overtakable();
  }
  if (refused) {
    return Status(Code::resource_exhausted,
                  "lending this memory would take the landing reserve, or what others wait for: "
                  "lend less at a time, or raise PoolOptions::bytes_max");
  }
  for (memory::Waiter& w : queue_) {
    if (contends(w)) w.overtaken += bytes;
  }
  charged_bytes_ += bytes;
  uncharged_bytes_ -= bytes;
  return {};
}

bool PoolCore::make_room_to_lend() { return collect_caches() || end_oldest_lease() != 0; }

// --- giving back ----------------------------------------------------------------------------

void PoolCore::give_back(Extent& extent) {
  PAWL_CHECK(extent.lent() == 0, "memory came back to its pool while it is lent");
  const unsigned order = extent.order_;
  if (order < ThreadCache::kOrdersCached && extent.charged_) {
    std::array<Extent*, ThreadCache::kCountMax> spilled;
    std::size_t spilled_count = 0;
    ThreadCache* cache = memory::this_thread_cache(*this);
    if (cache != nullptr && cache->push(extent, order, waiters_, spilled, spilled_count)) {
      if (spilled_count != 0) free_all({spilled.data(), spilled_count});
      return;
    }
  }
  Extent* one = &extent;
  free_all({&one, 1});
}

void PoolCore::free_locked(Extent& extent) {
  (extent.charged_ ? charged_bytes_ : uncharged_bytes_) -= extent.bytes_;
  extent.charged_ = false;
  arena_.free(extent);
}

void PoolCore::free_all(std::span<Extent* const> extents) {
  bool over = false;
  std::shared_ptr<PoolCore> alive;  // while it serves: the pool may be destroyed meanwhile
  {
    std::lock_guard lock(mutex_);
    for (Extent* extent : extents) free_locked(*extent);
    over = buffers_over_locked();
    if (!closing_ && !queue_.empty()) alive = shared_from_this();
  }
  // From here on `this` may be gone, unless one of the two says that it is not.
  if (over) part_is_over();
  if (alive != nullptr) alive->serve();
}

bool PoolCore::collect_caches(bool close) {
  FrameVector<Extent*> found;
  {
    std::lock_guard lock(caches_mutex_);
    for (const auto& cache : caches_) cache->drain(found, close);
  }
  if (found.empty()) return false;
  free_all(found);  // and serves: whoever queued meanwhile found the caches empty
  return true;
}

std::shared_ptr<ThreadCache> PoolCore::make_cache() {
  std::lock_guard lock(caches_mutex_);
  {
    std::lock_guard inner(mutex_);
    if (closing_) return nullptr;
  }
  caches_.push_back(std::make_shared<ThreadCache>(weak_from_this()));
  return caches_.back();
}

void PoolCore::retire_cache(ThreadCache& cache) {
  FrameVector<Extent*> found;
  cache.drain(found, /*close=*/true);
  {
    std::lock_guard lock(caches_mutex_);
    retired_hits_ += cache.hits();
    std::erase_if(caches_, [&](const auto& other) { return other.get() == &cache; });
  }
  if (!found.empty()) free_all(found);
}

}  // namespace pawl::detail
