// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pawl {

/// Which of several calls goes first. The numbers are wire format.
enum class Priority : std::uint8_t { interactive = 0, background = 1, express = 2 };

}  // namespace pawl
