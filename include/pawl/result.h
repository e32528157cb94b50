// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "pawl/status.h"

namespace pawl {

/// A value, or the Status that says why there is none. Using the value of a failed Result is a
/// programming error and ends the process with the status's sentence, in release builds too.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok())
      status_ = Status(Code::internal, "a Result was made from an ok Status without a value");
  }

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const Status& status() const& noexcept { return status_; }
  [[nodiscard]] Status status() && noexcept { return std::move(status_); }

  [[nodiscard]] T& value() & { return checked(), *value_; }
  [[nodiscard]] const T& value() const& { return checked(), *value_; }
  [[nodiscard]] T&& value() && { return checked(), std::move(*value_); }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

 private:
  void checked() const;

  std::optional<T> value_;
  Status status_;
};

/// Success without a value is plain `Status`; `Result<void>` does not exist on purpose.
template <>
class Result<void>;

namespace detail {
[[noreturn]] void used_failed_result(const Status& status);
}

template <class T>
void Result<T>::checked() const {
  if (!value_.has_value()) detail::used_failed_result(status_);
}

template <class T>
struct IsResult : std::false_type {};
template <class T>
struct IsResult<Result<T>> : std::true_type {};

}  // namespace pawl
