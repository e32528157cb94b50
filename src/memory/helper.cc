// SPDX-License-Identifier: Apache-2.0
#include "memory/helper.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace pawl::memory {

struct Helper::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  const Clock* clock = nullptr;
  std::function<void()> timer;
  TimePoint wake = TimePoint::never();
  bool started = false;
  bool stopped = false;
};

Helper::Helper() : state_(std::make_shared<State>()) {}

Helper::~Helper() { stop(); }

void Helper::start_locked() {
  if (state_->started) return;
  state_->started = true;
  thread_ = std::thread([state = state_] { loop(state); });
}

// The job may drop the last reference to the pool whose helper this is, before we are done here.
bool Helper::run(std::function<void()>& job) {
  const std::shared_ptr<State> state = state_;
  {
    std::lock_guard lock(state->mutex);
    if (state->stopped) return false;
    state->jobs.push_back(std::exchange(job, nullptr));
    start_locked();
  }
  state->changed.notify_one();
  return true;
}

void Helper::set_timer(const Clock& clock, std::function<void()> timer) {
  std::lock_guard lock(state_->mutex);
  state_->clock = &clock;
  state_->timer = std::move(timer);
}

void Helper::wake_at(TimePoint at) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopped || at >= state_->wake) return;
    state_->wake = at;
    start_locked();
  }
  state_->changed.notify_one();
}

void Helper::stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Helper::loop(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    if (!state->jobs.empty()) {
      std::function<void()> job = std::move(state->jobs.front());
      state->jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      continue;
    }
    if (state->stopped) return;
    if (state->wake == TimePoint::never()) {
      state->changed.wait(lock);
      continue;
    }
    const TimePoint now = state->clock->now();
    if (now < state->wake) {
      // A clock that is moved by hand does not wake us: look again soon.
      state->changed.wait_for(lock, std::min<Duration>(state->wake - now, 10ms));
      continue;
    }
    state->wake = TimePoint::never();
    std::function<void()> timer = state->timer;
    lock.unlock();
    timer();
    lock.lock();
  }
}

}  // namespace pawl::memory
