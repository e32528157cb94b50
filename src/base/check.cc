// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pawl::detail {

void check_failed(const char* condition, const char* sentence, const char* file,
                  int line) noexcept {
  if (file[0] != '\0') {
    std::fprintf(stderr, "pawl: %s (%s is false at %s:%d)\n", sentence, condition, file, line);
  } else {
    std::fprintf(stderr, "pawl: %s\n", sentence);
  }
  std::fflush(stderr);
  std::abort();
}

}  // namespace pawl::detail
