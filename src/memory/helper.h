// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "pawl/time.h"

namespace pawl::memory {

/// A thread for what a poller's turn must not do: taking memory from the system, registering it,
/// and waiting for the deadlines of those who wait without a poller. Started at first use.
///
/// Jobs wait in a queue without a bound of its own, because none may be refused: one that is not
/// run leaves memory registered. Its callers bound it: a pool has one growth under way at a time,
/// and a region one deregistration for each `close` that waits and one for its end.
class Helper {
 public:
  Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

  /// Runs `job` on the thread, in order, and leaves it empty. False, and nothing is done, after
  /// `stop`. Any thread.
  bool run(std::function<void()>& job);
  /// Calls the timer function at `at` of `clock`, or earlier if it was asked for an earlier time;
  /// one function for all, set before the first call.
  void set_timer(const Clock& clock, std::function<void()> timer);
  void wake_at(TimePoint at);
  /// Ends the thread after all jobs that were given to it, and waits for that, unless a job or the
  /// timer is what calls it. No timer starts any more. Idempotent; not by two threads at once.
  void stop();

 private:
  struct State;
  void start_locked();
  static void loop(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;
};

}  // namespace pawl::memory
