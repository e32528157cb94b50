// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "pawl/detail/awaiter.h"
#include "pawl/detail/check.h"
#include "pawl/detail/frame.h"
#include "pawl/detail/operation_core.h"
#include "pawl/detail/ref.h"

namespace pawl {

/// The value of operations that have none to give.
struct Unit {
  friend bool operator==(Unit, Unit) = default;
};

/// Whom to tell. `fn` is called once, with the value of the operation.
template <class T>
struct Callback {
  void (*fn)(void* context, T value) = nullptr;
  void* context = nullptr;
};

/// Anything that runs and can be let go of.
class Droppable {
 public:
  /// Detaches, cancels what is under way, and gives up the object; called once, by its owner, at
  /// any moment, also inside the callback and after it. After it returned the callback never runs.
  virtual void drop() noexcept = 0;

 protected:
  ~Droppable() = default;
};

/// What an Operation owns. Implement OperationState (below) rather than this.
template <class T>
class OperationBase : public Droppable {
 public:
  /// Starts it; called at most once. The callback runs once unless drop() comes first: on the
  /// poller that is current() now, perhaps before begin() returns; without a current poller, on
  /// whatever thread completes it.
  virtual void begin(Callback<T> callback) = 0;

 protected:
  ~OperationBase() = default;
};

/// Something asynchronous that gives a T: lazy, move-only. Nothing happens before it is started, in
/// one of three forms: `co_await std::move(op)` in a coroutine of any type, `start(op, callback)`,
/// `block(op)` on a thread that does not poll. Dropping it, or whatever awaits it, cancels it. An
/// operation that was started on a poller is dropped on that poller's thread.
template <class T>
class [[nodiscard]] Operation {
 public:
  using value_type = T;

  Operation() noexcept = default;
  explicit Operation(OperationBase<T>* state) noexcept : state_(state) {}
  Operation(Operation&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Operation& operator=(Operation&& other) noexcept {
    if (this != &other) {
      reset();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~Operation() { reset(); }

  /// An operation that is complete as soon as it is started.
  static Operation ready(T value);

  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  void reset() noexcept {
    if (OperationBase<T>* state = std::exchange(state_, nullptr)) state->drop();
  }
  /// For those who implement combinators: starts it and keeps the ownership here.
  void begin(Callback<T> callback) {
    detail::require(state_ != nullptr,
                    "an empty Operation is started: it was moved from, or awaited twice");
    state_->begin(callback);
  }
  [[nodiscard]] OperationBase<T>* release() noexcept { return std::exchange(state_, nullptr); }

  auto operator co_await() && { return detail::OperationAwaiter<T>(std::move(*this)); }

 private:
  OperationBase<T>* state_ = nullptr;
};

/// Something that was started. Dropping it cancels.
class [[nodiscard]] Started {
 public:
  Started() noexcept = default;
  explicit Started(Droppable* state) noexcept : state_(state) {}
  Started(Started&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Started& operator=(Started&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~Started() { drop(); }

  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Cancels; the callback never runs after this. Nothing happens if it was dropped before.
  void drop() noexcept {
    if (Droppable* state = std::exchange(state_, nullptr)) state->drop();
  }

 private:
  Droppable* state_ = nullptr;
};

/// Starts `operation`; `callback` is called once unless the handle is dropped first.
template <class T>
Started start(Operation<T> operation, Callback<T> callback) {
  OperationBase<T>* state = operation.release();
  Started started(state);
  state->begin(callback);
  return started;
}

/// The usual way to implement an operation. The derived class starts its work in on_begin() and
/// calls complete() once it is done, from any thread; the base class brings the value to the right
/// thread and decides races between complete() and drop(). Counted: producers that may outlive the
/// owner's interest hold a `Ref` to the state (`Ref<State>(this)`); a producer without a reference
/// must forget the state in on_drop(). Memory comes from the frame free list.
template <class T>
class OperationState : public OperationBase<T>, private detail::OperationCore {
 public:
  void begin(Callback<T> callback) final {
    callback_ = callback;
    begin_core();
  }
  void drop() noexcept final { drop_core(); }

  using detail::OperationCore::release;
  using detail::OperationCore::retain;

  /// Gives the value to whoever waits. The first call wins; false if it was not this one, or if the
  /// operation was dropped (then `value` is destroyed here). After it returned, `this` may be gone
  /// unless the caller holds a reference. Any thread.
  bool complete(T value) {
    switch (claim()) {
      case Claim::refused:
        return false;
      case Claim::deliver:
        callback_.fn(callback_.context, std::move(value));
        return true;
      case Claim::deliver_here: {
        Delivery delivery(*this);
        callback_.fn(callback_.context, std::move(value));
        return true;
      }
      case Claim::hand_over:
        value_.emplace(std::move(value));
        hand_over();
        return true;
    }
    return false;
  }

  static void* operator new(std::size_t bytes) { return detail::frame_allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    detail::frame_free(memory, bytes);
  }

 protected:
  OperationState() noexcept = default;
  ~OperationState() override = default;

  /// Starts the work, on the thread that started the operation. May call complete().
  virtual void on_begin() = 0;

  /// Nobody waits any more: cancel the work, forget `this` wherever it is known without a
  /// reference. Called at most once, by drop(), only if complete() did not win. On the poller's
  /// thread if there is a home(), else on the thread that drops.
  virtual void on_drop() noexcept {}

  /// True from begin to completion or drop. Any thread; a snapshot unless on the home's thread.
  using detail::OperationCore::pending;
  /// The poller on which it was started; nullptr if there was none. Valid from on_begin() on.
  using detail::OperationCore::home;

 private:
  void core_begin() final { on_begin(); }
  void core_dropped() noexcept final { on_drop(); }
  void core_discard() noexcept final { value_.reset(); }
  void core_deliver() final {
    T value = std::move(*value_);
    value_.reset();
    callback_.fn(callback_.context, std::move(value));
  }

  Callback<T> callback_;
  std::optional<T> value_;  // only on its way from another thread
};

namespace detail {
template <class T>
Operation<T> operation_of(OperationBase<T>* state) noexcept {
  return Operation<T>(state);
}
}  // namespace detail

/// `make_operation<State>(args...)`: an Operation that owns a new State.
template <class State, class... Args>
auto make_operation(Args&&... args) {
  return detail::operation_of(new State(std::forward<Args>(args)...));
}

namespace detail {

template <class T>
class ReadyState final : public OperationState<T> {
 public:
  explicit ReadyState(T value) : value_(std::move(value)) {}

 private:
  void on_begin() override { this->complete(std::move(value_)); }
  T value_;
};

/// Awaits an operation from any coroutine type.
template <class T>
class OperationAwaiter : public AwaiterCore {
 public:
  explicit OperationAwaiter(Operation<T> operation) noexcept : operation_(std::move(operation)) {}

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class P>
  bool await_suspend(std::coroutine_handle<P> handle) {
    return suspend(handle, [this] {
      operation_.begin(Callback<T>{&OperationAwaiter::done, this});
    });
  }
  T await_resume() {
    T value = std::move(*value_);
    operation_.reset();
    return value;
  }

 private:
  static void done(void* context, T value) {
    auto* self = static_cast<OperationAwaiter*>(context);
    self->value_.emplace(std::move(value));
    self->completed();
  }

  Operation<T> operation_;
  std::optional<T> value_;
};

}  // namespace detail

template <class T>
Operation<T> Operation<T>::ready(T value) {
  return make_operation<detail::ReadyState<T>>(std::move(value));
}

}  // namespace pawl
