// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: ok(x) needs an x that can fail
#include "pawl/task.h"

pawl::Task<int> number();
pawl::Task<pawl::Status> body() {
  co_await ok(number());
  co_return pawl::Status();
}
