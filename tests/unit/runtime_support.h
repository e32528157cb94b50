// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/list.h"
#include "pawl/blocking.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/result.h"
#include "pawl/task.h"
#include "pawl/time.h"

/// What the tests of tasks and operations share.
namespace pawl::test {

/// Counts itself, and owns memory so that address sanitizer sees a second destruction.
class Noisy {
 public:
  Noisy() : text("a text that is too long for the small buffer of a string") {
    ++made;
    ++alive;
  }
  Noisy(const Noisy& other) : text(other.text) {
    ++made;
    ++alive;
  }
  Noisy(Noisy&& other) noexcept : text(other.text) {
    ++made;
    ++alive;
  }
  Noisy& operator=(const Noisy&) = default;
  ~Noisy() {
    ++destroyed;
    --alive;
  }
  std::string text;
  static inline int made = 0;
  static inline int destroyed = 0;
  static inline int alive = 0;
};

/// A poller in hand-moved time, turned by the test.
class Rig {
 public:
  Rig() : poller(options(clock)) {}

  static PollerOptions options(const Clock& clock) {
    PollerOptions options;
    options.clock = &clock;
    return options;
  }
  template <class A>
  auto run(A awaitable) {
    return run_until(poller, std::move(awaitable));
  }
  /// Starts it here and now; its value goes to `out`.
  template <class A, class T>
  Started start(A awaitable, T& out) {
    const Poller::Scope scope(poller);
    return pawl::start(
        std::move(awaitable),
        Callback<T>{[](void* context, T value) { *static_cast<T*>(context) = std::move(value); },
                    &out});
  }
  /// Moves the time and turns until nothing is left to do.
  void advance(Duration d) {
    clock.advance(d);
    turn();
  }
  void turn() {
    while (poller.run_once()) {
    }
  }

  ManualClock clock;
  Poller poller;
};

/// What waits at it goes on when it is opened. The test is the event.
class Gate {
 public:
  class Wait final : public OperationState<Status>, public ListNode<> {
   public:
    explicit Wait(Gate& gate) : gate_(gate) {}

   private:
    void on_begin() override {
      poller = home();
      gate_.waits_.push_back(*this);
    }
    void on_drop() noexcept override { unlink(); }
    Gate& gate_;

   public:
    Poller* poller = nullptr;
  };
  class WaitUnit final : public OperationState<Unit> {
   public:
    explicit WaitUnit(Operation<Status> inner) : inner_(std::move(inner)) {}

   private:
    void on_begin() override {
      inner_.begin(Callback<Status>{
          [](void* context, Status) { static_cast<WaitUnit*>(context)->complete(Unit()); }, this});
    }
    void on_drop() noexcept override { inner_.reset(); }
    Operation<Status> inner_;
  };

  Operation<Status> wait_status() { return make_operation<Wait>(*this); }
  Operation<Unit> wait() { return make_operation<WaitUnit>(wait_status()); }
  [[nodiscard]] std::size_t waiting() const { return waits_.count(); }
  /// Lets everyone through who waits now.
  void open() {
    List<Wait> open;
    open.splice_back(waits_);
    while (Wait* wait = open.pop_front()) {
      if (Poller::current() == nullptr && wait->poller != nullptr) {
        const Poller::Scope scope(*wait->poller);
        wait->complete(Status());
      } else {
        wait->complete(Status());
      }
    }
  }

 private:
  List<Wait> waits_;
};

/// Calls a function inside begin(), then completes or never does.
class CallInBegin final : public OperationState<Unit> {
 public:
  CallInBegin(std::function<void()> fn, bool completes)
      : fn_(std::move(fn)), completes_(completes) {}

 private:
  void on_begin() override {
    fn_();
    if (completes_) complete(Unit());
  }
  std::function<void()> fn_;
  bool completes_;
};

/// Another library's event: one waiter, resumed where it is set.
class ForeignEvent {
 public:
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) { handle_ = handle; }
  int await_resume() const { return value_; }
  void set(int value) {
    value_ = value;
    std::exchange(handle_, nullptr).resume();
  }

 private:
  std::coroutine_handle<> handle_;
  int value_ = 0;
};

/// Awaitables that are ready, of types that own memory.
class ForeignValue {
 public:
  explicit ForeignValue(int value) : value_(value) {}
  class Awaiter {
   public:
    explicit Awaiter(int value) : value_(value) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<>) const { return false; }
    int await_resume() const { return value_; }

   private:
    int value_;
  };
  Awaiter operator co_await() const { return Awaiter(value_); }

 private:
  int value_;
  Noisy noisy_;
};

class ForeignResult {
 public:
  explicit ForeignResult(int value) : value_(value) {}
  bool await_ready() const { return true; }
  void await_suspend(std::coroutine_handle<>) const {}
  Result<int> await_resume() const { return value_; }

 private:
  int value_;
  Noisy noisy_;
};

/// Another library's coroutine: started by hand, owns its frame.
class ForeignJob {
 public:
  class promise_type {
   public:
    ForeignJob get_return_object() {
      return ForeignJob(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit ForeignJob(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  ForeignJob(ForeignJob&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~ForeignJob() {
    if (handle_) handle_.destroy();
  }
  void start() { handle_.resume(); }
  [[nodiscard]] bool done() const { return handle_.done(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace pawl::test
