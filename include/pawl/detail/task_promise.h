// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "pawl/detail/awaiter.h"
#include "pawl/detail/check.h"
#include "pawl/detail/frame.h"
#include "pawl/detail/status_value.h"
#include "pawl/operation.h"

namespace pawl {

template <class T>
class Task;

namespace detail {

template <class T>
class TaskAwaiter;
template <class T>
class TaskRoot;

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

/// Awaits another coroutine library's awaitable inside a Task: keeps the root informed about
/// running and waiting. Such an awaitable must resume on the poller's thread.
template <class Awaiter>
class ForeignAwaiter {
 public:
  template <class A>
  ForeignAwaiter(A&& awaitable, Root* root)
      : awaiter_(get(std::forward<A>(awaitable))), root_(root) {}
  ForeignAwaiter(const ForeignAwaiter&) = delete;
  ForeignAwaiter& operator=(const ForeignAwaiter&) = delete;

  bool await_ready() { return static_cast<bool>(awaiter_.await_ready()); }
  template <class P>
  auto await_suspend(std::coroutine_handle<P> handle) {
    using R = decltype(awaiter_.await_suspend(handle));
    const bool doomed = root_->doomed();
    root_->set_active(false);
    if (!doomed) return awaiter_.await_suspend(handle);
    root_->destroy();  // this awaiter too
    if constexpr (std::is_same_v<R, bool>) {
      return true;
    } else if constexpr (!std::is_void_v<R>) {
      return R(std::noop_coroutine());
    }
  }
  decltype(auto) await_resume() {
    root_->set_active(true);
    return awaiter_.await_resume();
  }

  template <class A>
  static decltype(auto) get(A&& awaitable) {
    if constexpr (requires { std::forward<A>(awaitable).operator co_await(); }) {
      return std::forward<A>(awaitable).operator co_await();
    } else if constexpr (requires { operator co_await(std::forward<A>(awaitable)); }) {
      return operator co_await(std::forward<A>(awaitable));
    } else {
      return std::forward<A>(awaitable);
    }
  }

 private:
  Awaiter awaiter_;
  Root* root_;
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

/// A Task awaits a Task.
template <class T>
class TaskAwaiter {
 public:
  explicit TaskAwaiter(Task<T>&& task) noexcept : child_(task.release()) {}
  TaskAwaiter(const TaskAwaiter&) = delete;
  TaskAwaiter& operator=(const TaskAwaiter&) = delete;
  ~TaskAwaiter() {
    if (child_) child_.destroy();
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class P>
  bool await_suspend(std::coroutine_handle<P> parent) noexcept {
    return run(parent.promise().root(), Continuation{&resume_parent, parent.address()}) !=
           Outcome::finished;
  }
  T await_resume() {
    // The frame goes before the awaiting coroutine goes on: after an error its locals still live.
    struct Destroy {
      std::coroutine_handle<> frame;
      ~Destroy() { frame.destroy(); }
    };
    Destroy destroy{child_};
    auto& promise = std::exchange(child_, nullptr).promise();
    return promise.take();
  }

 protected:
  enum class Outcome { finished, suspended, destroyed };

  /// Runs the child until it suspends or finishes. `destroyed`: this awaiter is gone.
  Outcome run(Root* root, Continuation continuation) noexcept {
    auto child = child_;
    child.promise().attach(root, continuation);
    child.promise().enter_inline();
    Root::Guard guard(*root);
    child.resume();
    if (guard.dead()) return Outcome::destroyed;
    return child.promise().leave_inline() ? Outcome::finished : Outcome::suspended;
  }
  [[nodiscard]] auto& promise() const noexcept { return child_.promise(); }

 private:
  static std::coroutine_handle<> resume_parent(void* frame) noexcept {
    return std::coroutine_handle<>::from_address(frame);
  }

  std::coroutine_handle<TaskPromise<T>> child_;
};

/// A started task: owns the frame, tells the callback.
template <class T>
class TaskRoot final : public OperationBase<LiftT<T>>, public Root {
 public:
  using Value = LiftT<T>;

  explicit TaskRoot(std::coroutine_handle<TaskPromise<T>> frame) noexcept : frame_(frame) {
    require(static_cast<bool>(frame), "an empty Task is started");
  }

  void begin(Callback<Value> callback) override {
    require(Poller::current() != nullptr,
            "a Task is started on a thread that turns no poller: use run_until or block_on");
    callback_ = callback;
    frame_.promise().attach(this, Continuation{&finished, this});
    run(frame_);
  }
  void drop() noexcept override {
    callback_.fn = nullptr;
    destroy_when_suspended();
  }

  static void* operator new(std::size_t bytes) { return frame_allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    frame_free(memory, bytes);
  }

 private:
  ~TaskRoot() override = default;

  static std::coroutine_handle<> finished(void* context) noexcept {
    auto* self = static_cast<TaskRoot*>(context);
    auto& promise = self->frame_.promise();
    if (promise.exception()) exception_without_awaiter(promise.exception());
    if (self->doomed()) {
      self->leave();
      self->destroy();
      return std::noop_coroutine();
    }
    if constexpr (std::is_void_v<T>) {
      self->destroy_frames();
      self->leave();
      self->callback_.fn(self->callback_.context, Unit());
    } else {
      T value = promise.take();
      self->destroy_frames();
      self->leave();
      self->callback_.fn(self->callback_.context, std::move(value));
    }
    return std::noop_coroutine();
  }
  void destroy_frames() noexcept override {
    if (auto frame = std::exchange(frame_, nullptr)) frame.destroy();
  }

  std::coroutine_handle<TaskPromise<T>> frame_;
  Callback<Value> callback_;
};

}  // namespace detail
}  // namespace pawl

#include "pawl/detail/ok.h"  // IWYU pragma: export
