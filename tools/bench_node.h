// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench_board.h"
#include "pawl/buffer.h"
#include "pawl/node.h"
#include "pawl/result.h"

namespace pawl::tools {

/// Both ends have the same options, all but these those of every program.
NodeOptions bench_node_options(const SampleSettings& settings, const char* name, LogSink& log,
                               const char* fabric);

/// kBenchBlocks blocks with the contents of their numbers. Before the node runs.
Result<std::vector<Block>> make_blocks(Node& node, std::uint64_t size);

}  // namespace pawl::tools
