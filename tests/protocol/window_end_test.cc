// SPDX-License-Identifier: Apache-2.0
// The states of a lease's windows, edge by edge: the test is the device.
#include "guard/window_end.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "memory/lease_table.h"
#include "memory/pool_core.h"
#include "pawl/pool.h"
#include "protocol/scripted_fabric.h"
#include "support/log_lines.h"

namespace pawl::guard {
namespace {

using fabric::CompletionStatus;
using fabric::Opcode;
using memory::LeaseEnd;

/// Keeps what is posted until the test says what became of it.
class Device final : public testing::ScriptedFabric {
 public:
  struct Posted {
    std::uint64_t id;
    Opcode op;
    fabric::WindowId window;
  };
  std::deque<Posted> posted;
  std::vector<std::uint64_t> freed;
  std::map<std::uint64_t, std::uint64_t> keys;
  std::size_t accepts = SIZE_MAX;  ///< requests of the next post
  bool frees = true;
  std::atomic<bool> held{false};  ///< free_window does not return
  std::uint64_t allocated = 0;

  Result<fabric::WindowId> allocate_window() override { return fabric::WindowId{++allocated}; }
  std::uint64_t next_window_key(fabric::WindowId window) const override {
    return window.value << 8 | 1;
  }
  explicit Device(bool calls_block) { have_windows(calls_block); }
  Status free_window(fabric::WindowId window) override {
    held.wait(true);
    if (!frees) return {Code::failed_precondition, "work that names it may be executed"};
    freed.push_back(window.value);
    return {};
  }
  std::size_t post(fabric::EndpointId, std::span<const fabric::WorkRequest> chain,
                   Status& why) override {
    std::size_t count = 0;
    for (; count < chain.size() && count < accepts; ++count) {
      posted.push_back({chain[count].id, chain[count].op, chain[count].window});
    }
    if (count < chain.size()) why = {Code::resource_exhausted, "the queue is full"};
    return count;
  }
  [[nodiscard]] std::size_t count(Opcode op) const {
    std::size_t count = 0;
    for (const Posted& each : posted) count += each.op == op ? 1 : 0;
    return count;
  }
};

class WindowEndTest : public ::testing::Test, public WindowEnd::Host {
 protected:
  explicit WindowEndTest(bool calls_block = false)
      : fabric_(calls_block), pool_(pool_options(), &clock_), poller_(poller_options(clock_)) {
    device_ = *pool_.core().attach(fabric_);
    EXPECT_TRUE(windows_.fill().ok());
    WindowEnd::Options options;
    options.slots_max = 16;
    end_.emplace(*this, fabric_, fabric::EndpointId{5}, poller_, windows_, stats_, log_, options);
  }
  ~WindowEndTest() override {
    end_.reset();
    pool_.core().detach(device_);
  }
  static PoolOptions pool_options() {
    PoolOptions options;
    options.bytes_max = 1 << 20;
    options.grow_inline = true;
    return options;
  }
  static PollerOptions poller_options(const Clock& clock) {
    PollerOptions options;
    options.clock = &clock;
    return options;
  }

  // WindowEnd::Host: as a data endpoint does it.
  void break_endpoint(const char* why) override {
    broken_.emplace_back(why);
    if (lost_at_once_) end_->lost();
  }
  void windows_back() override { ++back_; }
  [[nodiscard]] const std::string& peer_address() const override { return peer_; }

  struct Bound {
    memory::LeaseHandle lease;
    SlotId id;
    std::uint64_t generation = 0;
  };
  /// Lends `segments` buffers and posts their binds, as a session does before their message.
  Bound bind(std::size_t segments = 1) {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < segments; ++i) {
      blocks.push_back((*pool_.try_acquire(4096)).freeze());
    }
    Bound bound;
    bound.lease =
        std::move(*pool_.core().leases().lend(blocks, Guard::window, true, nullptr, clock_.now()));
    bound.generation = bound.lease->generation();
    WindowReservation reservation;
    EXPECT_TRUE(end_->reserve(segments, reservation));
    std::vector<fabric::LocalSegment> targets(segments);
    std::vector<std::uint64_t> keys(segments);
    bound.id = end_->bind(std::move(reservation), targets, keys);
    for (const std::uint64_t key : keys) EXPECT_NE(key, 0u);
    detail::FrameVector<fabric::WorkRequest> chain;
    end_->take_pending(chain);
    Status why;
    EXPECT_EQ(fabric_.post({5}, chain, why), segments);
    return bound;
  }
  /// The lease ends, and its memory is held.
  void end(Bound& bound, bool released, std::uint64_t call = 1) {
    bound.lease->end(released ? LeaseEnd::released : LeaseEnd::timeout);
    end_->hold(bound.id, std::move(bound.lease), 77, call, released);
  }
  void complete(std::size_t count = SIZE_MAX, CompletionStatus status = CompletionStatus::success) {
    for (; count > 0 && !fabric_.posted.empty(); --count) {
      const Device::Posted each = fabric_.posted.front();
      fabric_.posted.pop_front();
      fabric::Completion completion;
      completion.id = each.id;
      completion.op = each.op;
      completion.status = status;
      end_->on_completion(completion);
    }
  }
  void after(Duration duration) {
    clock_.advance(duration);
    while (poller_.run_once()) {
    }
  }
  [[nodiscard]] std::size_t in_use() const { return pool_.stats().bytes_in_use; }

  ManualClock clock_;
  Device fabric_;
  Pool pool_;
  Poller poller_;
  NodeStats stats_;
  std::size_t device_ = 0;
  WindowPool windows_{fabric_, poller_, 8};
  std::optional<WindowEnd> end_;
  testing::LogLines lines_;
  Logger log_{clock_, lines_};
  const std::string peer_ = "10.0.0.1:7000";
  std::vector<std::string> broken_;
  bool lost_at_once_ = true;
  int back_ = 0;
};

TEST_F(WindowEndTest, BoundThenReleasedThenFree) {
  Bound bound = bind(2);
  complete();
  end(bound, true);
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 2u);
  EXPECT_GT(in_use(), 0u) << "the invalidate is posted, and proves nothing yet";
  complete(1);
  EXPECT_GT(in_use(), 0u);
  complete();
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(end_->idle());
  EXPECT_EQ(windows_.out(), 0u);
  EXPECT_TRUE(broken_.empty());
}

TEST_F(WindowEndTest, ReleaseWhileBindingIsTheProofThatTheBindRan) {
  Bound bound = bind();
  end(bound, true);
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 1u) << "not put off until the bind's completion";
  complete(1);
  EXPECT_GT(in_use(), 0u);
  complete();
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndTest, ATimeOutWaitsTheGraceThenFreesTheWindow) {
  Bound bound = bind();
  complete();
  end(bound, false);
  after(999us);
  EXPECT_TRUE(fabric_.freed.empty());
  EXPECT_GT(in_use(), 0u);
  after(1us);
  EXPECT_EQ(fabric_.freed.size(), 1u);
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 0u) << "a window is invalidated or freed, not both";
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(broken_.empty());
  EXPECT_EQ(stats_.window_revokes, 1u);
}

TEST_F(WindowEndTest, ReleaseWithinTheGraceInvalidatesInstead) {
  Bound bound = bind();
  complete();
  end(bound, false);
  after(500us);
  EXPECT_FALSE(end_->release(78, bound.generation)) << "another lease";
  EXPECT_FALSE(end_->release(77, bound.generation + 2)) << "another generation";
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 0u);
  EXPECT_TRUE(end_->release(77, bound.generation));
  EXPECT_TRUE(end_->release(77, bound.generation)) << "once more: nothing happens";
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 1u);
  complete();
  EXPECT_EQ(in_use(), 0u);
  after(1s);
  EXPECT_TRUE(fabric_.freed.empty());
}

TEST_F(WindowEndTest, AnAcknowledgedCancelInvalidates) {
  Bound bound = bind();
  complete();
  end(bound, false, 9);
  end_->acknowledge(8);
  EXPECT_EQ(fabric_.count(Opcode::invalidate), 0u);
  end_->acknowledge(9);
  complete();
  EXPECT_EQ(in_use(), 0u);
}

// Its message was not acknowledged: the bind may still be executed, or be waiting behind others.
TEST_F(WindowEndTest, AWindowWhoseBindWasNotSeenIsNotFreedUnderIt) {
  Bound bound = bind();
  end(bound, false);
  after(1ms);
  EXPECT_TRUE(fabric_.freed.empty());
  after(10ms);
  ASSERT_EQ(broken_.size(), 1u);
  EXPECT_TRUE(fabric_.freed.empty()) << "not before the flush";
  EXPECT_GT(in_use(), 0u);
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_EQ(fabric_.freed.size(), 1u);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndTest, AFlushedInvalidateProvesNothing) {
  Bound bound = bind();
  complete();
  end(bound, true);
  lost_at_once_ = true;
  fabric_.frees = false;
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_GT(in_use(), 0u) << "flushed, and not freed";
  EXPECT_EQ(broken_.size(), 1u);
  EXPECT_EQ(stats_.quarantine_alarms, 1u);
  ASSERT_EQ(lines_.lines.size(), 1u);
  EXPECT_NE(lines_.lines[0].find("4096 bytes that were lent to 10.0.0.1:7000"), std::string::npos)
      << lines_.lines[0];
  EXPECT_EQ(pool_.stats().bytes_quarantined, 4096u) << "the bounds count it";
  after(3s);
  EXPECT_EQ(stats_.quarantine_alarms, 1u) << "told once";
  EXPECT_GT(in_use(), 0u);
  fabric_.frees = true;
  after(3s);
  EXPECT_EQ(in_use(), 0u) << "tried again, and this is the proof";
  EXPECT_EQ(pool_.stats().bytes_quarantined, 0u);
}

TEST_F(WindowEndTest, AnInvalidateThatDoesNotCompleteBreaksTheEndpoint) {
  Bound bound = bind();
  complete();
  end(bound, true);
  after(10ms);
  ASSERT_EQ(broken_.size(), 1u);
  EXPECT_GT(in_use(), 0u);
  EXPECT_TRUE(fabric_.freed.empty());
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_EQ(fabric_.freed.size(), 1u);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndTest, AnInvalidateThatIsNotAcceptedBreaksTheEndpoint) {
  Bound bound = bind(2);
  complete();
  fabric_.accepts = 1;
  end(bound, true);
  EXPECT_EQ(broken_.size(), 1u);
  EXPECT_GT(in_use(), 0u);
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_EQ(fabric_.freed.size(), 2u);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndTest, ALostEndpointFreesWhatHasNoWorkOutstanding) {
  Bound quiet = bind(), busy = bind();
  complete(1);
  end(quiet, false);
  end(busy, false);
  end_->lost();
  EXPECT_EQ(fabric_.freed.size(), 1u);
  WindowReservation none;
  EXPECT_FALSE(end_->reserve(1, none));
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_EQ(fabric_.freed.size(), 2u);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(end_->idle());
}

TEST_F(WindowEndTest, AnEndpointThatDoesNotFlushIsAnAlarmAndReleasesNothing) {
  Bound bound = bind();
  end(bound, false);
  end_->lost();
  after(2999ms);
  EXPECT_EQ(stats_.quarantine_alarms, 0u);
  after(1ms);
  EXPECT_EQ(stats_.quarantine_alarms, 1u);
  after(1h);
  EXPECT_EQ(stats_.quarantine_alarms, 1u);
  EXPECT_TRUE(fabric_.freed.empty());
  EXPECT_GT(in_use(), 0u);
  complete(SIZE_MAX, CompletionStatus::flushed);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndTest, WindowsAndSlotsAreReservedAllOrNone) {
  WindowReservation eight, one;
  EXPECT_FALSE(end_->reserve(9, one)) << "16 slots are 8 windows";
  EXPECT_TRUE(end_->reserve(8, eight));
  EXPECT_FALSE(end_->reserve(1, one));
  eight.reset();
  EXPECT_TRUE(end_->reserve(1, one));
  EXPECT_EQ(windows_.out(), 1u);
}

TEST_F(WindowEndTest, AWindowIsRetiredAfter255Binds) {
  for (int i = 0; i < 256; ++i) {
    Bound bound = bind();
    complete();
    end(bound, true);
    complete();
    EXPECT_EQ(fabric_.freed.size(), i == 255 ? 1u : (i == 254 ? 1u : 0u)) << i;
  }
  EXPECT_FALSE(windows_.full());
  EXPECT_TRUE(windows_.replenish().ok());
  EXPECT_TRUE(windows_.full());
  EXPECT_EQ(fabric_.allocated, 9u);
}

// --- devices whose calls block ------------------------------------------------------------------

class WindowEndAsideTest : public WindowEndTest {
 protected:
  WindowEndAsideTest() : WindowEndTest(/*calls_block=*/true) {}
};

TEST_F(WindowEndAsideTest, WhatIsFreedAsideIsHeldUntilTheDeviceSaysSo) {
  Bound bound = bind(2);
  complete();
  fabric_.held = true;
  end(bound, false);
  after(1ms);
  EXPECT_GT(in_use(), 0u) << "the device is at it, and that proves nothing";
  EXPECT_FALSE(end_->idle());
  EXPECT_EQ(stats_.windows_bound, 2u);
  fabric_.held = false;
  fabric_.held.notify_all();
  EXPECT_TRUE(windows_.finish_calls());
  EXPECT_EQ(fabric_.freed.size(), 2u);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(end_->idle());
  EXPECT_EQ(stats_.windows_bound, 0u);
  EXPECT_EQ(windows_.out(), 0u);
  EXPECT_TRUE(broken_.empty());
}

TEST_F(WindowEndAsideTest, AFreeThatIsRefusedBreaksTheEndpointAndIsTriedOnceMore) {
  Bound bound = bind(2);
  complete();
  fabric_.frees = false;
  end(bound, false);
  after(1ms);
  windows_.finish_calls();
  EXPECT_EQ(broken_.size(), 1u);
  windows_.finish_calls();
  EXPECT_GT(in_use(), 0u);
  EXPECT_GT(stats_.quarantine_alarms, 0u) << "ERR did not help either";
  after(4s);
  windows_.finish_calls();
  EXPECT_GT(in_use(), 0u) << "no time proves anything";
  fabric_.frees = true;
  after(4s);
  windows_.finish_calls();
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(WindowEndAsideTest, TheFabricMayGoWhileItFrees) {
  Bound bound = bind(2);
  complete();
  end(bound, false);
  after(1ms);
  windows_.device_goes();
  end_->device_gone();
  EXPECT_EQ(in_use(), 0u);
  EXPECT_EQ(windows_.out(), 0u);
  after(1ms);  // its news come late
}

}  // namespace
}  // namespace pawl::guard
