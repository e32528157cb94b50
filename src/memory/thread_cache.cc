// SPDX-License-Identifier: Apache-2.0
#include "memory/thread_cache.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "memory/pool_core.h"

namespace pawl::memory {

using detail::Extent;

// A waiter counts itself before it collects the caches, and the caches ask for waiters inside their
// mutex: so either the collector finds the buffer here, or this thread sees the waiter.
Extent* ThreadCache::pop(unsigned order, const std::atomic<std::uint32_t>& waiters) {
  std::lock_guard lock(mutex_);
  Class& c = classes_[order];
  if (c.count == 0 || waiters.load(std::memory_order_relaxed) != 0) return nullptr;
  ++hits_;
  bytes_ -= order_bytes(order);
  return c.extents[--c.count];
}

bool ThreadCache::push(Extent& extent, unsigned order, const std::atomic<std::uint32_t>& waiters,
                       std::array<Extent*, kCountMax>& spilled, std::size_t& spilled_count) {
  std::lock_guard lock(mutex_);
  if (closed_ || waiters.load(std::memory_order_relaxed) != 0) return false;
  Class& c = classes_[order];
  const std::size_t bytes = order_bytes(order);
  if (c.count == kCountMax || bytes_ + bytes > kBytesMax) {
    const std::uint32_t older = (c.count + 1) / 2;
    if (older == 0) return false;  // other classes fill the cache
    std::copy_n(c.extents.begin(), older, spilled.begin());
    std::copy(c.extents.begin() + older, c.extents.begin() + c.count, c.extents.begin());
    c.count -= older;
    bytes_ -= older * bytes;
    spilled_count = older;
  }
  bytes_ += bytes;
  c.extents[c.count++] = &extent;
  return true;
}

void ThreadCache::drain(detail::FrameVector<detail::Extent*>& out, bool close) {
  std::lock_guard lock(mutex_);
  for (Class& c : classes_) {
    out.insert(out.end(), c.extents.begin(), c.extents.begin() + c.count);
    c.count = 0;
  }
  bytes_ = 0;
  closed_ = closed_ || close;
}

std::size_t ThreadCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

std::uint64_t ThreadCache::hits() const {
  std::lock_guard lock(mutex_);
  return hits_;
}

namespace {

struct LastUsed {
  std::uint64_t pool = 0;
  ThreadCache* cache = nullptr;
};
constinit thread_local LastUsed t_last;
constinit thread_local bool t_ended = false;

// The caches of one thread, of all pools.
class ThreadCaches {
 public:
  ThreadCaches() = default;
  ThreadCaches(const ThreadCaches&) = delete;
  ThreadCaches& operator=(const ThreadCaches&) = delete;
  ~ThreadCaches() {
    t_ended = true;
    t_last = {};
    for (Entry& entry : entries_) {
      if (auto core = entry.cache->core().lock()) core->retire_cache(*entry.cache);
    }
  }

  ThreadCache* find(detail::PoolCore& core) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.cache->core().expired(); });
    for (Entry& entry : entries_) {
      if (entry.pool == core.id()) return entry.cache.get();
    }
    std::shared_ptr<ThreadCache> made = core.make_cache();
    if (made == nullptr) return nullptr;
    entries_.push_back(Entry{core.id(), std::move(made)});
    return entries_.back().cache.get();
  }

 private:
  struct Entry {
    std::uint64_t pool;
    std::shared_ptr<ThreadCache> cache;
  };
  std::vector<Entry> entries_;
};

}  // namespace

ThreadCache* this_thread_cache(detail::PoolCore& core) {
  if (t_last.pool == core.id()) [[likely]]
    return t_last.cache;
  if (t_ended) return nullptr;
  thread_local ThreadCaches caches;
  ThreadCache* cache = caches.find(core);
  t_last = cache != nullptr ? LastUsed{core.id(), cache} : LastUsed{};
  return cache;
}

}  // namespace pawl::memory
