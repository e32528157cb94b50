// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pawl {

/// A seeded generator (xoshiro256**, seeded through splitmix64): the same seed gives the same
/// numbers on every machine. Injected where chance is needed, so that a run repeats by its seed.
/// Not for secrets. One thread.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept;

  std::uint64_t next() noexcept;
  /// Uniform in [0, bound); 0 for bound 0. Without bias.
  std::uint64_t below(std::uint64_t bound) noexcept;
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept;
  /// True with this probability.
  bool chance(double probability) noexcept { return unit() < probability; }
  /// Uniform in [0, 1).
  double unit() noexcept;
  /// A generator of its own for a part of the program, so that adding a draw in one part does not
  /// change what another part sees.
  Random fork() noexcept { return Random(next()); }

 private:
  std::uint64_t state_[4];
};

/// 64 unpredictable bits from the kernel, never 0: for epochs, incarnations and first generations.
/// Any thread.
std::uint64_t random_u64();

}  // namespace pawl
