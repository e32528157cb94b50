// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pawl/pool.h"

namespace pawl {

/// Counters of a node since its start; gauges say so. Plain values, summed over its pollers.
struct NodeStats {
  // Calls made by this node.
  std::uint64_t calls_started = 0;
  std::uint64_t calls_ok = 0;
  std::uint64_t calls_failed = 0;  ///< all but deadline and cancelled
  std::uint64_t calls_deadline = 0;
  std::uint64_t calls_cancelled = 0;
  std::uint64_t calls_live = 0;  ///< gauge
  // Calls served by this node.
  std::uint64_t served_started = 0;
  std::uint64_t served_ok = 0;
  std::uint64_t served_failed = 0;
  std::uint64_t served_expired = 0;  ///< dropped before their handler
  std::uint64_t served_shed = 0;
  std::uint64_t served_cancelled = 0;
  std::uint64_t served_live = 0;  ///< gauge
  std::uint64_t unknown_methods = 0;
  // Connections.
  std::uint64_t connections_opened = 0;
  std::uint64_t connections_lost = 0;
  std::uint64_t connections_live = 0;  ///< gauge
  std::uint64_t connects_failed = 0;
  std::uint64_t data_endpoints_opened = 0;
  std::uint64_t data_endpoints_lost = 0;  ///< while their connection went on
  std::uint64_t data_endpoints_live = 0;  ///< gauge
  std::uint64_t protocol_errors = 0;
  // Leases and checks, as owner.
  std::uint64_t leases_lent = 0;
  std::uint64_t leases_released = 0;
  std::uint64_t leases_timed_out = 0;
  std::uint64_t confirms_valid = 0;
  std::uint64_t confirms_stale = 0;
  std::uint64_t releases_ignored = 0;  ///< named an ended or foreign lease
  // Memory windows, as owner.
  std::uint64_t window_binds = 0;
  std::uint64_t window_invalidates = 0;  ///< after the reader's word
  std::uint64_t window_revokes = 0;      ///< leases whose windows ended without it
  std::uint64_t windows_bound = 0;       ///< gauge; those that are just being bound or ended too
  // Memory that was too long in quarantine (NodeOptions::quarantine_timeout).
  std::uint64_t quarantine_breaks = 0;  ///< connections that were broken for it
  std::uint64_t quarantine_alarms = 0;  ///< where that was no proof either: it stays
  // Transfers, as reader.
  std::uint64_t transfers_started = 0;
  std::uint64_t transfers_ok = 0;
  std::uint64_t transfers_stale = 0;  ///< refused by the check: bytes discarded
  std::uint64_t transfers_failed = 0;
  std::uint64_t transfers_abandoned = 0;  ///< over before their READs were
  std::uint64_t transfers_live = 0;       ///< gauge
  std::uint64_t reads_posted = 0;
  std::uint64_t reads_completed = 0;
  std::uint64_t reads_failed = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t read_timeouts = 0;
  // Messages.
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t credit_stalls = 0;
  PoolStats pool;
};

}  // namespace pawl
