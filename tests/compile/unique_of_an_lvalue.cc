// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: it takes the block: std::move(block).unique()
#include "pawl/buffer.h"

bool is_unique(pawl::Block& block) { return block.unique().ok(); }
