// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pawl/node.h"

namespace pawl::kit {

/// What both sides of a storm run with: a small pool, all of it made at the start, so that its
/// memory does not depend on what came together by chance.
NodeOptions storm_node_options();

/// Serves testing::MixedLoad at `address` in a process of its own, and does what the lines on its
/// standard input say: "drain" the server, "serve" again at the same address in the same node,
/// "settle": report what is left once nothing is under way. Ends with its input, or with `parent`.
/// Returns the exit code.
int run_storm_server(const std::string& address, int parent);

}  // namespace pawl::kit
