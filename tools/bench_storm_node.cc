// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "bench_node.h"
#include "bench_storm.h"

namespace pawl::tools {

namespace {

// Far beyond any time that a READ is held for.
constexpr Duration kReadTimeout = 100s;
constexpr std::int64_t kHoldDeadlines = 2;

}  // namespace

void HoldBook::set(std::span<const std::byte> landing, Duration hold) {
  landings_[landing.data()] = {landing.size(), hold};
}

fabric::RandomDelay HoldBook::hold_of(const fabric::WorkRequest& read) const {
  const std::byte* const at = read.local.empty() ? nullptr : read.local[0].address;
  auto found = landings_.upper_bound(at);
  if (found == landings_.begin()) return {};
  --found;
  const Landing& landing = found->second;
  if (at >= found->first + landing.bytes || landing.hold <= Duration{0}) return {};
  return {.probability = 1, .min = landing.hold, .max = landing.hold};
}

fabric::FaultPlan HoldBook::plan() const {
  fabric::FaultPlan plan;
  plan.hold_read_by = [this](const fabric::WorkRequest& read) { return hold_of(read); };
  return plan;
}

HoldRange hold_range(Shape shape, Duration deadline) {
  const Duration lent = shape == Shape::download ? deadline / kLendParts : deadline;
  return {lent, deadline * kHoldDeadlines};
}

NodeOptions storm_node_options(const SampleSettings& settings, const char* name, LogSink& log,
                               const char* fabric) {
  NodeOptions options = bench_node_options(settings, name, log, fabric);
  options.read_timeout = kReadTimeout;
  options.quarantine_timeout = kReadTimeout * 2;
  const std::size_t bytes = kStormPlaces * settings.outstanding * settings.size * 2;
  options.pool.bytes_max = std::max(options.pool.bytes_max, bytes * 4 / 3);
  options.pool.quarantine_bytes_max = options.pool.bytes_max;
  // The end of a use takes lent memory back here, not a full pool.
  options.pool.room_lease_age_min = std::chrono::hours(1);
  return options;
}

}  // namespace pawl::tools
