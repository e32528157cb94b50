// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "pawl/memory_kind.h"

namespace pawl::testing {

/// Host memory whose copies out are interrupted: half of the bytes, `meanwhile`, the other half.
class InterruptedMemory final : public MemoryKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "interrupted"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    return host_.allocate(bytes);
  }
  void free(std::span<std::byte> memory) noexcept override { host_.free(memory); }
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override { host_.copy_in(to, from); }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    const std::size_t half = to.size() / 2;
    host_.copy_out(to.first(half), from);
    if (meanwhile) meanwhile();
    host_.copy_out(to.subspan(half), from + half);
  }
  [[nodiscard]] bool cpu_readable() const override { return true; }
  [[nodiscard]] bool host() const override { return true; }

  std::function<void()> meanwhile;

 private:
  HostMemory host_;
};

}  // namespace pawl::testing
