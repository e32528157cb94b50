// SPDX-License-Identifier: Apache-2.0
#include "pawl/result.h"

#include <cstdio>
#include <cstdlib>

namespace pawl::detail {

void used_failed_result(const Status& status) {
  std::fprintf(stderr, "pawl: the value of a failed Result is used: %s\n",
               status.to_string().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace pawl::detail
