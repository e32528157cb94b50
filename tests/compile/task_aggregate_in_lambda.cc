// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: a Task takes by value an aggregate that has a destructor
#include <array>
#include <string>

#include "pawl/task.h"

inline auto body = [](std::array<std::string, 2> names) -> pawl::Task<void> {
  static_cast<void>(names);
  co_return;
};
