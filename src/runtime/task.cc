// SPDX-License-Identifier: Apache-2.0
#include "pawl/task.h"

#include <exception>
#include <string>

#include "base/check.h"
#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/workers.h"

namespace pawl {
namespace detail {

Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::exception& exception) {
    return Status::with_detail(Code::handler_threw, exception.what());
  } catch (...) {
    return Status(Code::handler_threw, "something that is not a std::exception was thrown");
  }
}

void exception_without_awaiter(const std::exception_ptr& exception) noexcept {
  std::string text = "an exception left a Task that cannot carry it (return a Status or Result)";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& what) {
    text += std::string(": ") + what.what();
  } catch (...) {
    text += ": something else than a std::exception";
  }
  check_failed("", text.c_str(), "", 0);
}

Status deadline_expired() { return Status(Code::deadline, "with_deadline: the time was up"); }

Status workers_full() {
  return Status(Code::resource_exhausted,
                "run_on: the workers' queue is full; raise WorkersOptions::queue_max");
}

Status blocking_on_a_poller() {
  return Status(Code::failed_precondition,
                "a blocking call on a poller's thread would wait for itself; co_await it");
}

void Waiter::signal() {
  const std::lock_guard lock(mutex_);
  signalled_ = true;
  changed_.notify_one();
}

void Waiter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return signalled_; });
}

namespace {

class SleepState final : public OperationState<Unit> {
 public:
  SleepState(TimePoint until, Duration duration) noexcept : until_(until), duration_(duration) {}

 private:
  void on_begin() override {
    PAWL_CHECK(home() != nullptr, "sleep is started on a thread that turns no poller");
    const TimePoint until = until_ == TimePoint::never() ? home()->now() + duration_ : until_;
    timer_.arm(
        *home(), until, [](void* context) { static_cast<SleepState*>(context)->complete(Unit()); },
        this);
  }
  void on_drop() noexcept override { timer_.cancel(); }

  const TimePoint until_;    // never(): `duration_` from the start
  const Duration duration_;  // max(): for ever
  Timer timer_;
};

}  // namespace
}  // namespace detail

Operation<Unit> sleep_until(TimePoint when) {
  return make_operation<detail::SleepState>(when, Duration::max());
}

Operation<Unit> sleep_for(Duration duration) {
  return make_operation<detail::SleepState>(TimePoint::never(), duration);
}

}  // namespace pawl
