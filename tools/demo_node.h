// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "demo_board.h"
#include "demo_hold.h"
#include "demo_reuse.h"
#include "error_sink.h"
#include "fabric/fabric.h"
#include "fabric/faulty/fault_plan.h"
#include "fabric/faulty/shared_reuse_table.h"
#include "pawl/log.h"
#include "pawl/node.h"
#include "pawl/priority.h"
#include "rpc/fabric_source.h"

// What the nodes of both processes have in common.
namespace pawl::tools {

inline Priority priority_of(std::size_t bytes) {
  return bytes > kLargeFileBytes ? Priority::interactive : Priority::express;
}

/// The system's fabric, with READs held inside it: after they were posted, below every check of a
/// deadline or cancel.
class HoldingSource final : public detail::FabricSource {
 public:
  /// `fabric` is a name for NodeOptions::fabric.
  HoldingSource(const RowSettings& settings, std::string_view fabric, std::uint64_t seed,
                ReuseBook& book);
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t poller) override;
  [[nodiscard]] const char* name() const override { return "held"; }
  [[nodiscard]] const char* reason() const override { return "the demo holds READs"; }

 private:
  const std::string fabric_;
  fabric::FaultPlan plan_;
  ReuseBook& book_;
  std::unique_ptr<detail::FabricSource> system_;
  std::vector<std::unique_ptr<fabric::Fabric>> inner_;  // outlive the nodes' fabrics, as this does
};

NodeOptions node_options(const RowSettings& settings, const char* name, HoldingSource& source,
                         LogSink& log);

/// What a child process of one row is given.
struct ChildFiles {
  int board = -1;
  int corpus = -1;
  int reuse = -1;
};

/// The bodies of the two child processes; exit codes.
int run_server(const ChildFiles& files);
int run_client(const ChildFiles& files);

}  // namespace pawl::tools
