// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace pawl::detail {

/// Memory for coroutine frames and operation states: free lists by size class, a cache per thread
/// and a shared depot behind it, so that a program in its steady state does not call malloc. May be
/// freed on another thread. Aligned like malloc. Ends the process when memory runs out. Under
/// address sanitizer it is plain operator new, so that late accesses are found.
[[nodiscard]] void* frame_allocate(std::size_t bytes);
/// `bytes` as given to frame_allocate.
void frame_free(void* memory, std::size_t bytes) noexcept;

}  // namespace pawl::detail
