// SPDX-License-Identifier: Apache-2.0
// libFuzzer's way in. PAWL_FUZZ_TARGET: a function of targets.h.
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  pawl::fuzz::PAWL_FUZZ_TARGET(std::as_bytes(std::span(data, bytes)));
  return 0;
}
