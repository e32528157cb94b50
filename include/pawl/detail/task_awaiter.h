// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "pawl/detail/awaiter.h"
#include "pawl/detail/check.h"
#include "pawl/detail/frame.h"
#include "pawl/detail/task_promise.h"
#include "pawl/operation.h"
#include "pawl/poller.h"

namespace pawl::detail {

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

}  // namespace pawl::detail
