// SPDX-License-Identifier: Apache-2.0
// What the examples share: they say what they saw, and fail if it is not what they show.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>

#include "pawl/status.h"

namespace examples {

/// Prints the sentence, which is what the example shows; a failure if it does not hold.
inline pawl::Status check(bool holds, const char* sentence) {
  std::printf("%s: %s\n", holds ? "ok" : "WRONG", sentence);
  return holds ? pawl::Status() : pawl::Status(pawl::Code::internal, sentence);
}

/// For main().
inline int exit_code(const pawl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "failed: %s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}

/// Content that one recognises.
inline void fill(std::span<std::byte> bytes, char c) {
  std::ranges::fill(bytes, static_cast<std::byte>(c));
}
inline bool is_full_of(std::span<const std::byte> bytes, char c) {
  return !bytes.empty() &&
         std::ranges::all_of(bytes, [c](std::byte b) { return b == static_cast<std::byte>(c); });
}

}  // namespace examples
