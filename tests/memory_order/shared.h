// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pawl::memory_order_test {

inline constexpr std::size_t kBytes = 4096;
inline constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);

/// What both processes see besides the buffer and the generation words. The owner writes the first
/// two, the reader the others.
struct Shared {
  alignas(64) std::atomic<std::uint64_t> lent{0};  ///< the descriptor: a generation; 0: none yet
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<std::uint64_t> samples{0};
  std::atomic<std::uint64_t> valid{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> overlapped{0};
  std::atomic<std::uint64_t> wrong{0};
};

/// Word i of the buffer in the use that is lent under this generation; and back.
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
constexpr std::uint64_t pattern(std::uint64_t generation, std::size_t i) {
  return generation + i * kStep;
}
constexpr std::uint64_t use_of(std::uint64_t word, std::size_t i) { return word - i * kStep; }

/// Pages that a forked process shares; in the place of those at `at`, if given.
std::byte* map_shared(std::byte* at, std::size_t bytes);

/// A few nanoseconds each.
inline void pause(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

class SmallRandom {
 public:
  explicit SmallRandom(std::uint64_t seed) : state_(seed * kStep | 1) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 32) % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace pawl::memory_order_test
