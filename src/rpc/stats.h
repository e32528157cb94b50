// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pawl/stats.h"

namespace pawl {

/// Adds every counter and gauge but those of the pool, which pollers share.
void add_counters(NodeStats& sum, const NodeStats& part);

}  // namespace pawl
