// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pawl/status.h"

namespace pawl::tools {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 64;  // as EX_USAGE
inline constexpr int kTryAgain = 75;    // as EX_TEMPFAIL

/// Of a command that ends with this.
inline int exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return kDone;
    case Code::unavailable:
    case Code::overloaded:
    case Code::resource_exhausted:
      return kTryAgain;
    case Code::invalid_argument:
    case Code::not_found:
      return kWrongUsage;
    default:
      return kFailed;
  }
}

}  // namespace pawl::tools
