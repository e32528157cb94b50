// SPDX-License-Identifier: Apache-2.0
#include "guard/window_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/check.h"
#include "memory/helper.h"
#include "runtime/wake.h"

namespace pawl::guard {

namespace {

constexpr Duration kAllocateAgain = std::chrono::seconds(1);

/// What a call on the pool's thread ended with.
struct CallResult {
  FreeListener* listener = nullptr;  // of a free that somebody waits for
  std::uint64_t tag = 0;
  Window window;
  Status status;
  bool allocates = false;
};

}  // namespace

/// The thread, and the way of its results back to the poller.
class WindowPool::Aside {
 public:
  explicit Aside(WindowPool& pool)
      : wake_(
            pool.poller_, "memory windows",
            [](void* to) { static_cast<WindowPool*>(to)->tell_results(); }, &pool) {}

  /// Runs `call` on the thread; it returns what is to be told.
  void run(std::function<CallResult()> call) {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    std::function<void()> job = [this, call = std::move(call)] { put(call()); };
    PAWL_CHECK(helper_.run(job), "a device's windows are used after their end");
  }
  std::vector<CallResult> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(results_, {});
  }
  /// False: there were none.
  bool wait_for_all() {
    std::unique_lock lock(mutex_);
    const bool any = under_way_ != 0 || !results_.empty();
    done_.wait(lock, [this] { return under_way_ == 0; });
    return any;
  }
  /// Waits, and ends the thread.
  void stop() { helper_.stop(); }

 private:
  void put(CallResult result) {
    {
      const std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
      --under_way_;
    }
    done_.notify_all();
    wake_.post();
  }

  Wake wake_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<CallResult> results_;
  std::size_t under_way_ = 0;
  memory::Helper helper_;  // last: its thread uses the rest
};

WindowPool::WindowPool(fabric::Fabric& fabric, Poller& poller, std::size_t count)
    : fabric_(fabric), poller_(poller), count_(count) {
  if (fabric.capabilities().window_calls_block) aside_ = std::make_unique<Aside>(*this);
}

WindowPool::~WindowPool() {
  PAWL_CHECK(out_ == 0, "a window pool ends after the last of its windows came back");
  if (gone_) return;
  if (aside_) {
    aside_->stop();
    for (const CallResult& result : aside_->take()) {
      if (result.allocates && result.status.ok()) free_.push_back(result.window);
    }
  }
  for (const Window& window : free_) (void)fabric_.free_window(window.id);
}

Status WindowPool::fill() {
  while (!full()) {
    Result<fabric::WindowId> window = fabric_.allocate_window();
    if (!window.ok()) {
      count_ = free_.size();
      return window.status();
    }
    free_.push_back({*window, 0});
  }
  return {};
}

bool WindowPool::take(std::size_t count, Windows& out) {
  if (count > free_.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(free_.back());
    free_.pop_back();
  }
  out_ += count;
  return true;
}

void WindowPool::give_back(const Window& window) {
  --out_;
  if (window.binds < fabric::kWindowBindsMax) {
    free_.push_back(window);
  } else if (!aside_) {
    (void)fabric_.free_window(window.id);  // unbound: there is nothing that it could leave open
  } else {
    aside_->run([&fabric = fabric_, id = window.id] {
      (void)fabric.free_window(id);
      return CallResult();
    });
  }
}

std::optional<Status> WindowPool::free(const Window& window, FreeListener& listener,
                                       std::uint64_t tag) {
  if (!aside_) {
    Status status = fabric_.free_window(window.id);
    if (status.ok()) freed();
    return status;
  }
  aside_->run([&fabric = fabric_, &listener, tag, window] {
    return CallResult{&listener, tag, window, fabric.free_window(window.id), false};
  });
  return std::nullopt;
}

void WindowPool::try_again_later() {
  allocate_again_.arm(
      poller_, poller_.now() + kAllocateAgain, [](void*) {}, nullptr);
}

Status WindowPool::replenish() {
  if (!allocate_error_.ok()) return std::exchange(allocate_error_, Status());
  if (allocate_again_.armed()) return {};
  if (aside_) {
    for (; allocating_ < kReplenishPerTurn && free_.size() + out_ + allocating_ < count_;
         ++allocating_) {
      aside_->run([&fabric = fabric_] {
        Result<fabric::WindowId> window = fabric.allocate_window();
        if (!window.ok()) return CallResult{.status = window.status(), .allocates = true};
        return CallResult{.window = {*window, 0}, .allocates = true};
      });
    }
    return {};
  }
  for (std::size_t i = 0; i < kReplenishPerTurn && !full(); ++i) {
    Result<fabric::WindowId> window = fabric_.allocate_window();
    if (!window.ok()) {
      try_again_later();
      return window.status();
    }
    free_.push_back({*window, 0});
    look_again_ = true;
  }
  return {};
}

void WindowPool::tell_results() {
  for (CallResult& result : aside_->take()) {
    if (result.allocates) {
      --allocating_;
      if (result.status.ok()) {
        free_.push_back(result.window);
        look_again_ = true;
      } else {
        allocate_error_ = std::move(result.status);
        try_again_later();
      }
    } else if (result.listener != nullptr) {
      if (result.status.ok()) freed();
      result.listener->window_freed(result.tag, result.window, result.status);
    }
  }
}

bool WindowPool::finish_calls() {
  if (!aside_ || !aside_->wait_for_all()) return false;
  tell_results();
  return true;
}

void WindowPool::device_goes() {
  if (aside_) {
    aside_->stop();
    aside_->take();
  }
  gone_ = true;
}

}  // namespace pawl::guard
