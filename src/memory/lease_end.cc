// SPDX-License-Identifier: Apache-2.0
#include "memory/generation_word.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
// The thread sanitizer does not model fences. Nothing that it sees depends on this one: it orders
// the change before stores that a device or the kernel reads.
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace pawl::memory {

// Why verify is sound (docs/guarantees.md): every fetch of the data (D) comes before the check (F);
// a check that sees the old generation comes before the change here (S); the change comes before
// any later write to the memory (W) because of the fence. So no D sees W. A release store instead
// would let the W that follows it in program order become visible first.
bool end_word(GenerationWord& word, std::uint64_t generation) noexcept {
  std::uint64_t expected = generation;
  const bool won = word.bits_.compare_exchange_strong(
      expected, generation + 1, std::memory_order_acq_rel, std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return won;
}

}  // namespace pawl::memory
