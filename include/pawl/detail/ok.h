// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

#include "pawl/detail/awaiter.h"
#include "pawl/detail/foreign_awaiter.h"
#include "pawl/detail/status_value.h"
#include "pawl/detail/task_awaiter.h"
#include "pawl/operation.h"

namespace pawl::detail {

/// Ends the coroutine of promise P with an error; gives what to resume next.
template <class P>
std::coroutine_handle<> fail_coroutine(std::coroutine_handle<> frame, Status status) {
  return std::coroutine_handle<P>::from_address(frame.address()).promise().fail(std::move(status));
}
using FailFn = std::coroutine_handle<> (*)(std::coroutine_handle<> frame, Status status);

/// co_await ok(task).
template <class T>
class OkTaskAwaiter : private TaskAwaiter<T> {
  static_assert(Fallible<T>,
                "ok(x) needs an x that can fail: a Status, a Result<X>, or a type with "
                "ok() and status()");
  using Base = TaskAwaiter<T>;

 public:
  explicit OkTaskAwaiter(Task<T>&& task) noexcept : Base(std::move(task)) {}

  using Base::await_ready;
  template <class P>
  bool await_suspend(std::coroutine_handle<P> parent) noexcept {
    parent_ = parent;
    fail_ = &fail_coroutine<P>;
    switch (Base::run(parent.promise().root(), Continuation{&decide, this})) {
      case Base::Outcome::destroyed:
      case Base::Outcome::suspended:
        return true;
      case Base::Outcome::finished:
        break;
    }
    if (Base::promise().stored().ok()) return false;
    decide(this).resume();  // may destroy this
    return true;
  }
  auto await_resume() {
    T result = Base::await_resume();
    return take_value(result);
  }

 private:
  static std::coroutine_handle<> decide(void* context) noexcept {
    auto* self = static_cast<OkTaskAwaiter*>(context);
    T& result = self->Base::promise().stored();
    if (result.ok()) return self->parent_;
    return self->fail_(self->parent_, take_status(result));
  }

  std::coroutine_handle<> parent_;
  FailFn fail_ = nullptr;
};

/// co_await ok(operation).
template <class T>
class OkOperationAwaiter final : private AwaiterCore {
  static_assert(Fallible<T>,
                "ok(x) needs an x that can fail: a Status, a Result<X>, or a type with "
                "ok() and status()");

 public:
  explicit OkOperationAwaiter(Operation<T>&& operation) noexcept
      : operation_(std::move(operation)) {}

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class P>
  bool await_suspend(std::coroutine_handle<P> frame) {
    fail_ = &fail_coroutine<P>;
    set_next(&OkOperationAwaiter::decide);
    const auto begin = [this] { operation_.begin(Callback<T>{&OkOperationAwaiter::done, this}); };
    if (suspend(frame, begin)) return true;
    if (result_->ok()) return false;
    decide(*this).resume();  // may destroy this
    return true;
  }
  auto await_resume() {
    T result = std::move(*result_);
    operation_.reset();
    return take_value(result);
  }

 private:
  static void done(void* context, T result) {
    auto* self = static_cast<OkOperationAwaiter*>(context);
    self->result_.emplace(std::move(result));
    self->completed();
  }
  static std::coroutine_handle<> decide(AwaiterCore& core) {
    auto& self = static_cast<OkOperationAwaiter&>(core);
    if (self.result_->ok()) return self.handle();
    return self.fail_(self.handle(), take_status(*self.result_));
  }

  Operation<T> operation_;
  std::optional<T> result_;
  FailFn fail_ = nullptr;
};

/// co_await ok(value): a Result or Status that is there already.
template <Fallible R>
class OkValueAwaiter {
 public:
  explicit OkValueAwaiter(R&& result) noexcept : result_(std::move(result)) {}

  [[nodiscard]] bool await_ready() const noexcept { return result_.ok(); }
  template <class P>
  bool await_suspend(std::coroutine_handle<P> frame) {
    fail_coroutine<P>(frame, take_status(result_)).resume();  // may destroy this
    return true;
  }
  auto await_resume() { return take_value(result_); }

 private:
  R result_;
};

/// What ok() gives: only a Task can await it.
template <class T>
class Ok<Task<T>> {
 public:
  explicit Ok(Task<T>&& task) noexcept : task_(std::move(task)) {}
  auto awaiter() && { return OkTaskAwaiter<T>(std::move(task_)); }

 private:
  Task<T> task_;
};
template <class T>
class Ok<Operation<T>> {
 public:
  explicit Ok(Operation<T>&& operation) noexcept : operation_(std::move(operation)) {}
  auto awaiter() && { return OkOperationAwaiter<T>(std::move(operation_)); }

 private:
  Operation<T> operation_;
};

template <Fallible R>
class Ok<R> {
 public:
  explicit Ok(R&& result) noexcept : result_(std::move(result)) {}
  auto awaiter() && { return OkValueAwaiter<R>(std::move(result_)); }

 private:
  R result_;
};

template <class A>
using AwaitResultT = decltype(ForeignAwaiter<int>::get(std::declval<A>()).await_resume());

template <class A>
Task<AwaitResultT<A>> as_task(A awaitable) {
  co_return co_await std::move(awaitable);
}

template <class T>
Ok<Task<T>> make_ok(Task<T>&& task) {
  return Ok<Task<T>>(std::move(task));
}
template <class T>
Ok<Operation<T>> make_ok(Operation<T>&& operation) {
  return Ok<Operation<T>>(std::move(operation));
}
template <Fallible R>
Ok<R> make_ok(R&& result) {
  return Ok<R>(std::forward<R>(result));
}
template <class A>
requires(!kIsTask<A> && !IsOperation<A> && !Fallible<A>) auto make_ok(A&& awaitable) {
  return make_ok(as_task<std::remove_cvref_t<A>>(std::forward<A>(awaitable)));
}

}  // namespace pawl::detail
