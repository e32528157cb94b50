// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "memory/host_pages.h"
#include "pawl/testing.h"

namespace pawl::testing {

namespace {

std::size_t page_bytes() { return memory::kSystemCalls.page_bytes(); }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

/// The pages of a range can be touched while it lives.
class ProtectedMemory::Opened {
 public:
  Opened(const std::byte* at, std::size_t bytes) {
    const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % page_bytes();
    page_ = const_cast<std::byte*>(at) - before;
    bytes_ = whole_pages(before + bytes);
    protect(PROT_READ | PROT_WRITE);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { protect(PROT_NONE); }

 private:
  void protect(int access) {
    PAWL_CHECK(::mprotect(page_, bytes_, access) == 0,
               "a copy hook of ProtectedMemory is given memory that is not mapped");
  }
  std::byte* page_;
  std::size_t bytes_;
};

Result<std::span<std::byte>> ProtectedMemory::allocate(std::size_t bytes) {
  bytes = whole_pages(bytes);
  void* memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Status(Code::resource_exhausted,
                  "the system refused pages for ProtectedMemory: lower PoolOptions::bytes_max",
                  Ran::no, errno);
  }
  return std::span(static_cast<std::byte*>(memory), bytes);
}

void ProtectedMemory::free(std::span<std::byte> memory) noexcept {
  ::munmap(memory.data(), memory.size());
}

int ProtectedMemory::dma_buf_fd(std::span<const std::byte>) const { return -1; }

void ProtectedMemory::copy_in(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  const std::lock_guard lock(mutex_);
  const Opened opened(to, from.size());
  std::memcpy(to, from.data(), from.size());
  copied_in_ += from.size();
}

void ProtectedMemory::copy_out(std::span<std::byte> to, const std::byte* from) const {
  if (to.empty()) return;
  const std::lock_guard lock(mutex_);
  const Opened opened(from, to.size());
  std::memcpy(to.data(), from, to.size());
  copied_out_ += to.size();
}

std::uint64_t ProtectedMemory::bytes_copied_in() const {
  const std::lock_guard lock(mutex_);
  return copied_in_;
}

std::uint64_t ProtectedMemory::bytes_copied_out() const {
  const std::lock_guard lock(mutex_);
  return copied_out_;
}

}  // namespace pawl::testing
