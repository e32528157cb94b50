// SPDX-License-Identifier: Apache-2.0
#include "demo_node.h"

#include "demo_corpus.h"

namespace pawl::tools {

namespace {

// Acquires are served in their order, so that one for a large file that waits for room, or for the
// pool to grow, holds up those for small ones: there is room for all lanes, most of it at the
// start.
constexpr std::size_t kPoolBytes = std::size_t{640} << 20;
constexpr std::size_t kPoolBytesAtStart = std::size_t{384} << 20;

}  // namespace

fabric::FaultPlan plan_of(const RowSettings& settings, std::uint64_t seed, const ReuseBook& book) {
  fabric::FaultPlan plan;
  plan.seed = seed;
  plan.late_after = settings.deadline;
  if (!settings.hold) return plan;
  plan.hold_read_by = [&settings, &book](const fabric::WorkRequest& read) {
    return hold_of(settings, book.file_bytes(read.remote));
  };
  return plan;
}

NodeOptions node_options(const RowSettings& settings, const char* name, HoldingSource& source,
                         LogSink& log) {
  NodeOptions options;
  options.name = name;
  options.fabric_source = &source;
  options.log = &log;
  options.allow_baselines = true;
  options.guard = settings.guard;
  options.inline_bytes_max = 0;  // every file is pulled, so that every file can be read late
  options.read_timeout = hold_of(settings, Corpus::kFileBytesMax).max * 2 + 5s;
  options.quarantine_timeout = options.read_timeout * 2;
  options.pool.bytes_max = kPoolBytes;
  options.pool.bytes_at_start = kPoolBytesAtStart;
  // Only timeouts and evictions take lent memory back here, not a full pool.
  options.pool.room_lease_age_min = std::chrono::hours(1);
  return options;
}

}  // namespace pawl::tools
