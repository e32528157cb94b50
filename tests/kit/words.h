// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// What the test and the processes that it starts have in common: they talk in lines, commands one
/// way and reports the other, each a word and its arguments.
namespace pawl::kit {

/// Where a reader is held.
enum class Point : std::uint8_t {
  read_posted,   ///< it has the descriptor, its READs are posted and not executed
  in_read,       ///< a part of the bytes is here
  read_done,     ///< all bytes are here, the last completion was not polled
  confirm_sent,  ///< the CONFIRM is posted and not sent
  release,       ///< download: the answer to the CONFIRM, which also released, was not polled;
                 ///< upload: the bytes are accepted, the answer, which releases, is not sent
};

inline constexpr std::array<std::string_view, 5> kPointNames{"read_posted", "in_read", "read_done",
                                                             "confirm_sent", "release"};

inline std::string_view name_of(Point point) {
  return kPointNames[static_cast<std::size_t>(point)];
}
inline std::optional<Point> point_of(std::string_view name) {
  for (std::size_t i = 0; i < kPointNames.size(); ++i) {
    if (kPointNames[i] == name) return static_cast<Point>(i);
  }
  return std::nullopt;
}

/// Byte i of a use of a buffer. Two uses less than 256 apart differ in every byte.
inline std::byte pattern(std::uint64_t use, std::size_t i) {
  return static_cast<std::byte>(i * 7 + (i >> 9) + use * 101);
}
inline void fill(std::span<std::byte> bytes, std::uint64_t use) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(use, i);
}

/// One READ moves at most this much.
inline constexpr std::size_t kChunkBytes = std::size_t{64} << 10;

/// What was handed over, byte by byte.
struct Found {
  std::size_t right = 0;
  std::size_t wrong = 0;
  std::size_t torn = 0;  ///< chunks with both
};
inline Found look(std::span<const std::byte> bytes, std::uint64_t use) {
  Found found;
  for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const std::size_t end = at + kChunkBytes < bytes.size() ? at + kChunkBytes : bytes.size();
    std::size_t right = 0;
    for (std::size_t i = at; i < end; ++i) right += bytes[i] == pattern(use, i) ? 1 : 0;
    found.right += right;
    found.wrong += end - at - right;
    if (right != 0 && right != end - at) ++found.torn;
  }
  return found;
}

}  // namespace pawl::kit
