// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include "pawl/detail/ok.h"
#include "pawl/detail/task_awaiter.h"
#include "pawl/detail/task_promise.h"
#include "pawl/operation.h"

namespace pawl {

/// A coroutine that gives a T: `Task<Result<Reply>> get(...) { ... co_return reply; }`. Lazy and
/// move-only. It runs on a poller: `co_await std::move(task)` in another Task, start(task,
/// callback) on the poller's thread, run_until/block_on (blocking.h) elsewhere, or as an Operation
/// (below).
///
/// Dropping a Task, or whatever awaits it, at any moment is safe: a suspended frame is destroyed at
/// once with everything it awaits; one that runs at this moment (code inside it drops it) ends at
/// its next suspension.
///
/// While one Task runs, no other coroutine is resumed on top of it: what it completes goes on later
/// in the same poller's turn. Deep chains of calls that complete without suspending use the native
/// stack, a few hundred bytes each; loops use none, however often they complete at once.
///
/// An exception that leaves a Task<Result<X>> or Task<Status> becomes Code::handler_threw with its
/// what(); from other Tasks it is thrown at the awaiting Task, and ends the process if there is
/// none.
///
/// Parameters passed by value must not be aggregates with a destructor (g++ 12 destroys such
/// twice): refused at compile time.
template <class T>
class [[nodiscard]] Task {
 public:
  using value_type = T;
  using promise_type = detail::TaskPromise<T>;

  Task() noexcept = default;
  explicit Task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      frame_ = std::exchange(other.frame_, nullptr);
    }
    return *this;
  }
  ~Task() { reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(frame_); }
  void reset() noexcept {
    if (auto frame = std::exchange(frame_, nullptr)) frame.destroy();
  }

  /// The task as an Operation (void becomes Unit). It must be begun on a poller.
  Operation<detail::LiftT<T>> operation() && {
    return detail::operation_of(new detail::TaskRoot<T>(std::exchange(frame_, nullptr)));
  }
  /// From coroutines of other types. Tasks await each other by a shorter way.
  auto operator co_await() && {
    return detail::OperationAwaiter<detail::LiftT<T>>(std::move(*this).operation());
  }

 private:
  template <class U>
  friend class detail::TaskAwaiter;
  std::coroutine_handle<promise_type> release() noexcept { return std::exchange(frame_, nullptr); }

  std::coroutine_handle<promise_type> frame_;
};

template <class T>
Task<T> detail::TaskPromise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}

/// Starts a task on the current poller, at once. `callback` is called once unless the handle is
/// dropped first.
template <class T>
Started start(Task<T> task, Callback<detail::LiftT<T>> callback) {
  return start(std::move(task).operation(), callback);
}

/// `auto value = co_await ok(x)`: the value of x, or this Task ends with x's error (its locals are
/// destroyed as by a return). x, by value, is a Task, an Operation or another awaitable that gives,
/// or is itself, a Status, a Result<X>, or a type with `bool ok()`, `Status status()` and, if it
/// has a value, an rvalue `operator*`. In Task<Result<X>>, Task<Status>, and tasks of types with a
/// static `from_status(Status)`.
template <class A>
auto ok(A&& awaitable) {
  static_assert(!std::is_lvalue_reference_v<A>,
                "ok() consumes what it awaits: write co_await ok(std::move(x))");
  return detail::make_ok(std::forward<A>(awaitable));
}

}  // namespace pawl

/// Sees the exact parameter types of every coroutine that returns a Task.
template <class T, class... Args>
struct std::coroutine_traits<pawl::Task<T>, Args...> {
  static_assert(
      !(pawl::detail::kMiscompiledParameter<Args> || ...),
      "a Task takes by value an aggregate that has a destructor: g++ 12 destroys it twice; "
      "give the type a constructor, or pass it by reference if it outlives the Task");
  using promise_type = typename pawl::Task<T>::promise_type;
};
