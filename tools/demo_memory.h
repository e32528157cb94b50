// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "pawl/result.h"

namespace pawl::tools {

/// Anonymous memory behind a descriptor that child processes inherit. Move-only.
class SharedMemory {
 public:
  /// Zeroed; resource_exhausted if the system has none. `name` is a literal, for /proc.
  static Result<SharedMemory> create(const char* name, std::size_t bytes);
  /// What the parent created; the descriptor is taken over.
  static Result<SharedMemory> attach(int fd);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  SharedMemory(int fd, std::span<std::byte> bytes) : fd_(fd), bytes_(bytes) {}
  static Result<SharedMemory> map(int fd, std::size_t bytes);

  int fd_ = -1;
  std::span<std::byte> bytes_;
};

}  // namespace pawl::tools
