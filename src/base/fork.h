// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pawl {

/// How many forks lie between the first call in an ancestor of this process and now: it differs in
/// a child from what its parent was told. Cheap; any thread.
std::uint32_t forks() noexcept;

}  // namespace pawl
