// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "pawl/status.h"

namespace pawl::memory {

/// The process's mappings as text, /proc/self/maps; empty where there is no /proc.
std::string read_maps();

/// Whether every page of `memory` is mapped and may be read and written, by that text; ok if it is
/// empty. invalid_argument else.
Status check_mapped(std::span<const std::byte> memory, std::string_view maps);

}  // namespace pawl::memory
