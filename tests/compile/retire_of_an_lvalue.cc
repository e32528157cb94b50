// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: it takes the block: std::move(block).retire()
#include "pawl/buffer.h"

void retire_it(pawl::Block& block) { block.retire(); }
