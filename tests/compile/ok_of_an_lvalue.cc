// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: write co_await ok(std::move(x))
#include "pawl/task.h"

pawl::Task<pawl::Result<int>> number();
pawl::Task<pawl::Status> body() {
  auto task = number();
  co_await ok(task);
  co_return pawl::Status();
}
