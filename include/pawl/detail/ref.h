// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace pawl {

/// A counted pointer to an object that counts for itself: `T` has `retain()` and `release()`, and
/// `release()` of the last reference frees it. As thread-safe as these two are.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  Ref(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)
  /// Takes a further reference.
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  /// Takes over a reference that the caller already holds (a new object starts with one).
  static Ref adopt(T* object) noexcept {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // clang-format off
  template <class U> requires(std::is_convertible_v<U*, T*>)
  Ref(Ref<U> other) noexcept : object_(other.detach()) {}  // NOLINT(google-explicit-constructor)
  // clang-format on
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    // The analyzer does not count: it takes the release of another reference for the last.
    if (object_ != nullptr) object_->release();  // NOLINT(clang-analyzer-cplusplus.NewDelete)
  }

  void reset() noexcept { *this = Ref(); }
  /// Gives the reference to the caller, who has to release it.
  [[nodiscard]] T* detach() noexcept { return std::exchange(object_, nullptr); }
  [[nodiscard]] T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace pawl
