// SPDX-License-Identifier: Apache-2.0
#include "pawl/timer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "pawl/poller.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Rig;

struct Fired {
  std::vector<int>* order;
  int name;
  static void fn(void* context) {
    auto* self = static_cast<Fired*>(context);
    self->order->push_back(self->name);
  }
};

TEST(Timer, FiresInOrderOfDeadlineThenArming) {
  Rig rig;
  std::vector<int> order;
  std::minstd_rand random(7);
  constexpr int kTimers = 500;
  std::vector<std::unique_ptr<Timer>> timers;
  std::vector<std::unique_ptr<Fired>> contexts;
  std::vector<std::pair<std::int64_t, int>> expected;
  const TimePoint start = rig.clock.now();
  for (int i = 0; i < kTimers; ++i) {
    timers.push_back(std::make_unique<Timer>());
    contexts.push_back(std::make_unique<Fired>(Fired{&order, i}));
    const std::int64_t at = random() % 40;
    timers.back()->arm(rig.poller, start + Duration(at), &Fired::fn, contexts.back().get());
    if (random() % 4 == 0) {
      timers[random() % timers.size()]->cancel();
    }
  }
  for (int i = 0; i < kTimers; ++i) {
    if (timers[i]->armed()) expected.emplace_back(timers[i]->deadline().ns, i);
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(rig.poller.next_timer().ns, expected.front().first);
  for (int i = 0; i < 40; ++i) rig.advance(Duration(1));
  ASSERT_EQ(order.size(), expected.size());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], expected[i].second);
  EXPECT_EQ(rig.poller.next_timer(), TimePoint::never());
}

TEST(Timer, NeverFiresEarlyAndMayBeMoved) {
  Rig rig;
  std::vector<int> order;
  Fired one{&order, 1};
  Timer timer;
  timer.arm(rig.poller, rig.poller.now() + 10ms, &Fired::fn, &one);
  rig.advance(10ms - Duration(1));
  EXPECT_TRUE(order.empty());
  timer.arm(rig.poller, rig.poller.now() + 10ms, &Fired::fn, &one);
  rig.advance(9ms);
  EXPECT_TRUE(order.empty());
  rig.advance(1ms);
  EXPECT_EQ(order.size(), 1U);
  EXPECT_FALSE(timer.armed());
  timer.arm(rig.poller, TimePoint::never(), &Fired::fn, &one);
  rig.clock.set(TimePoint::never());
  rig.turn();
  EXPECT_EQ(order.size(), 1U);
}

TEST(Timer, ThatArmsItselfForNowDoesNotHoldUpTheTurn) {
  Rig rig;
  struct Again {
    Timer timer;
    Poller* poller;
    int fired = 0;
    static void fn(void* context) {
      auto* self = static_cast<Again*>(context);
      ++self->fired;
      self->timer.arm(*self->poller, self->poller->now(), &fn, self);
    }
  } again{{}, &rig.poller};
  again.timer.arm(rig.poller, rig.poller.now(), &Again::fn, &again);
  rig.poller.run_once();
  EXPECT_EQ(again.fired, 1);
  EXPECT_FALSE(rig.poller.arm());
  rig.poller.run_once();
  EXPECT_EQ(again.fired, 2);
}

TEST(Timer, MayOutliveItsPoller) {
  Timer timer;
  {
    Rig rig;
    timer.arm(
        rig.poller, rig.poller.now() + 1ms, [](void*) {}, nullptr);
  }
  EXPECT_FALSE(timer.armed());
}

}  // namespace
}  // namespace pawl
