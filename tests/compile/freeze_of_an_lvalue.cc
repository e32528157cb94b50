// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: it takes the buffer: std::move(buffer).freeze()
#include "pawl/buffer.h"

pawl::Block freeze_it(pawl::Buffer& buffer) { return buffer.freeze(); }
