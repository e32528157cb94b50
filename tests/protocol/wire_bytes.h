// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Bytes written as hex, and any body decoded and encoded again, for the tests of the codec.
namespace pawl::rpc::test {

using Bytes = std::vector<std::byte>;

/// Blanks and line ends between the digits are for the reader.
inline Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ' || c == '\n') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::strtoul(digits.c_str(), nullptr, 16)));
    digits.clear();
  }
  return bytes;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 0xf];
  }
  return hex;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Decodes one frame, header and body, and encodes what it got. Empty, with the reason in `why`,
/// if it is refused.
Bytes reencode(std::span<const std::byte> frame, const char*& why);

}  // namespace pawl::rpc::test
