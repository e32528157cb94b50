// SPDX-License-Identifier: Apache-2.0
// Windows of a device whose calls block: they are made on the pool's thread, and the poller hears
// what became of them.
#include "guard/window_pool.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "protocol/scripted_fabric.h"

namespace pawl::guard {
namespace {

/// Makes each call wait until the test lets it go on.
class SlowDevice final : public testing::ScriptedFabric {
 public:
  SlowDevice() { have_windows(/*calls_block=*/true); }
  Result<fabric::WindowId> allocate_window() override {
    std::unique_lock lock(mutex_);
    wait(lock);
    if (left_ == 0) return Status(Code::resource_exhausted, "the device has no more windows");
    --left_;
    return fabric::WindowId{++allocated_};
  }
  Status free_window(fabric::WindowId window) override {
    std::unique_lock lock(mutex_);
    wait(lock);
    if (!frees_) return Status(Code::internal, "the device refuses");
    freed_.push_back(window.value);
    return {};
  }

  void block(bool on) {
    const std::lock_guard lock(mutex_);
    blocked_ = on;
    changed_.notify_all();
  }
  void has(std::size_t windows) {
    const std::lock_guard lock(mutex_);
    left_ = windows;
  }
  void refuse(bool on) {
    const std::lock_guard lock(mutex_);
    frees_ = !on;
  }
  [[nodiscard]] std::vector<std::uint64_t> freed() {
    const std::lock_guard lock(mutex_);
    return freed_;
  }
  [[nodiscard]] std::vector<std::thread::id> threads() {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock) {
    threads_.push_back(std::this_thread::get_id());
    changed_.wait(lock, [this] { return !blocked_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool blocked_ = false;
  bool frees_ = true;
  std::size_t left_ = SIZE_MAX;
  std::uint64_t allocated_ = 0;
  std::vector<std::uint64_t> freed_;
  std::vector<std::thread::id> threads_;
};

class WindowPoolTest : public ::testing::Test, public FreeListener {
 protected:
  WindowPoolTest() : poller_(options()) { EXPECT_TRUE(pool_->fill().ok()); }
  PollerOptions options() {
    PollerOptions options;
    options.clock = &clock_;
    return options;
  }
  void window_freed(std::uint64_t tag, const Window&, const Status& status) override {
    told_.emplace_back(tag, status.code());
  }
  Windows take(std::size_t count) {
    Windows windows;
    EXPECT_TRUE(pool_->take(count, windows));
    return windows;
  }
  /// What the pool's thread did is here after this.
  void settle() {
    EXPECT_TRUE(pool_->finish_calls());
    while (poller_.run_once()) {
    }
  }

  ManualClock clock_;
  SlowDevice device_;
  Poller poller_;
  std::optional<WindowPool> pool_{std::in_place, device_, poller_, 4};
  std::vector<std::pair<std::uint64_t, Code>> told_;
};

TEST_F(WindowPoolTest, FreesOnItsOwnThreadAndTellsThePoller) {
  const Windows windows = take(2);
  device_.block(true);
  EXPECT_EQ(pool_->free(windows[0], *this, 7), std::nullopt);
  EXPECT_EQ(pool_->out(), 2u) << "it is not proven";
  device_.block(false);
  EXPECT_TRUE(told_.empty());
  settle();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0], (std::pair{std::uint64_t{7}, Code::ok}));
  EXPECT_EQ(pool_->out(), 1u);
  EXPECT_NE(device_.threads().back(), std::this_thread::get_id());
  pool_->give_back(windows[1]);
}

TEST_F(WindowPoolTest, OneThatIsNotFreedIsStillOut) {
  const Windows windows = take(1);
  device_.refuse(true);
  (void)pool_->free(windows[0], *this, 3);
  settle();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].second, Code::internal);
  EXPECT_EQ(pool_->out(), 1u);
  pool_->give_back(windows[0]);
}

TEST_F(WindowPoolTest, WhatIsMissingIsAllocatedAsideAndAfterAnErrorASecondLater) {
  const Windows windows = take(1);
  (void)pool_->free(windows[0], *this, 1);
  settle();
  EXPECT_FALSE(pool_->full());
  device_.has(0);
  EXPECT_TRUE(pool_->replenish().ok());
  settle();
  EXPECT_EQ(pool_->replenish().code(), Code::resource_exhausted);
  device_.has(1);
  EXPECT_TRUE(pool_->replenish().ok());
  EXPECT_FALSE(pool_->finish_calls()) << "not before the second is over";
  EXPECT_EQ(poller_.next_timer(), clock_.now() + 1s) << "a turn comes for it";
  clock_.advance(1s);
  EXPECT_TRUE(poller_.run_once());
  EXPECT_TRUE(pool_->replenish().ok());
  settle();
  EXPECT_TRUE(pool_->full());
  EXPECT_TRUE(pool_->look_due());
}

TEST_F(WindowPoolTest, ARetiredOneIsFreedAside) {
  Windows windows = take(1);
  windows[0].binds = fabric::kWindowBindsMax;
  pool_->give_back(windows[0]);
  settle();
  EXPECT_EQ(device_.freed(), std::vector<std::uint64_t>{windows[0].id.value});
  EXPECT_TRUE(told_.empty());
  EXPECT_FALSE(pool_->full());
}

TEST_F(WindowPoolTest, ADeviceWithFewerGivesWhatItHas) {
  device_.has(3);
  WindowPool small(device_, poller_, 10);
  EXPECT_EQ(small.fill().code(), Code::resource_exhausted);
  EXPECT_EQ(small.free(), 3u);
  EXPECT_TRUE(small.full());
}

// A call that is under way when the device is to be destroyed would be made to what is gone.
TEST_F(WindowPoolTest, TheDeviceGoesAfterTheCallsThatAreUnderWay) {
  const Windows windows = take(1);
  device_.block(true);
  (void)pool_->free(windows[0], *this, 9);
  std::thread later([this] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    device_.block(false);
  });
  pool_->device_goes();
  EXPECT_EQ(device_.freed().size(), 1u);
  later.join();
  pool_->forget(1);
}

// The poller may turn once more after the pool is gone; nothing is told then.
TEST_F(WindowPoolTest, MayGoBeforeItsNewsArrive) {
  const Windows windows = take(1);
  (void)pool_->free(windows[0], *this, 9);
  pool_->device_goes();
  pool_->forget(1);
  pool_.reset();
  while (poller_.run_once()) {
  }
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(device_.freed().size(), 1u) << "the call was under way, and was waited for";
}

}  // namespace
}  // namespace pawl::guard
