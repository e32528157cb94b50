// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "demo_board.h"
#include "demo_hold.h"
#include "demo_reuse.h"
#include "error_sink.h"
#include "fabric/faulty/fault_plan.h"
#include "fabric/faulty/shared_reuse_table.h"
#include "holding_source.h"
#include "pawl/log.h"
#include "pawl/node.h"
#include "pawl/priority.h"

// What the nodes of both processes have in common.
namespace pawl::tools {

inline Priority priority_of(std::size_t bytes) {
  return bytes > kLargeFileBytes ? Priority::interactive : Priority::express;
}

/// How the READs of one process are held.
fabric::FaultPlan plan_of(const RowSettings& settings, std::uint64_t seed, const ReuseBook& book);

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
