// SPDX-License-Identifier: Apache-2.0
#include "demo_node.h"

#include <utility>

#include "demo_corpus.h"
#include "fabric/faulty/faulty_fabric.h"
#include "rpc/system_fabric.h"

namespace pawl::tools {

namespace {

// Acquires are served in their order, so that one for a large file that waits for room, or for the
// pool to grow, holds up those for small ones: there is room for all lanes, most of it at the
// start.
constexpr std::size_t kPoolBytes = std::size_t{640} << 20;
constexpr std::size_t kPoolBytesAtStart = std::size_t{384} << 20;

}  // namespace

HoldingSource::HoldingSource(const RowSettings& settings, std::string_view fabric,
                             std::uint64_t seed, ReuseBook& book)
    : fabric_(fabric), book_(book) {
  plan_.seed = seed;
  plan_.late_after = settings.deadline;
  if (!settings.hold) return;
  plan_.hold_read_by = [&settings, &book](const fabric::WorkRequest& read) {
    return hold_of(settings, book.file_bytes(read.remote));
  };
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
      std::make_unique<fabric::FaultyFabric>(*inner_.back(), plan_, &book_));
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
