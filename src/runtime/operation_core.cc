// SPDX-License-Identifier: Apache-2.0
#include "pawl/detail/operation_core.h"

#include <thread>

#include "base/check.h"

namespace pawl::detail {

bool OperationCore::move(State from, State to) noexcept {
  return state_.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
}

void OperationCore::begin_core() {
  home_ = Poller::current();
  PAWL_CHECK(move(State::idle, State::pending), "an operation is started twice");
  if (home_ == nullptr) {
    retain();  // it may be completed and dropped by other threads before core_begin returns
    core_begin();
    release();
    return;
  }
  beginning_ = true;
  core_begin();
  beginning_ = false;
  if (dropped_in_begin_) release();
}

OperationCore::Claim OperationCore::claim() noexcept {
  if (!pending()) return Claim::refused;  // before home_, which is written until then
  if (home_ == nullptr) {
    return move(State::pending, State::delivering) ? Claim::deliver_here : Claim::refused;
  }
  if (home_ == Poller::current()) {
    return move(State::pending, State::delivered) ? Claim::deliver : Claim::refused;
  }
  return move(State::pending, State::handing) ? Claim::hand_over : Claim::refused;
}

void OperationCore::hand_over() noexcept {
  retain();  // the inbox's
  retain();  // ours, until the state says that we are done
  home_->post(*this);
  move(State::handing, State::handed);  // not if it has arrived already
  release();
}

void OperationCore::arrive(Work* work) {
  auto* self = static_cast<OperationCore*>(work);
  if (self->state_.load(std::memory_order_acquire) != State::dropped) {
    self->state_.store(State::delivered, std::memory_order_release);
    self->core_deliver();
  }
  self->release();
}

void OperationCore::drop_core() noexcept {
  if (home_ == nullptr) return drop_off_poller();
  for (bool settled = false; !settled;) {
    switch (state_.load(std::memory_order_acquire)) {
      case State::pending:
        settled = move(State::pending, State::dropped);
        if (settled) core_dropped();
        break;
      case State::handing:
        // A few instructions of the completing thread: until they are over it may touch the
        // poller, which must not go away before.
        std::this_thread::yield();
        break;
      case State::handed:
        settled = move(State::handed, State::dropped);
        if (settled) core_discard();
        break;
      case State::idle:
      case State::delivering:
      case State::delivered:
      case State::dropped:
        settled = true;
        break;
    }
  }
  if (beginning_) {
    dropped_in_begin_ = true;
  } else {
    release();
  }
}

void OperationCore::drop_off_poller() noexcept {
  for (;;) {
    const State state = state_.load(std::memory_order_acquire);
    if (state == State::pending) {
      if (!move(State::pending, State::dropped)) continue;
      core_dropped();
      break;
    }
    if (state != State::delivering) break;
    // The callback runs: on this thread below us, or on another one, which it must have left before
    // drop() returns.
    const auto* delivery = static_cast<const Delivery*>(this_thread.delivering);
    while (delivery != nullptr && !delivery->is(this)) delivery = delivery->outer_;
    if (delivery != nullptr) break;
    state_.wait(State::delivering, std::memory_order_acquire);
  }
  release();
}

OperationCore::Delivery::Delivery(OperationCore& core) noexcept
    : core_(core), outer_(static_cast<const Delivery*>(this_thread.delivering)) {
  core_.retain();
  this_thread.delivering = this;
}

OperationCore::Delivery::~Delivery() {
  this_thread.delivering = outer_;
  core_.state_.store(State::delivered, std::memory_order_release);
  core_.state_.notify_all();
  core_.release();
}

}  // namespace pawl::detail
