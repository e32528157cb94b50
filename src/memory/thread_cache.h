// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/arena.h"
#include "memory/extent.h"
#include "memory/small_mutex.h"
#include "pawl/detail/frame_vector.h"

namespace pawl::memory {

/// One thread's free buffers of one pool, last in, first out, so that acquire and release on one
/// thread touch no shared state. Bounded in bytes and count; large classes are not cached. Its
/// mutex is taken by its thread, and by whoever collects all caches because memory is short: so
/// nothing that is free is out of reach of a waiter.
class ThreadCache {
 public:
  static constexpr unsigned kOrdersCached = 9;                    // up to 1 MiB
  static constexpr std::size_t kCountMax = 32;                    // buffers per class
  static constexpr std::size_t kBytesMax = std::size_t{4} << 20;  // all classes

  explicit ThreadCache(std::weak_ptr<detail::PoolCore> core) : core_(std::move(core)) {}

  /// A free buffer of the class, nullptr if there is none. `barred`: waiters come first.
  detail::Extent* pop(unsigned order, const std::atomic<std::uint32_t>& waiters);
  /// False if it does not take the buffer: closed, waiters come first, or full; in the last case
  /// the older half of the class is moved to `spilled`, and `spilled_count` says how many.
  bool push(detail::Extent& extent, unsigned order, const std::atomic<std::uint32_t>& waiters,
            std::array<detail::Extent*, kCountMax>& spilled, std::size_t& spilled_count);
  /// Takes everything out; with `close` it takes nothing in any more.
  void drain(detail::FrameVector<detail::Extent*>& out, bool close);

  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::uint64_t hits() const;
  [[nodiscard]] const std::weak_ptr<detail::PoolCore>& core() const { return core_; }

 private:
  struct Class {
    std::uint32_t count = 0;
    std::array<detail::Extent*, kCountMax> extents;
  };

  mutable SmallMutex mutex_;
  bool closed_ = false;
  std::size_t bytes_ = 0;
  std::uint64_t hits_ = 0;
  std::weak_ptr<detail::PoolCore> core_;
  std::array<Class, kOrdersCached> classes_;
};

/// The calling thread's cache for a pool (by its never reused id), made at first use and flushed
/// when the thread ends. nullptr while the thread is ending.
ThreadCache* this_thread_cache(detail::PoolCore& core);

}  // namespace pawl::memory
