// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"

namespace pawl::fuzz {

/// A property of the target: if it does not hold, the process ends and libFuzzer keeps the input.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %s\n", property);
  std::abort();
}

/// Bytes in a heap block of exactly their size, so that the address sanitizer sees a read of one
/// byte more.
class Exact {
 public:
  explicit Exact(Input bytes)
      : block_(std::make_unique<std::byte[]>(bytes.size())), bytes_(bytes.size()) {
    if (!bytes.empty()) std::memcpy(block_.get(), bytes.data(), bytes.size());
  }
  [[nodiscard]] Input bytes() const { return {block_.get(), bytes_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(block_.get()), bytes_};
  }

 private:
  std::unique_ptr<std::byte[]> block_;
  std::size_t bytes_;
};

/// A view that a decoder returned is empty or lies in what it decoded.
inline void require_inside(Input view, Input whole) {
  if (view.empty()) return;
  const std::less_equal<const std::byte*> before;
  require(before(whole.data(), view.data()) &&
              before(view.data() + view.size(), whole.data() + whole.size()),
          "a decoded view lies in the input");
}
inline void require_inside(std::string_view view, Input whole) {
  require_inside(std::as_bytes(std::span(view)), whole);
}

inline bool equal(Input a, Input b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

/// Takes an input apart, front to back; at its end everything is 0 and empty.
class Splitter {
 public:
  explicit Splitter(Input input) : rest_(input) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  /// A number of 0 to 8 bytes: small ones are likely.
  std::uint64_t any() { return number(u8() % 9); }
  /// Below `bound`, which is 1 to 256.
  unsigned below(unsigned bound) { return u8() % bound; }
  bool coin() { return (u8() & 1) != 0; }
  template <class T, std::size_t n>
  T pick(const T (&list)[n]) {
    return list[below(n)];
  }
  Input bytes(std::size_t bytes_max) {
    const Input taken = rest_.first(std::min(bytes_max, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  Input rest() { return bytes(rest_.size()); }

 private:
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const Input taken = bytes(size);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(taken[i]) << (8 * i);
    }
    return value;
  }

  Input rest_;
};

}  // namespace pawl::fuzz
