// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "pawl/deadline.h"
#include "pawl/detail/status_value.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/task.h"

namespace pawl {

namespace detail {

/// One thread waits for another.
class Waiter {
 public:
  void signal();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool signalled_ = false;
};

Status blocking_on_a_poller();

/// Starts an operation on a poller from another thread.
template <class T>
class BlockedOn : private Work {
 public:
  explicit BlockedOn(Operation<T> operation) noexcept
      : Work(&BlockedOn::begin, "block_on"), operation_(std::move(operation)) {}
  T run(Poller& poller) {
    poller.post(*this);
    waiter_.wait();
    return std::move(*value_);
  }

 private:
  static void begin(Work* work) {
    auto* self = static_cast<BlockedOn*>(work);
    self->operation_.begin(Callback<T>{&BlockedOn::done, self});
  }
  static void done(void* context, T value) {
    auto* self = static_cast<BlockedOn*>(context);
    self->value_.emplace(std::move(value));
    self->operation_.reset();  // on its poller
    self->waiter_.signal();    // self is gone after this
  }

  Operation<T> operation_;
  std::optional<T> value_;
  Waiter waiter_;
};

}  // namespace detail

/// Waits for an operation, on a thread that turns no poller; on a poller's thread, which would wait
/// for itself, it gives Code::failed_precondition at once. So a T that cannot carry a Status
/// becomes Result<T> (Unit: Status). Not for Tasks: they need a poller. The node that the operation
/// belongs to is turned by another thread (`Node::run_background`), else nothing ever happens.
template <class T>
detail::WithStatusT<T> block(Operation<T> operation) {
  if (Poller::current() != nullptr) {
    return detail::from_status<detail::WithStatusT<T>>(detail::blocking_on_a_poller());
  }
  detail::Waiter waiter;
  struct Wait {
    detail::Waiter& waiter;
    std::optional<T> value;
  } wait{waiter, std::nullopt};
  operation.begin(Callback<T>{[](void* context, T value) {
                                auto* self = static_cast<Wait*>(context);
                                self->value.emplace(std::move(value));
                                self->waiter.signal();
                              },
                              &wait});
  waiter.wait();
  operation.reset();  // waits until the callback has returned
  return detail::with_status<T>(std::move(*wait.value));
}

template <class T>
void block(Task<T>) = delete;  // a Task needs a poller: node.block_on(task), or block_on

/// Runs a Task or Operation (by value) on a poller that another thread turns, and waits for it. On
/// a poller's thread Code::failed_precondition where the value can carry it; else the process ends.
template <class A>
auto block_on(Poller& poller, A awaitable) {
  using T = detail::OperationValueT<A>;
  if (Poller::current() != nullptr) {
    if constexpr (detail::CarriesStatus<T>) {
      return detail::from_status<T>(detail::blocking_on_a_poller());
    } else {
      detail::require(false,
                      "block_on is called on a poller's thread, which would wait for itself");
    }
  }
  detail::BlockedOn<T> blocked(detail::to_operation(std::move(awaitable)));
  return blocked.run(poller);
}

/// Runs a Task or Operation (by value) and turns the poller on this thread until it is done. For
/// programs with one thread, and tests.
template <class A>
auto run_until(Poller& poller, A awaitable) {
  using T = detail::OperationValueT<A>;
  Poller::Scope scope(poller);
  std::optional<T> value;
  auto operation = detail::to_operation(std::move(awaitable));
  operation.begin(Callback<T>{[](void* context, T got) {
                                static_cast<std::optional<T>*>(context)->emplace(std::move(got));
                              },
                              &value});
  while (!value.has_value()) poller.run_or_sleep();
  operation.reset();
  return std::move(*value);
}

}  // namespace pawl
