// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>
#include <coroutine>
#include <cstdint>

#include "pawl/detail/check.h"
#include "pawl/poller.h"

namespace pawl::detail {

template <class T>
class OperationAwaiter;

/// A started tree of tasks: one chain of frames, of which the innermost runs or waits. Knows
/// whether it runs at this moment, because a frame that runs must not be destroyed: dropping such a
/// chain only dooms it, and it ends at its next suspension.
class Root {
 public:
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  /// Told when the chain is destroyed below a C++ frame that still has to return.
  class Guard {
   public:
    explicit Guard(Root& root) noexcept : root_(root), outer_(root.guards_) { root.guards_ = this; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      if (!dead_) root_.guards_ = outer_;
    }
    /// The frames are gone; touch nothing of them.
    [[nodiscard]] bool dead() const noexcept { return dead_; }

   private:
    friend class Root;
    Root& root_;
    Guard* outer_;
    bool dead_ = false;
  };

  [[nodiscard]] bool doomed() const noexcept { return doomed_; }
  void set_active(bool active) noexcept { active_ = active; }
  /// Destroys all frames and the root. The chain must be suspended.
  void destroy() noexcept;
  /// Destroys now, or when the chain next suspends.
  void destroy_when_suspended() noexcept {
    if (active_) {
      doomed_ = true;
    } else {
      destroy();
    }
  }

 protected:
  Root() noexcept = default;
  virtual ~Root() = default;

  /// Runs `frame` as this root's code until it suspends or ends. `this` may be gone afterwards.
  void run(std::coroutine_handle<> frame);
  /// The root's code has ended; what follows on this stack is not part of it any more.
  void leave() noexcept;
  virtual void destroy_frames() noexcept = 0;

 private:
  friend class AwaiterCore;

  void enter() noexcept;

  bool active_ = false;
  bool doomed_ = false;
  Guard* guards_ = nullptr;
  const void* outer_running_ = nullptr;
};

/// The promise of a coroutine that belongs to a Root.
template <class P>
concept HasRoot = requires(P& promise) {
  { promise.root() } -> std::same_as<Root*>;
};

/// The part of an operation's awaiter that does not depend on the value: it resumes the coroutine
/// directly, except inside another coroutine that runs on this poller: then from the ready queue,
/// so that no coroutine's code ever runs in the middle of another's.
class AwaiterCore : private Work {
 public:
  AwaiterCore(const AwaiterCore&) = delete;
  AwaiterCore& operator=(const AwaiterCore&) = delete;

 protected:
  AwaiterCore() noexcept : Work(&AwaiterCore::run_deferred, "resume") {}
  ~AwaiterCore() {
    Poller::withdraw(*this);
    if (gone_ != nullptr) *gone_ = true;
  }

  /// Suspends `handle` and calls `begin`, which begins the operation. True if the coroutine stays
  /// suspended (then `this` may be gone), false if the value is there already.
  template <class P, class Begin>
  bool suspend(std::coroutine_handle<P> handle, Begin begin) {
    handle_ = handle;
    poller_ = Poller::current();
    if constexpr (HasRoot<P>) {
      root_ = handle.promise().root();
      require(poller_ != nullptr, "a Task was resumed on a thread that does not turn its poller");
      begin();
    } else if (poller_ == nullptr) {
      begin();
    } else {
      // A coroutine of another library may be destroyed by what it begins.
      bool gone = false;
      gone_ = &gone;
      begin();
      if (gone) return true;
      gone_ = nullptr;
    }
    return began();
  }
  /// The value was stored: resumes, or leaves it to began().
  void completed();

  /// What to resume once the value is there, if not the coroutine that waits.
  using Next = std::coroutine_handle<> (*)(AwaiterCore& self);
  void set_next(Next next) noexcept { next_ = next; }
  [[nodiscard]] std::coroutine_handle<> handle() const noexcept { return handle_; }

 private:
  enum class Phase : std::uint8_t { beginning, suspended, done };

  bool began();
  static void run_deferred(Work* work);
  void resume();

  std::coroutine_handle<> handle_;
  Root* root_ = nullptr;
  Poller* poller_ = nullptr;
  Next next_ = nullptr;
  bool* gone_ = nullptr;  // while it begins: where to say that it was destroyed
  std::atomic<Phase> phase_{Phase::beginning};
};

}  // namespace pawl::detail
