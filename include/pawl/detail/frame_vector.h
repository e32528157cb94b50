// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "pawl/detail/frame.h"

namespace pawl::detail {

/// For containers of a call: their memory comes from the frame free lists, so that steady traffic
/// allocates nothing.
template <class T>
struct FrameAllocator {
  using value_type = T;

  FrameAllocator() noexcept = default;
  template <class U>
  FrameAllocator(const FrameAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t n) { return static_cast<T*>(frame_allocate(n * kBytes)); }
  void deallocate(T* memory, std::size_t n) noexcept {
    frame_free(static_cast<void*>(memory), n * kBytes);
  }
  friend bool operator==(FrameAllocator, FrameAllocator) { return true; }

 private:
  static constexpr std::size_t kBytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression)
};

/// A base of classes whose objects are made and deleted once per call.
struct InFrames {
  static void* operator new(std::size_t bytes) { return frame_allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { frame_free(memory, bytes); }
};

template <class T>
using FrameVector = std::vector<T, FrameAllocator<T>>;
template <class T>
using FrameDeque = std::deque<T, FrameAllocator<T>>;

}  // namespace pawl::detail
