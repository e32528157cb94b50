// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: write co_await std::move(task)
#include "pawl/task.h"

pawl::Task<int> number();
pawl::Task<void> body() {
  auto task = number();
  co_await task;
}
