// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "pawl/time.h"

namespace pawl::memory {

/// A thread for what a poller's turn must not do: taking memory from the system, registering it,
/// and waiting for the deadlines of those who wait without a poller. Started at first use; joined
/// by the destructor, after the job that is under way (detached if that job is what destroys it).
class Helper {
 public:
  Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

  /// Runs `job` on the thread, in order. Any thread.
  void run(std::function<void()> job);
  /// Calls the timer function at `at` of `clock`, or earlier if it was asked for an earlier time;
  /// one function for all, set before the first call.
  void set_timer(const Clock& clock, std::function<void()> timer);
  void wake_at(TimePoint at);
  /// Ends the thread: jobs and timers that did not start are dropped. Idempotent.
  void stop();

 private:
  struct State;
  void start_locked();
  static void loop(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;
};

}  // namespace pawl::memory
