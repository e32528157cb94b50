// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pawl/memory_kind.h"

namespace pawl::memory {

/// The system's calls by which host memory comes and goes; a test has others. Each as the call of
/// its name: MAP_FAILED or -1 and errno.
struct HostCalls {
  /// Private, anonymous, readable and writable memory; `flags`: 0 or MAP_HUGETLB.
  void* (*map)(std::size_t bytes, int flags);
  int (*unmap)(void* memory, std::size_t bytes);
  int (*advise)(void* memory, std::size_t bytes, int advice);
  /// Of an ordinary page: 4096, or as much as 65536 on some aarch64.
  std::size_t (*page_bytes)();
};
extern const HostCalls kSystemCalls;

/// A mapping whose pages are all there: no access to it faults for want of memory.
struct HostPages {
  std::byte* base = nullptr;  ///< nullptr: the system refused
  std::uint64_t PageCounts::*pages = &PageCounts::plain;
  int error = 0;  ///< errno of the last refusal
};

/// `bytes` (a multiple of page_bytes): huge pages where the system has them, else transparent huge
/// pages, else plain ones. Pages that cannot all be had are given back and the next kind is tried:
/// to touch huge pages that a control group does not grant is SIGBUS.
HostPages map_pages(std::size_t bytes, const HostCalls& calls = kSystemCalls);

}  // namespace pawl::memory
