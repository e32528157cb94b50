// SPDX-License-Identifier: Apache-2.0
// EXPECT-ERROR: a Task takes by value an aggregate that has a destructor
#include <string>

#include "pawl/task.h"

struct Options {
  std::string name;
};
pawl::Task<int> get(Options options) { co_return static_cast<int>(options.name.size()); }
