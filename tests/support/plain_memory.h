// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "pawl/memory_kind.h"

namespace pawl::testing {

/// Ordinary memory without a device's needs: malloc and memcpy. Any thread.
class PlainMemory final : public MemoryKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "plain"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    return std::span(new (std::align_val_t{4096}) std::byte[bytes](), bytes);
  }
  void free(std::span<std::byte> memory) noexcept override {
    ::operator delete[](memory.data(), std::align_val_t{4096});
  }
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    std::memcpy(to.data(), from, to.size());
  }
  [[nodiscard]] bool cpu_readable() const override { return true; }
  [[nodiscard]] bool host() const override { return true; }
};

}  // namespace pawl::testing
