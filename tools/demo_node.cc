// SPDX-License-Identifier: Apache-2.0
#include "demo_node.h"

#include <utility>

#include "fabric/faulty/faulty_fabric.h"
#include "rpc/system_fabric.h"

namespace pawl::tools {

namespace {

// A READ that is one chunk of a long transfer is held more rarely, or no long transfer would end.
constexpr double kHoldSmall = 0.15;
constexpr double kHoldLarge = 0.0005;
constexpr std::uint64_t kChunkBytes = 64 << 10;
constexpr int kHoldDeadlines = 5;

constexpr int kLargeDeadlineFactor = 4;
constexpr std::uint64_t kLargeBytesPerSecond = 64 << 20;

// Acquires are served in their order, so that one for a large file that waits for room, or for the
// pool to grow, holds up those for small ones: there is room for all lanes, most of it at the
// start.
constexpr std::size_t kPoolBytes = std::size_t{640} << 20;
constexpr std::size_t kPoolBytesAtStart = std::size_t{384} << 20;

Duration large_base(const RowSettings& settings) {
  return settings.deadline * kLargeDeadlineFactor;
}

}  // namespace

Duration deadline_of(const RowSettings& settings, std::size_t bytes) {
  if (bytes <= kLargeFileBytes) return settings.deadline;
  const double seconds = static_cast<double>(bytes) / static_cast<double>(kLargeBytesPerSecond);
  return large_base(settings) + Duration(static_cast<std::int64_t>(seconds * 1e9));
}

HoldingSource::HoldingSource(const RowSettings& settings, std::uint64_t seed,
                             fabric::ReuseOracle& oracle)
    : fabric_(settings.fabric.data()), oracle_(oracle) {
  plan_.seed = seed;
  plan_.late_after = settings.deadline;
  if (!settings.hold) return;
  plan_.hold_read = {kHoldSmall, Duration{0}, settings.deadline * kHoldDeadlines};
  plan_.hold_large_read = {kHoldLarge, Duration{0}, large_base(settings) * kHoldDeadlines};
  plan_.large_read_bytes = kChunkBytes;
}

Result<std::unique_ptr<fabric::Fabric>> HoldingSource::make_fabric(std::size_t poller) {
  if (!system_) {
    Result<std::unique_ptr<detail::FabricSource>> made = rpc::make_system_source(fabric_);
    if (!made.ok()) return made.status();
    system_ = *std::move(made);
  }
  Result<std::unique_ptr<fabric::Fabric>> inner = system_->make_fabric(poller);
  if (!inner.ok()) return inner;
  inner_.push_back(*std::move(inner));
  return std::unique_ptr<fabric::Fabric>(
      std::make_unique<fabric::FaultyFabric>(*inner_.back(), plan_, &oracle_));
}

NodeOptions node_options(const RowSettings& settings, const char* name, HoldingSource& source,
                         LogSink& log) {
  NodeOptions options;
  options.name = name;
  options.fabric_source = &source;
  options.log = &log;
  options.allow_baselines = true;
  options.guard_automatic = false;
  options.guard = settings.guard;
  options.inline_bytes_max = 0;  // every file is pulled, so that every file can be read late
  options.read_timeout = large_base(settings) * kHoldDeadlines * 4 + 5s;
  options.pool.bytes_max = kPoolBytes;
  options.pool.bytes_at_start = kPoolBytesAtStart;
  // Only timeouts and evictions take lent memory back here, not a full pool.
  options.pool.room_lease_age_min = std::chrono::hours(1);
  return options;
}

}  // namespace pawl::tools
