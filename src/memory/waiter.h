// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/list.h"
#include "memory/extent.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/status.h"
#include "pawl/time.h"

namespace pawl::memory {

/// Somebody who wants buffers, all or none, in the pool's queue. Guarded by the pool's mutex while
/// linked; whoever unlinks it owes it `settled`.
class Waiter : public ListNode<> {
 public:
  /// The size classes wanted.
  [[nodiscard]] std::span<const std::uint8_t> orders() const { return orders_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool landing() const { return landing_; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  /// The largest request from behind that may still be served before this one: smaller ones only,
  /// and no more of them in all than this one's own bytes.
  [[nodiscard]] std::size_t overtakable() const {
    constexpr std::size_t kUnit = 4096;  // every request is a multiple of it
    return bytes_ - std::min(bytes_, std::max(overtaken, kUnit));
  }

  /// Unlinked just now, with the pool's mutex held: keeps the object until `settled` is over.
  virtual void keep() noexcept = 0;
  /// With no lock held: `got` holds the extents, or `why` says what went wrong.
  virtual void settled() = 0;
  /// True if its deadline is watched by the pool's helper.
  [[nodiscard]] virtual bool without_poller() const = 0;

  detail::FrameVector<detail::Extent*> got;  // room for orders() is reserved before it is queued
  Status why;
  bool queued = false;        // in the pool's queue; the pool's mutex
  std::size_t overtaken = 0;  // bytes that smaller requests from behind took since; the same

 protected:
  Waiter(std::span<const std::size_t> sizes, bool landing, TimePoint deadline);
  ~Waiter() = default;

  detail::FrameVector<std::uint8_t> orders_;
  std::size_t bytes_ = 0;
  bool landing_;
  TimePoint deadline_;
};

}  // namespace pawl::memory
