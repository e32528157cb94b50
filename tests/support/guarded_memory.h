// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "pawl/memory_kind.h"

namespace pawl::testing {

/// Memory as a device has it: its pages cannot be touched (PROT_NONE) but inside copy_in and
/// copy_out, so whoever loads or stores directly crashes. One thread.
class GuardedMemory final : public MemoryKind {
 public:
  static constexpr std::size_t kPage = 4096;

  [[nodiscard]] std::string_view name() const override { return "guarded"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    bytes = (bytes + kPage - 1) / kPage * kPage;
    void* memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Status(Code::resource_exhausted, "mmap refused the pages");
    return std::span(static_cast<std::byte*>(memory), bytes);
  }
  void free(std::span<std::byte> memory) noexcept override {
    ::munmap(memory.data(), memory.size());
  }
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override {
    const Open open(to, from.size());
    std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    const Open open(from, to.size());
    std::memcpy(to.data(), from, to.size());
  }
  [[nodiscard]] bool cpu_readable() const override { return false; }
  [[nodiscard]] bool host() const override { return false; }

 private:
  class Open {
   public:
    Open(const std::byte* address, std::size_t bytes) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address) / kPage * kPage;
      const auto end = (reinterpret_cast<std::uintptr_t>(address) + bytes + kPage - 1) / kPage;
      page_ = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
      bytes_ = end * kPage - begin;
      ::mprotect(page_, bytes_, PROT_READ | PROT_WRITE);
    }
    ~Open() { ::mprotect(page_, bytes_, PROT_NONE); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    void* page_ = nullptr;
    std::size_t bytes_ = 0;
  };
};

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
