// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "pawl/memory_kind.h"

namespace pawl::testing {

/// Host memory in all but what a test's kind overrides. Any thread.
class HostKind : public MemoryKind {
 public:
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    return host_.allocate(bytes);
  }
  void free(std::span<std::byte> memory) noexcept override { host_.free(memory); }
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override { host_.copy_in(to, from); }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    host_.copy_out(to, from);
  }
  [[nodiscard]] bool cpu_readable() const override { return true; }
  [[nodiscard]] bool host() const override { return true; }

 private:
  HostMemory host_;
};

}  // namespace pawl::testing
