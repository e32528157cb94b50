// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: a Task needs a poller: node.block_on(task)
#include "pawl/blocking.h"

pawl::Task<pawl::Status> work();
void wait() { pawl::block(work()); }
