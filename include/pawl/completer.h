// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "pawl/detail/ref.h"
#include "pawl/detail/status_value.h"
#include "pawl/operation.h"
#include "pawl/status.h"

namespace pawl {

namespace detail {

/// The value may come before the operation is begun, from any thread: whichever of the two is
/// second completes.
template <CarriesStatus T>
class CompleterState final : public OperationState<T> {
 public:
  void give(T value) {
    value_.emplace(std::move(value));
    if (phase_.exchange(Phase::given, std::memory_order_acq_rel) == Phase::begun) deliver();
  }
  [[nodiscard]] bool dropped() const noexcept { return dropped_.load(std::memory_order_acquire); }

 private:
  enum class Phase : std::uint8_t { idle, begun, given };

  void on_begin() override {
    if (phase_.exchange(Phase::begun, std::memory_order_acq_rel) == Phase::given) deliver();
  }
  void on_drop() noexcept override { dropped_.store(true, std::memory_order_release); }
  void deliver() { this->complete(std::move(*value_)); }

  std::optional<T> value_;
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<bool> dropped_{false};
};

}  // namespace detail

/// The far end of an operation that is completed by hand: by a callback, by another thread, by code
/// that knows no coroutines. Move-only. Dropping it without a value completes the operation with
/// Code::aborted, so that nobody waits for ever. Any thread; outlives its operation safely.
template <class T>
class Completer {
 public:
  Completer() noexcept = default;
  explicit Completer(Ref<detail::CompleterState<T>> state) noexcept : state_(std::move(state)) {}
  Completer(Completer&&) noexcept = default;
  Completer& operator=(Completer&& other) noexcept {
    if (this != &other) {
      abort();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Completer() { abort(); }

  /// Gives the value to whoever waits for the operation; it is destroyed if nobody does any more.
  /// The completer is empty afterwards; nothing happens if it was before.
  void complete(T value) {
    if (auto state = std::exchange(state_, nullptr)) state->give(std::move(value));
  }
  /// True once the operation was started and dropped: nobody wants the value.
  [[nodiscard]] bool dropped() const noexcept { return state_ && state_->dropped(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(state_); }

 private:
  void abort() noexcept {
    if (state_) {
      complete(detail::from_status<T>(
          Status(Code::aborted, "whoever had to complete this operation dropped its Completer")));
    }
  }

  Ref<detail::CompleterState<T>> state_;
};

/// An operation and its completer: `auto [operation, completer] = make_completer<Status>();`.
/// T is a Status, a Result<X>, or another type that can carry a Status.
template <detail::CarriesStatus T>
std::pair<Operation<T>, Completer<T>> make_completer() {
  auto* state = new detail::CompleterState<T>();
  Completer<T> completer{Ref<detail::CompleterState<T>>(state)};
  return {Operation<T>(state), std::move(completer)};
}

}  // namespace pawl
