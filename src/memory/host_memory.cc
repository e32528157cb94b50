// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/check.h"
#include "pawl/memory_kind.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pawl {

namespace {

constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::size_t kPageBytes = 4096;
constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;

// A mapping that starts at a multiple of `alignment`, or nullptr.
std::byte* map_aligned(std::size_t bytes, std::size_t alignment) {
  void* mapped = ::mmap(nullptr, bytes + alignment, kProtection, kFlags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t skip =
      (alignment - reinterpret_cast<std::uintptr_t>(start) % alignment) % alignment;
  if (skip != 0) ::munmap(start, skip);
  ::munmap(start + skip + bytes, alignment - skip);
  return start + skip;
}

// Faults every page in now, on the thread that grows the pool.
void populate(std::byte* base, std::size_t bytes) {
  if (::madvise(base, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (std::size_t i = 0; i < bytes; i += kPageBytes) {
    *static_cast<volatile std::byte*>(base + i) = std::byte{0};
  }
}

}  // namespace

Result<std::span<std::byte>> HostMemory::allocate(std::size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::byte* base = nullptr;
  std::uint64_t PageCounts::*pages = &PageCounts::plain;
  if (bytes % kHugeBytes == 0) {
    void* huge = ::mmap(nullptr, bytes, kProtection, kFlags | MAP_HUGETLB, -1, 0);
    if (huge != MAP_FAILED) {
      base = static_cast<std::byte*>(huge);
      pages = &PageCounts::huge;
    } else {
      base = map_aligned(bytes, kHugeBytes);
      if (base != nullptr && ::madvise(base, bytes, MADV_HUGEPAGE) == 0) {
        pages = &PageCounts::transparent;
      }
    }
  }
  if (base == nullptr) base = map_aligned(bytes, kPageBytes);
  if (base == nullptr) {
    const int error = errno;
    return Status::with_detail(
        Code::resource_exhausted,
        "the system refused " + std::to_string(bytes) + " bytes (" +
            std::system_category().message(error) +
            "): lower PoolOptions::bytes_max, or raise the memory limit of the process or its "
            "control group",
        Ran::no, error);
  }
  populate(base, bytes);
  const std::lock_guard lock(mutex_);
  mappings_.push_back(Mapping{base, bytes, pages});
  counts_.*pages += bytes;
  return std::span(base, bytes);
}

void HostMemory::free(std::span<std::byte> memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(mappings_.begin(), mappings_.end(),
                               [&](const Mapping& m) { return m.base == memory.data(); });
  PAWL_CHECK(at != mappings_.end(), "host memory is freed that was not allocated here");
  counts_.*(at->pages) -= at->bytes;
  ::munmap(at->base, at->bytes);
  mappings_.erase(at);
}

int HostMemory::dma_buf_fd(std::span<const std::byte>) const { return -1; }

void HostMemory::copy_in(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void HostMemory::copy_out(std::span<std::byte> to, const std::byte* from) const {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

PageCounts HostMemory::page_counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace pawl
