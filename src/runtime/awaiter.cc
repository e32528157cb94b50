// SPDX-License-Identifier: Apache-2.0
#include "pawl/detail/awaiter.h"

namespace pawl::detail {

void Root::enter() noexcept {
  active_ = true;
  outer_running_ = this_thread.running;
  this_thread.running = this;
}

void Root::leave() noexcept {
  active_ = false;
  this_thread.running = outer_running_;
}

void Root::run(std::coroutine_handle<> frame) {
  const void* before = this_thread.running;
  enter();
  frame.resume();
  this_thread.running = before;
}

void Root::destroy() noexcept {
  for (Guard* guard = guards_; guard != nullptr; guard = guard->outer_) guard->dead_ = true;
  // Destructors of the frames may complete what others wait for: these go on afterwards.
  const void* before = this_thread.running;
  this_thread.running = this;
  destroy_frames();
  this_thread.running = before;
  delete this;
}

bool AwaiterCore::began() {
  if (poller_ == nullptr) {
    // Another thread may complete it at this moment; who comes second resumes.
    return phase_.exchange(Phase::suspended, std::memory_order_acq_rel) != Phase::done;
  }
  if (root_ != nullptr && root_->doomed()) {
    root_->destroy();  // this awaiter too
    return true;
  }
  if (phase_.load(std::memory_order_relaxed) == Phase::done) return false;
  phase_.store(Phase::suspended, std::memory_order_relaxed);
  if (root_ != nullptr) root_->active_ = false;
  return true;
}

void AwaiterCore::completed() {
  if (poller_ == nullptr) {
    if (phase_.exchange(Phase::done, std::memory_order_acq_rel) == Phase::suspended) resume();
    return;
  }
  if (phase_.load(std::memory_order_relaxed) == Phase::beginning) {
    phase_.store(Phase::done, std::memory_order_relaxed);
    return;
  }
  phase_.store(Phase::done, std::memory_order_relaxed);
  if (this_thread.running != nullptr) {
    poller_->defer(*this);
  } else {
    resume();
  }
}

void AwaiterCore::run_deferred(Work* work) { static_cast<AwaiterCore*>(work)->resume(); }

void AwaiterCore::resume() {
  // The awaiter and the root may be gone when the coroutine next suspends.
  const void* before = this_thread.running;
  if (root_ != nullptr) {
    root_->enter();
  } else {
    this_thread.running = handle_.address();
  }
  const std::coroutine_handle<> next = next_ == nullptr ? handle_ : next_(*this);
  next.resume();
  this_thread.running = before;
}

}  // namespace pawl::detail
