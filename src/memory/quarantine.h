// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/list.h"
#include "memory/small_mutex.h"
#include "pawl/quarantine.h"
#include "pawl/time.h"

namespace pawl::memory {

/// One memory in quarantine, as dumps and bounds see it.
struct QuarantineEntry {
  QuarantineReason reason = QuarantineReason::none;
  TimePoint since;          ///< when it came into quarantine; a change of reason keeps it
  std::uint64_t bytes = 0;  ///< held for a landing; of a lease those that were lent
  bool lent = false;        ///< held by a lease; else by a landing
};

/// The books of what is in quarantine. Bounds are for those who ask: nothing is ever released
/// because a bound is reached. Any thread.
class QuarantineLedger {
 public:
  explicit QuarantineLedger(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  QuarantineLedger(const QuarantineLedger&) = delete;
  QuarantineLedger& operator=(const QuarantineLedger&) = delete;

  struct Totals {
    std::uint64_t bytes = 0, count = 0;
    std::array<std::uint64_t, kQuarantineReasons> bytes_by_reason{};
    TimePoint oldest = TimePoint::never();  ///< never() if there is none
  };
  [[nodiscard]] Totals totals() const;
  /// New transfers are to be refused.
  [[nodiscard]] bool full() const;

  /// fn(const QuarantineEntry&), oldest first, with the ledger's mutex held: fn only writes down.
  template <class Fn>
  void for_each(Fn&& fn) const {
    std::lock_guard lock(mutex_);
    for (Node& node : nodes_) fn(std::as_const(node.entry));
  }

 private:
  friend class Quarantined;
  struct Node : ListNode<> {
    QuarantineEntry entry;
  };

  const std::uint64_t bytes_max_;
  mutable SmallMutex mutex_;
  mutable List<Node> nodes_;  // in the order of `since`
  Totals totals_;
};

/// The place of one memory in the ledger; leaves it when destroyed. Its holder's thread.
class Quarantined {
 public:
  Quarantined() = default;
  Quarantined(Quarantined&& other) noexcept
      : ledger_(other.ledger_), node_(std::move(other.node_)) {}
  Quarantined& operator=(Quarantined&& other) noexcept {
    if (this != &other) {
      clear();
      ledger_ = other.ledger_;
      node_ = std::move(other.node_);
    }
    return *this;
  }
  ~Quarantined() { clear(); }

  /// Enters, or changes the reason; `none` leaves.
  void set(QuarantineLedger& ledger, QuarantineReason reason, std::uint64_t bytes, bool lent,
           TimePoint now);
  void clear() noexcept;
  [[nodiscard]] explicit operator bool() const { return node_ != nullptr; }

 private:
  QuarantineLedger* ledger_ = nullptr;
  std::unique_ptr<QuarantineLedger::Node> node_;
};

}  // namespace pawl::memory
