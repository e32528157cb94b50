// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace pawl {

/// Reads little-endian numbers from bytes that a peer sent. Never reads past the end: the first
/// read that would is refused, everything from then on gives zeros and empty spans, and `ok()` is
/// false. So a decoder reads everything and asks once.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> data) noexcept : data_(data) {}

  [[nodiscard]] bool ok() const noexcept { return !failed_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return data_.size() - position_; }
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  /// Read all of it, and nothing failed.
  [[nodiscard]] bool done() const noexcept { return ok() && remaining() == 0; }

  std::uint8_t u8() noexcept { return number<std::uint8_t>(); }
  std::uint16_t u16() noexcept { return number<std::uint16_t>(); }
  std::uint32_t u32() noexcept { return number<std::uint32_t>(); }
  std::uint64_t u64() noexcept { return number<std::uint64_t>(); }
  /// The next `n` bytes, in place; empty if fewer are left.
  std::span<const std::byte> bytes(std::size_t n) noexcept {
    if (!take(n)) return {};
    return data_.subspan(position_ - n, n);
  }
  std::string_view text(std::size_t n) noexcept {
    const auto part = bytes(n);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  void skip(std::size_t n) noexcept { (void)take(n); }
  /// Whatever is left.
  std::span<const std::byte> rest() noexcept { return bytes(remaining()); }
  /// For decoders that find a value out of range.
  void fail() noexcept {
    failed_ = true;
    position_ = data_.size();
  }

 private:
  bool take(std::size_t n) noexcept {
    if (failed_ || n > remaining()) {
      fail();
      return false;
    }
    position_ += n;
    return true;
  }
  template <std::unsigned_integral U>
  U number() noexcept {
    if (!take(sizeof(U))) return 0;
    U value = 0;
    for (std::size_t i = 0; i < sizeof(U); ++i) {
      const auto byte = std::to_integer<std::uint64_t>(data_[position_ - sizeof(U) + i]);
      value = static_cast<U>(value | (byte << (8 * i)));
    }
    return value;
  }

  std::span<const std::byte> data_;
  std::size_t position_ = 0;
  bool failed_ = false;
};

/// Writes little-endian numbers into a span. Never writes past the end: the first write that would
/// is refused as a whole, as is everything after it, and `ok()` is false.
class Writer {
 public:
  explicit Writer(std::span<std::byte> data) noexcept : data_(data) {}

  [[nodiscard]] bool ok() const noexcept { return !failed_; }
  [[nodiscard]] std::size_t size() const noexcept { return position_; }
  [[nodiscard]] std::size_t remaining() const noexcept {
    return failed_ ? 0 : data_.size() - position_;
  }
  /// What was written so far.
  [[nodiscard]] std::span<std::byte> written() const noexcept { return data_.first(position_); }

  void u8(std::uint8_t value) noexcept { number(value); }
  void u16(std::uint16_t value) noexcept { number(value); }
  void u32(std::uint32_t value) noexcept { number(value); }
  void u64(std::uint64_t value) noexcept { number(value); }
  void bytes(std::span<const std::byte> part) noexcept {
    std::byte* to = take(part.size());
    if (to != nullptr && !part.empty()) std::memcpy(to, part.data(), part.size());
  }
  void text(std::string_view part) noexcept { bytes(std::as_bytes(std::span(part))); }
  void zeros(std::size_t n) noexcept {
    std::byte* to = take(n);
    if (to != nullptr && n > 0) std::memset(to, 0, n);
  }
  /// Overwrites four bytes that were written before (a length known only later).
  void patch_u32(std::size_t position, std::uint32_t value) noexcept {
    if (failed_ || position > position_ || position_ - position < sizeof(value)) {
      failed_ = true;
      return;
    }
    store(data_.data() + position, value);
  }

 private:
  std::byte* take(std::size_t n) noexcept {
    if (failed_ || n > data_.size() - position_) {
      failed_ = true;
      return nullptr;
    }
    std::byte* to = data_.data() + position_;
    position_ += n;
    return to;
  }
  template <std::unsigned_integral U>
  static void store(std::byte* to, U value) noexcept {
    for (std::size_t i = 0; i < sizeof(U); ++i) {
      to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
  }
  template <std::unsigned_integral U>
  void number(U value) noexcept {
    std::byte* to = take(sizeof(U));
    if (to != nullptr) store(to, value);
  }

  std::span<std::byte> data_;
  std::size_t position_ = 0;
  bool failed_ = false;
};

}  // namespace pawl
