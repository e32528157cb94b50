// SPDX-License-Identifier: Apache-2.0
#include "memory/quarantine.h"

#include <mutex>

namespace pawl {

std::string_view quarantine_reason_name(QuarantineReason reason) {
  switch (reason) {
    case QuarantineReason::none:
      return "none";
    case QuarantineReason::read_in_flight:
      return "read in flight";
    case QuarantineReason::endpoint_drain:
      return "endpoint drain";
    case QuarantineReason::cancel_unacked:
      return "cancel unacknowledged";
    case QuarantineReason::window_revoke:
      return "window revoke";
  }
  return "unknown";
}

}  // namespace pawl

namespace pawl::memory {

QuarantineLedger::Totals QuarantineLedger::totals() const {
  std::lock_guard lock(mutex_);
  Totals totals = totals_;
  if (Node* oldest = nodes_.front()) totals.oldest = oldest->entry.since;
  return totals;
}

bool QuarantineLedger::full() const {
  std::lock_guard lock(mutex_);
  return totals_.bytes >= bytes_max_;
}

void Quarantined::set(QuarantineLedger& ledger, QuarantineReason reason, std::uint64_t bytes,
                      bool lent, TimePoint now) {
  if (reason == QuarantineReason::none) {
    clear();
    return;
  }
  std::unique_ptr<QuarantineLedger::Node> made;
  if (node_ == nullptr) made = std::make_unique<QuarantineLedger::Node>();
  std::lock_guard lock(ledger.mutex_);
  if (made != nullptr) {
    made->entry = QuarantineEntry{reason, now, bytes, lent};
    ledger_ = &ledger;
    node_ = std::move(made);
    ledger.nodes_.push_back(*node_);
    ledger.totals_.bytes += bytes;
    ++ledger.totals_.count;
  } else {
    const std::size_t old = static_cast<std::size_t>(node_->entry.reason);
    ledger.totals_.bytes_by_reason[old] -= node_->entry.bytes;
    node_->entry.reason = reason;
  }
  ledger.totals_.bytes_by_reason[static_cast<std::size_t>(reason)] += node_->entry.bytes;
}

void Quarantined::clear() noexcept {
  if (node_ == nullptr) return;
  std::lock_guard lock(ledger_->mutex_);
  const QuarantineEntry& entry = node_->entry;
  ledger_->totals_.bytes -= entry.bytes;
  --ledger_->totals_.count;
  ledger_->totals_.bytes_by_reason[static_cast<std::size_t>(entry.reason)] -= entry.bytes;
  node_.reset();  // unlinks
}

}  // namespace pawl::memory
