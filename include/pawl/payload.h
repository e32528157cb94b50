// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "pawl/detail/frame.h"

namespace pawl {

/// The encoded bytes of a request or reply: owned, move-only, from the frame free lists, so that
/// steady traffic allocates nothing.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::size_t bytes)
      : data_(bytes == 0 ? nullptr : static_cast<std::byte*>(detail::frame_allocate(bytes))),
        size_(bytes) {}
  explicit Payload(std::span<const std::byte> bytes) : Payload(bytes.size()) {
    if (size_ != 0) std::memcpy(data_, bytes.data(), size_);
  }
  static Payload of(std::string_view text) {
    return Payload(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  Payload(Payload&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Payload& operator=(Payload&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Payload() {
    if (data_ != nullptr) detail::frame_free(data_, size_);
  }

  [[nodiscard]] std::span<std::byte> bytes() { return {data_, size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pawl
