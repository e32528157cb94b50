// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace pawl::memory {

class GenerationWord;

/// The end of a lease (or of one of its segments): THE one place of the library where a generation
/// goes from LENT (odd) to ended (even). Compare-and-swap, then a sequentially consistent fence, so
/// that no store that follows in program order, or in any thread that is told, passes before the
/// change. A caller that loses has seen the word changed and is fenced too. True for the winner.
bool end_word(GenerationWord& word, std::uint64_t generation) noexcept;

/// The generation of a lease, or of one of its segments: odd while it is LENT, even before and
/// after; it only grows. Lies in registered memory that peers read. The value is private, so that
/// the compiler refuses any way from odd to even but `end_word`.
class GenerationWord {
 public:
  GenerationWord() = default;
  GenerationWord(const GenerationWord&) = delete;
  GenerationWord& operator=(const GenerationWord&) = delete;

  [[nodiscard]] std::uint64_t load(std::memory_order order) const noexcept {
    return bits_.load(order);
  }
  /// The even number where a slot starts that was never used.
  void start(std::uint64_t first) {
    PAWL_CHECK((first & 1) == 0 && bits_.load(std::memory_order_relaxed) == 0,
               "a generation starts once, at an even number");
    bits_.store(first, std::memory_order_relaxed);
  }
  /// LENT with this generation, which is odd and later than any that the word had. By the one
  /// thread that has the slot.
  void lend(std::uint64_t generation, std::memory_order order) {
    PAWL_CHECK((generation & 1) != 0 && generation > bits_.load(std::memory_order_relaxed),
               "a generation is lent again");
    bits_.store(generation, order);
  }

 private:
  friend bool end_word(GenerationWord& word, std::uint64_t generation) noexcept;
  std::atomic<std::uint64_t> bits_{0};
};
static_assert(sizeof(GenerationWord) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace pawl::memory
