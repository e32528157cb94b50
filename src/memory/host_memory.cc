// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>

#include "base/check.h"
#include "memory/host_pages.h"
#include "pawl/memory_kind.h"

namespace pawl {

Result<std::span<std::byte>> HostMemory::allocate(std::size_t bytes) {
  const std::size_t page = memory::kSystemCalls.page_bytes();
  bytes = (bytes + page - 1) / page * page;
  const memory::HostPages got = memory::map_pages(bytes);
  if (got.base == nullptr) {
    return Status::with_detail(
        Code::resource_exhausted,
        "the system refused " + std::to_string(bytes) + " bytes (" +
            std::system_category().message(got.error) +
            "): lower PoolOptions::bytes_max, or raise the memory limit of the process or its "
            "control group",
        Ran::no, got.error);
  }
  const std::lock_guard lock(mutex_);
  mappings_.push_back(Mapping{got.base, bytes, got.pages});
  counts_.*got.pages += bytes;
  return std::span(got.base, bytes);
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
