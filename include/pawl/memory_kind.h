// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "pawl/result.h"

namespace pawl {

/// Bytes that a kind gave out and did not get back, by the pages they came in.
struct PageCounts {
  std::uint64_t huge = 0;         ///< of the system's reserve of huge pages
  std::uint64_t transparent = 0;  ///< transparent huge pages were asked for; the kernel decides
  std::uint64_t plain = 0;
};

/// How one kind of memory is allocated, named to devices and touched. Pawl itself never reads or
/// writes payload bytes but through `copy_in` and `copy_out`, so that memory without CPU access
/// (device memory) works everywhere. Any thread. A kind outlives every pool and region that uses
/// it.
class MemoryKind {
 public:
  virtual ~MemoryKind() = default;

  /// "host", "host-file", "device:0": for messages and stats.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// At least `bytes` bytes at page alignment. Errors say what the system refused and which limit
  /// to raise. Off the poller: may take milliseconds.
  virtual Result<std::span<std::byte>> allocate(std::size_t bytes) = 0;

  /// Gives memory back that `allocate` returned.
  virtual void free(std::span<std::byte> memory) noexcept = 0;

  /// A dma-buf file descriptor by which devices register this memory; -1 = they use the address.
  [[nodiscard]] virtual int dma_buf_fd(std::span<const std::byte> memory) const = 0;

  /// Copies between this memory and ordinary host memory. Ranges do not overlap.
  virtual void copy_in(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void copy_out(std::span<std::byte> to, const std::byte* from) const = 0;

  /// True if the CPU may load from and store to the addresses directly.
  [[nodiscard]] virtual bool cpu_readable() const = 0;

  /// True for plain host memory, for which the argument of `verify_read` holds
  /// (docs/guarantees.md).
  [[nodiscard]] virtual bool host() const = 0;

  /// For stats; zeros where it means nothing.
  [[nodiscard]] virtual PageCounts page_counts() const { return {}; }
};

/// Ordinary host memory from mmap: huge pages where the system has them, else transparent huge
/// pages, else plain pages; touched before it is given out. One object serves any number of pools.
class HostMemory final : public MemoryKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "host"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override;
  void free(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte> memory) const override;
  void copy_in(std::byte* to, std::span<const std::byte> from) override;
  void copy_out(std::span<std::byte> to, const std::byte* from) const override;
  [[nodiscard]] bool cpu_readable() const override { return true; }
  [[nodiscard]] bool host() const override { return true; }
  [[nodiscard]] PageCounts page_counts() const override;

 private:
  // Which mappings are of which pages, for `free`. A few per pool.
  struct Mapping {
    std::byte* base;
    std::size_t bytes;
    std::uint64_t PageCounts::*pages;
  };
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
  PageCounts counts_;
};

}  // namespace pawl
