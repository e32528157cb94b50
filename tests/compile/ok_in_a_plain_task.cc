// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: it must be a Task<Result<X>>
#include "pawl/task.h"

pawl::Task<pawl::Result<int>> number();
pawl::Task<int> body() { co_return co_await ok(number()); }
