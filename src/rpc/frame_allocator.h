// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "pawl/detail/frame.h"

namespace pawl::rpc {

/// Containers whose nodes come from the frame free lists, so that steady traffic allocates nothing.
template <class T>
struct FrameAllocator {
  using value_type = T;

  FrameAllocator() noexcept = default;
  template <class U>
  FrameAllocator(const FrameAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t n) { return static_cast<T*>(detail::frame_allocate(n * kBytes)); }
  void deallocate(T* memory, std::size_t n) noexcept {
    detail::frame_free(static_cast<void*>(memory), n * kBytes);
  }
  friend bool operator==(FrameAllocator, FrameAllocator) { return true; }

 private:
  static constexpr std::size_t kBytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression)
};

}  // namespace pawl::rpc
