// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "pawl/detail/status_value.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/task.h"

namespace pawl {

struct WorkersOptions {
  std::size_t threads = 2;
  std::size_t queue_max = 1024;  ///< work that waits; more is refused
};

/// A pool of threads for what may block or takes long. The destructor runs what is queued, then
/// ends the threads; nobody submits any more then. Pollers that wait for a run_on outlive it.
class Workers {
 public:
  explicit Workers(WorkersOptions options = {});
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  /// Runs work on one of the threads, in order of submission. False (nothing happens) if queue_max
  /// wait already or the pool is ending. Any thread.
  [[nodiscard]] bool submit(Work& work) noexcept;

  [[nodiscard]] std::size_t threads() const noexcept;
  /// Work that waits for a thread. Any thread.
  [[nodiscard]] std::size_t queued() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

/// The Status of a run_on whose workers had no room.
Status workers_full();

template <class F>
class RunOnState final : public OperationState<WithStatusT<std::invoke_result_t<F&>>> {
  using R = std::invoke_result_t<F&>;
  using T = WithStatusT<R>;

 public:
  RunOnState(Workers& workers, F fn) : job_(*this), workers_(workers), fn_(std::move(fn)) {}

 private:
  struct Job : Work {
    explicit Job(RunOnState& owner) noexcept : Work(&RunOnState::run, "run_on"), state(owner) {}
    RunOnState& state;
  };

  void on_begin() override {
    this->retain();  // the worker's
    if (workers_.submit(job_)) return;
    this->complete(from_status<T>(workers_full()));
    this->release();
  }
  static void run(Work* work) {
    RunOnState& self = static_cast<Job*>(work)->state;
    if (self.pending()) self.complete(self.call());
    self.release();
  }
  T call() noexcept {
    try {
      if constexpr (std::is_void_v<R>) {
        fn_();
        return Status();
      } else {
        return with_status<R>(fn_());
      }
    } catch (...) {
      return from_status<T>(status_of_exception());
    }
  }

  Job job_;
  Workers& workers_;
  F fn_;
};

}  // namespace detail

/// `co_await run_on(workers, fn)`: calls fn() on a worker thread and gives its value back on the
/// poller it was started on: as it is if it carries a Status, else as Result<R> (void: Status).
/// Code::resource_exhausted if the pool has no room, Code::handler_threw if fn throws. Dropped
/// before fn ran: fn is not called; while it runs: it runs to its end and its value is dropped. fn
/// is destroyed on either thread. With g++ 12 name a lambda that captures before the co_await.
template <class F>
auto run_on(Workers& workers, F fn) {
  return make_operation<detail::RunOnState<F>>(workers, std::move(fn));
}

}  // namespace pawl
