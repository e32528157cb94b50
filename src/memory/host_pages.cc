// SPDX-License-Identifier: Apache-2.0
#include "memory/host_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pawl::memory {

namespace {

constexpr std::size_t kHugeBytes = std::size_t{2} << 20;

void* system_map(std::size_t bytes, int flags) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

std::size_t system_page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// A mapping that starts at a multiple of `alignment`, or nullptr.
std::byte* map_aligned(std::size_t bytes, std::size_t alignment, const HostCalls& calls) {
  void* mapped = calls.map(bytes + alignment, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t skip =
      (alignment - reinterpret_cast<std::uintptr_t>(start) % alignment) % alignment;
  if (skip != 0) calls.unmap(start, skip);
  calls.unmap(start + skip + bytes, alignment - skip);
  return start + skip;
}

// Faults every page in now, on the thread that grows the pool. 0, or why not: EINVAL where the
// kernel does not know how (before Linux 5.14).
int populate(std::byte* base, std::size_t bytes, const HostCalls& calls) {
  return calls.advise(base, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
}

// Of ordinary pages a kernel without populate gives what is touched, or ends the process.
int populate_or_touch(std::byte* base, std::size_t bytes, const HostCalls& calls) {
  const int error = populate(base, bytes, calls);
  if (error != EINVAL) return error;
  for (std::size_t i = 0; i < bytes; i += calls.page_bytes()) {
    *static_cast<volatile std::byte*>(base + i) = std::byte{0};
  }
  return 0;
}

}  // namespace

const HostCalls kSystemCalls = {&system_map, &::munmap, &::madvise, &system_page_bytes};

HostPages map_pages(std::size_t bytes, const HostCalls& calls) {
  HostPages got;
  if (bytes % kHugeBytes == 0) {
    void* huge = calls.map(bytes, MAP_HUGETLB);
    if (huge != MAP_FAILED) {
      got.base = static_cast<std::byte*>(huge);
      got.pages = &PageCounts::huge;
      if (populate(got.base, bytes, calls) == 0) return got;
      calls.unmap(huge, bytes);
    }
    got.base = map_aligned(bytes, kHugeBytes, calls);
    if (got.base != nullptr) {
      const bool asked = calls.advise(got.base, bytes, MADV_HUGEPAGE) == 0;
      got.pages = asked ? &PageCounts::transparent : &PageCounts::plain;
      if (populate_or_touch(got.base, bytes, calls) == 0) return got;
      calls.unmap(got.base, bytes);
    }
  }
  got.pages = &PageCounts::plain;
  void* const plain = calls.map(bytes, 0);
  if (plain == MAP_FAILED) {
    got.error = errno;
    return got;
  }
  got.base = static_cast<std::byte*>(plain);
  got.error = populate_or_touch(got.base, bytes, calls);
  if (got.error == 0) return got;
  calls.unmap(got.base, bytes);
  got.base = nullptr;
  return got;
}

}  // namespace pawl::memory
