// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "pawl/detail/status_value.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/task.h"
#include "pawl/time.h"
#include "pawl/timer.h"

namespace pawl {

/// Completes once the poller's now() reached `when`. On a poller.
Operation<Unit> sleep_until(TimePoint when);
/// Completes this long after it was started. On a poller.
Operation<Unit> sleep_for(Duration duration);

namespace detail {

/// The Status of a with_deadline that expired.
Status deadline_expired();

template <class T>
class DeadlineState final : public OperationState<WithStatusT<T>> {
 public:
  DeadlineState(Operation<T> inner, Duration limit) noexcept
      : inner_(std::move(inner)), limit_(limit) {}

 private:
  void on_begin() override {
    Poller* poller = this->home();
    require(poller != nullptr, "with_deadline is started on a thread that turns no poller");
    const TimePoint deadline = poller->now() + limit_;
    inner_.begin(Callback<T>{&DeadlineState::done, this});
    if (this->pending()) timer_.arm(*poller, deadline, &DeadlineState::expired, this);
  }
  void on_drop() noexcept override {
    timer_.cancel();
    inner_.reset();
  }
  static void done(void* context, T value) {
    auto* self = static_cast<DeadlineState*>(context);
    self->timer_.cancel();
    self->complete(with_status<T>(std::move(value)));
  }
  static void expired(void* context) {
    Ref<DeadlineState> self(static_cast<DeadlineState*>(context));  // what is dropped may drop us
    self->inner_.reset();
    self->complete(from_status<WithStatusT<T>>(deadline_expired()));
  }

  Operation<T> inner_;
  const Duration limit_;
  Timer timer_;
};

/// A Task or an Operation as an Operation.
template <class T>
Operation<T> to_operation(Operation<T>&& operation) {
  return std::move(operation);
}
template <class T>
Operation<LiftT<T>> to_operation(Task<T>&& task) {
  return std::move(task).operation();
}
template <class A>
using OperationValueT = typename decltype(to_operation(std::declval<A>()))::value_type;

}  // namespace detail

/// What `awaitable` (a Task or Operation, by value) gives, or Code::deadline if that takes longer
/// than `limit` from the start; then it is dropped. A T that cannot carry a Status becomes
/// Result<T> (Unit: Status). On a poller.
template <class A>
auto with_deadline(A&& awaitable, Duration limit) {
  static_assert(!std::is_lvalue_reference_v<A>, "with_deadline consumes what it awaits: std::move");
  using T = detail::OperationValueT<A>;
  return make_operation<detail::DeadlineState<T>>(detail::to_operation(std::forward<A>(awaitable)),
                                                  limit);
}

}  // namespace pawl
