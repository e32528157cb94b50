// SPDX-License-Identifier: Apache-2.0
#include "memory/block_uses.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
// The thread sanitizer does not model fences. These order the notes against the bytes of the user.
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace pawl::memory {

// The notes (N), the fence, later writes to the bytes (W); on the other side the copy (C), the
// fence, the look at the notes (L). A copy that saw one of the W is followed by an L that sees N.
void BlockUses::advance(std::size_t first, std::size_t last) {
  const std::uint64_t use = now_.load(std::memory_order_relaxed) + 1;
  now_.store(use, std::memory_order_relaxed);
  for (std::size_t i = first; i <= last; ++i) begun_[i].store(use, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool BlockUses::same_after_copy(std::size_t first, std::size_t last, std::uint64_t use) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return same(first, last, use);
}

}  // namespace pawl::memory
