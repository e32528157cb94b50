// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "pawl/detail/awaiter.h"
#include "pawl/detail/foreign_awaiter.h"
#include "pawl/detail/frame.h"
#include "pawl/detail/status_value.h"
#include "pawl/operation.h"

namespace pawl {

template <class T>
class Task;

namespace detail {

template <class T>
class TaskAwaiter;

/// g++ 12 destroys such a by-value parameter twice.
template <class A>
inline constexpr bool kMiscompiledParameter =
    !std::is_reference_v<A> && std::is_aggregate_v<A> && !std::is_trivially_destructible_v<A>;

/// What runs after a task: gives the coroutine to go on with.
struct Continuation {
  std::coroutine_handle<> (*fn)(void* context) noexcept = nullptr;
  void* context = nullptr;
};

/// The part of a task's promise that does not depend on its type.
class PromiseBase {
 public:
  PromiseBase(const PromiseBase&) = delete;
  PromiseBase& operator=(const PromiseBase&) = delete;

  static void* operator new(std::size_t bytes) { return frame_allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    frame_free(memory, bytes);
  }

  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> frame) const noexcept {
      return frame.promise().finished();
    }
    void await_resume() const noexcept {}
  };
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] Final final_suspend() const noexcept { return {}; }

  [[nodiscard]] Root* root() const noexcept { return root_; }
  void attach(Root* root, Continuation continuation) noexcept {
    root_ = root;
    continuation_ = continuation;
  }
  /// Between these the awaiting coroutine is inside its await_suspend: if the task finishes
  /// meanwhile it goes on by itself, without using more stack.
  void enter_inline() noexcept { inline_ = true; }
  [[nodiscard]] bool leave_inline() noexcept {
    inline_ = false;
    return done_;
  }
  /// The value is stored. Gives what to resume next.
  std::coroutine_handle<> finished() noexcept {
    done_ = true;
    if (inline_) return std::noop_coroutine();
    return continuation_.fn(continuation_.context);
  }

 protected:
  PromiseBase() noexcept = default;
  ~PromiseBase() = default;

 private:
  Root* root_ = nullptr;
  Continuation continuation_;
  bool inline_ = false;
  bool done_ = false;
};

/// The Status for the exception that is being handled.
Status status_of_exception() noexcept;
/// An exception left a task that nobody awaits in a Task.
[[noreturn]] void exception_without_awaiter(const std::exception_ptr& exception) noexcept;

/// Where a task's value waits for whoever takes it.
template <class T>
class PromiseValue : public PromiseBase {
 public:
  template <class U = T>
  requires std::is_convertible_v<U&&, T>
  void return_value(U&& value) { value_.emplace(std::forward<U>(value)); }
  void unhandled_exception() noexcept {
    if constexpr (CarriesStatus<T>) {
      value_.emplace(from_status<T>(status_of_exception()));
    } else {
      exception_ = std::current_exception();
    }
  }
  /// Ends the task with an error, as if it had returned it. Gives what to resume next.
  std::coroutine_handle<> fail(Status status) requires CarriesStatus<T> {
    value_.emplace(from_status<T>(std::move(status)));
    return this->finished();
  }
  [[nodiscard]] T& stored() noexcept { return *value_; }
  T take() {
    if (exception_) std::rethrow_exception(exception_);
    return std::move(*value_);
  }
  [[nodiscard]] const std::exception_ptr& exception() const noexcept { return exception_; }

 private:
  std::optional<T> value_;
  std::exception_ptr exception_;
};

template <>
class PromiseValue<void> : public PromiseBase {
 public:
  void return_void() noexcept {}
  void unhandled_exception() noexcept { exception_ = std::current_exception(); }
  void take() {
    if (exception_) std::rethrow_exception(exception_);
  }
  [[nodiscard]] const std::exception_ptr& exception() const noexcept { return exception_; }

 private:
  std::exception_ptr exception_;
};

template <class Source>
class Ok;
template <class A>
inline constexpr bool kIsTask = false;
template <class T>
inline constexpr bool kIsTask<Task<T>> = true;
template <class A>
concept IsOperation = requires(A& a) {
  []<class U>(Operation<U>&) {}(a);
};

template <class T>
class TaskPromise : public PromiseValue<T> {
 public:
  Task<T> get_return_object() noexcept;

  template <class U>
  auto await_transform(Task<U>&& task) {
    return TaskAwaiter<U>(std::move(task));
  }
  template <class U>
  auto await_transform(Operation<U>&& operation) {
    return OperationAwaiter<U>(std::move(operation));
  }
  template <class Source>
  auto await_transform(Ok<Source>&& source) {
    static_assert(
        CarriesStatus<T>,
        "co_await ok(x) ends the coroutine with x's error: it must be a Task<Result<X>> or "
        "a Task<Status>");
    return std::move(source).awaiter();
  }
  template <class U>
  void await_transform(Task<U>&) {
    static_assert(sizeof(U) == 0, "awaiting a Task consumes it: write co_await std::move(task)");
  }
  template <class U>
  void await_transform(Operation<U>&) {
    static_assert(sizeof(U) == 0,
                  "awaiting an Operation consumes it: co_await std::move(operation)");
  }
  template <class A>
  requires(!kIsTask<std::remove_cvref_t<A>> &&
           !IsOperation<std::remove_cvref_t<A>>) auto await_transform(A&& awaitable) {
    using Got = decltype(ForeignAwaiter<int>::get(std::forward<A>(awaitable)));
    return ForeignAwaiter<Got>(std::forward<A>(awaitable), this->root());
  }
};

}  // namespace detail
}  // namespace pawl
