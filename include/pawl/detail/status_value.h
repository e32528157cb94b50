// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "pawl/operation.h"
#include "pawl/result.h"
#include "pawl/status.h"

namespace pawl::detail {

/// Types that can say that something failed: Status, Result<X>, and types with a static
/// `from_status(Status)`.
template <class T>
concept CarriesStatus = std::same_as<T, Status> || IsResult<T>::value || requires(Status status) {
  { T::from_status(std::move(status)) } -> std::convertible_to<T>;
};

template <CarriesStatus T>
T from_status(Status status) {
  if constexpr (std::same_as<T, Status> || IsResult<T>::value) {
    return T(std::move(status));
  } else {
    return T::from_status(std::move(status));
  }
}

/// T if it carries a Status, else the type that adds one: Unit and void become Status, X becomes
/// Result<X>.
template <class T>
struct WithStatus {
  using type = Result<T>;
};
template <CarriesStatus T>
struct WithStatus<T> {
  using type = T;
};
template <>
struct WithStatus<Unit> {
  using type = Status;
};
template <>
struct WithStatus<void> {
  using type = Status;
};
template <class T>
using WithStatusT = typename WithStatus<T>::type;

/// A T as a WithStatusT<T>.
template <class T>
WithStatusT<T> with_status(T value) {
  if constexpr (std::same_as<T, Unit>) {
    return Status();
  } else {
    return WithStatusT<T>(std::move(value));
  }
}

/// What ok() understands: `bool ok()`, and a `status()` unless it is a Status itself.
template <class R>
concept Fallible = std::same_as<R, Status> || requires(R& result) {
  { result.ok() } -> std::convertible_to<bool>;
  { std::move(result).status() } -> std::convertible_to<Status>;
};

template <Fallible R>
Status take_status(R& result) {
  if constexpr (std::same_as<R, Status>) {
    return std::move(result);
  } else {
    return std::move(result).status();
  }
}

/// The value of a Fallible that is ok: `*std::move(result)`, or nothing if it has none.
template <Fallible R>
auto take_value(R& result) {
  if constexpr (requires { *std::move(result); }) {
    return std::remove_cvref_t<decltype(*std::move(result))>(*std::move(result));
  }
}

/// Unit stands for void where values are stored.
template <class T>
using LiftT = std::conditional_t<std::is_void_v<T>, Unit, T>;

}  // namespace pawl::detail
