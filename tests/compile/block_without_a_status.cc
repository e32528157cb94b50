// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: Result<int>
#include "pawl/blocking.h"

// block() may be refused: what cannot carry a Status comes as a Result, which has to be looked at.
int wait() { return pawl::block(pawl::Operation<int>::ready(1)); }
