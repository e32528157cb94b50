// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "pawl/detail/ref.h"

namespace pawl {

/// Counts references to `Derived`, which starts with one (hand it to `Ref::adopt`). Any thread.
template <class Derived>
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete static_cast<Derived*>(this);
    }
  }
  /// True if the caller holds the only reference.
  [[nodiscard]] bool unique() const noexcept {
    return references_.load(std::memory_order_acquire) == 1;
  }

 protected:
  RefCounted() = default;
  ~RefCounted() = default;

 private:
  std::atomic<std::uint32_t> references_{1};
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::adopt(new T(std::forward<Args>(args)...));
}

}  // namespace pawl
