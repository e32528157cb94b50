// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: block() may be refused
#include "pawl/block.h"

int wait() { return pawl::block(pawl::Operation<int>::ready(1)); }
