// SPDX-License-Identifier: Apache-2.0
#include "demo_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace pawl::tools {

Result<SharedMemory> SharedMemory::create(const char* name, std::size_t bytes) {
  const int fd = ::memfd_create(name, 0);
  if (fd < 0) return Status(Code::resource_exhausted, "memfd_create failed", Ran::no, errno);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::close(fd);
    return Status(Code::resource_exhausted, "no shared memory", Ran::no, error);
  }
  return map(fd, bytes);
}

Result<SharedMemory> SharedMemory::attach(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0) {
    return Status(Code::invalid_argument, "not a descriptor of shared memory", Ran::no, errno);
  }
  return map(fd, static_cast<std::size_t>(info.st_size));
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    return Status(Code::resource_exhausted, "shared memory cannot be mapped", Ran::no, error);
  }
  return SharedMemory(fd, {static_cast<std::byte*>(memory), bytes});
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace pawl::tools
