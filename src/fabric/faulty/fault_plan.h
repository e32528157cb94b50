// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "fabric/random_delay.h"
#include "fabric/work.h"
#include "pawl/time.h"

namespace pawl::fabric {

/// The faults that FaultyFabric injects. May be changed between turns through
/// FaultyFabric::plan(); the seed is read once.
struct FaultPlan {
  std::uint64_t seed = 1;

  /// READs are held after post has accepted them, below every check of the caller's, and given to
  /// the device later: late READs.
  RandomDelay hold_read;
  /// If set, says how this READ is held, in place of hold_read. On the poller's thread, in post.
  std::function<RandomDelay(const WorkRequest&)> hold_read_by;
  Duration late_after = 100ms;  ///< a READ held at least this long counts as late

  RandomDelay delay_send;        ///< also what was posted behind it; the order stays
  RandomDelay delay_completion;  ///< receives of one endpoint keep their order

  double refuse_post = 0;     ///< per request: "queue full"
  double refuse_connect = 0;  ///< per connect
  double lose_connected = 0;  ///< per connect: `connected` never comes, the deadline ends it
  double fail_endpoint = 0;   ///< per accepted request: its endpoint goes to ERR
  /// The n-th request that is accepted, counted from 1 over all endpoints, takes its endpoint to
  /// ERR; 0 = none.
  std::uint64_t fail_at_operation = 0;
};

/// What was injected so far.
struct FaultCounters {
  std::uint64_t operations = 0;  ///< requests accepted
  std::uint64_t reads_held = 0;
  std::uint64_t reads_executed = 0;  ///< held, then given to the device
  std::uint64_t reads_late = 0;      ///< of these, held at least late_after
  std::uint64_t reads_flushed_while_held = 0;
  std::uint64_t reads_of_reused = 0;       ///< executed when the buffer was lent anew (ReuseOracle)
  std::uint64_t reads_late_of_reused = 0;  ///< of these, late
  std::uint64_t sends_delayed = 0;
  std::uint64_t completions_delayed = 0;
  std::uint64_t posts_refused = 0;
  std::uint64_t connects_refused = 0;
  std::uint64_t connected_lost = 0;
  std::uint64_t endpoints_failed = 0;
};

}  // namespace pawl::fabric
