// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pawl::detail {

/// Prints the sentence with its place and aborts. Any thread.
[[noreturn]] void check_failed(const char* condition, const char* sentence, const char* file,
                               int line) noexcept;

/// For public headers, which define no macros: the process ends if `holds` is false.
inline void require(bool holds, const char* sentence) noexcept {
  if (!holds) [[unlikely]] {
    check_failed("", sentence, "", 0);
  }
}

}  // namespace pawl::detail
