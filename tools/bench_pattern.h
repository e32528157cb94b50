// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pawl::tools {

/// Contents of messages and blocks: by their number, so that one is not taken for another.

/// Blocks that the lending end holds and sends in turn. Prime, so that with any usual number of
/// calls under way a buffer is used again for another block.
inline constexpr std::uint32_t kBenchBlocks = 5;

inline std::uint64_t pattern_word(std::uint64_t number, std::uint64_t index) {
  return (number * 0x9e3779b97f4a7c15 + 1) ^ (index * 0xff51afd7ed558ccd);
}

inline void fill_pattern(std::uint64_t number, std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(number, at);
    std::memcpy(&out[at], &word, std::min(sizeof(word), out.size() - at));
  }
}

/// Bytes that differ, in the word at `at`, a multiple of 8.
inline std::uint64_t wrong_in_word(std::uint64_t number, std::span<const std::byte> bytes,
                                   std::size_t at) {
  const std::uint64_t word = pattern_word(number, at);
  const std::size_t size = std::min(sizeof(word), bytes.size() - at);
  if (std::memcmp(&bytes[at], &word, size) == 0) return 0;
  std::byte expected[sizeof(word)];
  std::memcpy(expected, &word, sizeof(word));
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < size; ++i) wrong += bytes[at + i] != expected[i] ? 1 : 0;
  return wrong;
}

/// Wrong bytes; a length that is wrong counts as all of them.
inline std::uint64_t wrong_bytes(std::uint64_t number, std::span<const std::byte> bytes,
                                 std::size_t size) {
  if (bytes.size() != size) return size;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    wrong += wrong_in_word(number, bytes, at);
  }
  return wrong;
}

/// The same for eight words, from the first to the last: what a measured transfer can afford.
inline std::uint64_t wrong_bytes_sampled(std::uint64_t number, std::span<const std::byte> bytes,
                                         std::size_t size) {
  constexpr std::size_t kSteps = 7;
  if (bytes.size() != size) return size;
  const std::size_t last = (size - 1) / sizeof(std::uint64_t);  // words, counted from 0
  std::uint64_t wrong = 0;
  for (std::size_t step = 0; step <= kSteps; ++step) {
    wrong += wrong_in_word(number, bytes, last * step / kSteps * sizeof(std::uint64_t));
  }
  return wrong;
}

inline std::uint64_t wrong_bytes(std::uint64_t number, std::span<const std::byte> bytes,
                                 std::size_t size, bool thorough) {
  return thorough ? wrong_bytes(number, bytes, size) : wrong_bytes_sampled(number, bytes, size);
}

}  // namespace pawl::tools
