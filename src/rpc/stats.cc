// SPDX-License-Identifier: Apache-2.0
#include "rpc/stats.h"

namespace pawl {

namespace {
using Counter = std::uint64_t NodeStats::*;
constexpr Counter kCounters[] = {
    &NodeStats::calls_started,         &NodeStats::calls_ok,
    &NodeStats::calls_failed,          &NodeStats::calls_deadline,
    &NodeStats::calls_cancelled,       &NodeStats::calls_live,
    &NodeStats::served_started,        &NodeStats::served_ok,
    &NodeStats::served_failed,         &NodeStats::served_expired,
    &NodeStats::served_shed,           &NodeStats::served_cancelled,
    &NodeStats::served_live,           &NodeStats::unknown_methods,
    &NodeStats::connections_opened,    &NodeStats::connections_lost,
    &NodeStats::connections_live,      &NodeStats::connects_failed,
    &NodeStats::data_endpoints_opened, &NodeStats::data_endpoints_lost,
    &NodeStats::data_endpoints_live,   &NodeStats::protocol_errors,
    &NodeStats::leases_lent,           &NodeStats::leases_released,
    &NodeStats::leases_timed_out,      &NodeStats::confirms_valid,
    &NodeStats::confirms_stale,        &NodeStats::releases_ignored,
    &NodeStats::window_binds,          &NodeStats::window_invalidates,
    &NodeStats::window_revokes,        &NodeStats::windows_bound,
    &NodeStats::quarantine_breaks,     &NodeStats::quarantine_alarms,
    &NodeStats::transfers_started,     &NodeStats::transfers_ok,
    &NodeStats::transfers_stale,       &NodeStats::transfers_failed,
    &NodeStats::transfers_abandoned,   &NodeStats::transfers_live,
    &NodeStats::reads_posted,          &NodeStats::reads_completed,
    &NodeStats::reads_failed,          &NodeStats::read_bytes,
    &NodeStats::read_timeouts,         &NodeStats::messages_sent,
    &NodeStats::messages_received,     &NodeStats::credit_stalls,
};
// A counter that is not in the list would be missing in every sum.
static_assert(sizeof(NodeStats) == sizeof(PoolStats) + sizeof(kCounters) / sizeof(Counter) * 8);
}  // namespace

void add_counters(NodeStats& sum, const NodeStats& part) {
  for (const Counter counter : kCounters) sum.*counter += part.*counter;
}

}  // namespace pawl
