// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>

#include "base/check.h"

namespace pawl {
namespace {

std::uint64_t splitmix(std::uint64_t& state) noexcept {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed) noexcept {
  for (std::uint64_t& word : state_) word = splitmix(seed);
}

std::uint64_t Random::next() noexcept {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t bound) noexcept {
  if (bound == 0) return 0;
  // Draws from the incomplete last stretch of multiples are thrown away.
  const std::uint64_t reject_below = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t draw = next();
    if (draw >= reject_below) return draw % bound;
  }
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) noexcept {
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t offset = span == 0 ? next() : below(span);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

double Random::unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  while (value == 0) {
    const ssize_t got = ::getrandom(&value, sizeof(value), 0);
    if (got < 0 && errno == EINTR) continue;
    PAWL_CHECK(got == ssize_t{sizeof(value)}, "the kernel gives no random numbers (getrandom)");
  }
  return value;
}

}  // namespace pawl
