// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: only a Block can be lent: std::move(buffer).freeze()
#include "pawl/bulk.h"

pawl::Lend lend_it(const pawl::Buffer& buffer) { return pawl::lend(buffer); }
