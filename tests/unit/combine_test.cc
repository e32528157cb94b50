// SPDX-License-Identifier: Apache-2.0
// when_all, when_any, with_deadline, sleep, TaskGroup, Workers.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/task.h"
#include "pawl/task_group.h"
#include "pawl/when.h"
#include "pawl/workers.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Gate;
using test::Noisy;
using test::Rig;

Task<Result<int>> value_after(Gate& gate, int value) {
  Noisy noisy;
  co_await gate.wait();
  co_return value;
}

Task<void> pass(Gate& gate) {
  Noisy noisy;
  co_await gate.wait();
}

/// Somewhere to put a value that has no default.
template <class T>
struct Slot {
  std::optional<T> value;
  static void set(void* context, T got) { static_cast<Slot*>(context)->value = std::move(got); }
};

template <class A, class T>
Started begin(Rig& rig, A awaitable, Slot<T>& slot) {
  const Poller::Scope scope(rig.poller);
  return start(detail::to_operation(std::move(awaitable)), Callback<T>{&Slot<T>::set, &slot});
}

// ---- when_all

TEST(WhenAll, GivesAllValuesOnceTheLastIsThere) {
  Rig rig;
  Gate first;
  Gate second;
  Slot<std::tuple<Result<int>, Unit, Status>> slot;
  auto started = begin(
      rig, when_all(value_after(first, 1), pass(second), Operation<Status>::ready(Status())), slot);
  first.open();
  EXPECT_FALSE(slot.value.has_value());
  second.open();
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(*std::get<0>(*slot.value), 1);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(WhenAll, AllAtOnce) {
  Rig rig;
  auto body = []() -> Task<Result<int>> {
    auto [a, b] = co_await when_all(Operation<Result<int>>::ready(1), Operation<int>::ready(2));
    co_return *a + b;
  };
  EXPECT_EQ(*rig.run(body()), 3);
  EXPECT_EQ(rig.run(when_all()), std::tuple<>());
}

TEST(WhenAll, OfManyKeepsTheOrder) {
  Rig rig;
  std::vector<Gate> gates(5);
  std::vector<Task<Result<int>>> tasks;
  for (int i = 0; i < 5; ++i) tasks.push_back(value_after(gates[static_cast<std::size_t>(i)], i));
  Slot<std::vector<Result<int>>> slot;
  auto started = begin(rig, when_all(std::move(tasks)), slot);
  for (std::size_t i : {4U, 0U, 2U, 1U, 3U}) gates[i].open();
  ASSERT_TRUE(slot.value.has_value());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(*(*slot.value)[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(rig.run(when_all(std::vector<Task<void>>())).empty());
}

TEST(WhenAll, DroppingItDropsAll) {
  Rig rig;
  Gate gate;
  Slot<std::tuple<Result<int>, Unit>> slot;
  {
    auto started = begin(rig, when_all(value_after(gate, 1), pass(gate)), slot);
    EXPECT_EQ(Noisy::alive, 2);
  }
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(WhenAll, DroppedByOneOfItsOwn) {
  Rig rig;
  Gate gate;
  Started started;
  auto dropper = [](Started& self) -> Task<void> {
    Noisy noisy;
    co_await sleep_for(1ms);
    self.drop();
    co_await sleep_for(1ms);
    ADD_FAILURE() << "not reached";
  };
  Slot<std::tuple<Unit, Unit>> slot;
  started = begin(rig, when_all(pass(gate), dropper(started)), slot);
  rig.advance(1ms);
  EXPECT_EQ(Noisy::alive, 0);
  rig.advance(1ms);
  EXPECT_FALSE(slot.value.has_value());
}

// ---- when_any

TEST(WhenAny, GivesTheFirstAndDropsTheOthers) {
  Rig rig;
  Gate first;
  Gate second;
  Slot<First<std::variant<Result<int>, Unit>>> slot;
  auto started = begin(rig, when_any(value_after(first, 1), pass(second)), slot);
  EXPECT_EQ(Noisy::alive, 2);
  second.open();
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(slot.value->index, 1U);
  EXPECT_EQ(std::get<1>(slot.value->value), Unit());
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(first.waiting(), 0U);
}

TEST(WhenAny, DoesNotStartMoreThanItNeeds) {
  Rig rig;
  Gate gate;
  auto winner = rig.run(when_any(Operation<int>::ready(5), pass(gate)));
  EXPECT_EQ(winner.index, 0U);
  EXPECT_EQ(gate.waiting(), 0U);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(WhenAny, ALoserThatRunsEndsAtItsNextSuspension) {
  // The loser wakes the winner, and is dropped for it while it runs.
  Rig rig;
  Gate gate;
  std::vector<std::string> log;
  auto loser = [](Gate& g, std::vector<std::string>& said) -> Task<void> {
    Noisy noisy;
    co_await sleep_for(1ms);
    g.open();
    said.emplace_back("loser after");
    co_await sleep_for(1ms);
    said.emplace_back("loser goes on");
  };
  auto parent = [](auto& make, Gate& g, std::vector<std::string>& said) -> Task<void> {
    co_await when_any(make(g, said), pass(g));
    said.emplace_back("parent");
    EXPECT_EQ(Noisy::alive, 0);
  };
  Slot<Unit> slot;
  auto started = begin(rig, parent(loser, gate, log), slot);
  rig.advance(1ms);
  EXPECT_EQ(log, (std::vector<std::string>{"loser after", "parent"}));
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(WhenAny, OfMany) {
  Rig rig;
  std::vector<Gate> gates(3);
  std::vector<Task<Result<int>>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(value_after(gates[static_cast<std::size_t>(i)], i));
  Slot<First<Result<int>>> slot;
  auto started = begin(rig, when_any(std::move(tasks)), slot);
  gates[2].open();
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(slot.value->index, 2U);
  EXPECT_EQ(*slot.value->value, 2);
  EXPECT_EQ(Noisy::alive, 0);
}

// ---- Time

TEST(Deadline, SleepEndsWhenItIsTime) {
  Rig rig;
  Slot<Unit> slot;
  auto started = begin(rig, sleep_for(5ms), slot);
  rig.advance(4ms);
  EXPECT_FALSE(slot.value.has_value());
  rig.advance(1ms);
  EXPECT_TRUE(slot.value.has_value());

  Slot<Unit> until;
  auto other = begin(rig, sleep_until(rig.clock.now() + 2ms), until);
  rig.advance(2ms);
  EXPECT_TRUE(until.value.has_value());

  { auto dropped = begin(rig, sleep_for(1ms), until); }
  EXPECT_EQ(rig.poller.next_timer(), TimePoint::never());
}

TEST(Deadline, GivesTheValueInTime) {
  Rig rig;
  Gate gate;
  Slot<Result<int>> slot;
  auto started = begin(rig, with_deadline(value_after(gate, 3), 5ms), slot);
  rig.advance(4ms);
  gate.open();
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(**slot.value, 3);
  EXPECT_EQ(rig.poller.next_timer(), TimePoint::never());
}

TEST(Deadline, DropsWhatTakesTooLong) {
  Rig rig;
  Gate gate;
  Slot<Result<int>> slot;
  auto started = begin(rig, with_deadline(value_after(gate, 3), 5ms), slot);
  EXPECT_EQ(Noisy::alive, 1);
  rig.advance(5ms);
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(slot.value->status().code(), Code::deadline);
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(Deadline, AddsAStatusWhereThereIsNone) {
  Rig rig;
  Gate gate;
  auto number = []() -> Task<int> { co_return 4; };
  auto body = [](auto& make, Gate& g) -> Task<Result<int>> {
    const int n = co_await ok(with_deadline(make(), 1ms));
    Status status = co_await with_deadline(pass(g), 0ms);
    EXPECT_EQ(status.code(), Code::deadline);
    co_return n;
  };
  EXPECT_EQ(*rig.run(body(number, gate)), 4);
}

// ---- TaskGroup

TEST(TaskGroup, JoinsItsChildren) {
  Rig rig;
  Gate gate;
  int ended = 0;
  auto child = [](Gate& g, int& n) -> Task<void> {
    co_await g.wait();
    ++n;
  };
  auto parent = [](auto& make, Gate& g, int& n) -> Task<Status> {
    TaskGroup group;
    for (int i = 0; i < 3; ++i) {
      Status spawned = group.spawn(make(g, n));
      EXPECT_TRUE(spawned.ok());
    }
    EXPECT_EQ(group.size(), 3U);
    co_await ok(group.join());
    EXPECT_EQ(group.size(), 0U);
    EXPECT_EQ(n, 3);
    co_await ok(group.join());  // nothing to wait for
    co_return Status();
  };
  Slot<Status> slot;
  auto started = begin(rig, parent(child, gate, ended), slot);
  EXPECT_FALSE(slot.value.has_value());
  gate.open();
  rig.turn();
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_TRUE(slot.value->ok());
}

TEST(TaskGroup, JoinGivesTheFirstFailure) {
  Rig rig;
  auto child = [](int i) -> Task<Result<int>> {
    co_await sleep_for(Duration(i));
    if (i == 2) co_return Status(Code::stale, "second");
    if (i == 3) co_return Status(Code::internal, "third");
    co_return i;
  };
  auto parent = [](auto& make) -> Task<Status> {
    TaskGroup group;
    for (int i = 1; i < 4; ++i) co_await ok(Operation<Status>::ready(group.spawn(make(i))));
    Status outcome = co_await group.join();
    EXPECT_EQ(outcome.code(), Code::stale);
    co_return co_await group.join();
  };
  Slot<Status> slot;
  auto started = begin(rig, parent(child), slot);
  rig.advance(Duration(10));
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_TRUE(slot.value->ok());
}

TEST(TaskGroup, IsBounded) {
  Rig rig;
  const Poller::Scope scope(rig.poller);
  Gate gate;
  TaskGroup group(2);
  EXPECT_TRUE(group.spawn(pass(gate)).ok());
  EXPECT_TRUE(group.spawn(pass(gate)).ok());
  EXPECT_EQ(group.spawn(pass(gate)).code(), Code::resource_exhausted);
  EXPECT_EQ(Noisy::alive, 2);
  gate.open();
  EXPECT_TRUE(group.spawn(pass(gate)).ok());
}

TEST(TaskGroup, DroppingItDropsItsChildren) {
  Rig rig;
  const Poller::Scope scope(rig.poller);
  Gate gate;
  {
    TaskGroup group;
    EXPECT_TRUE(group.spawn(pass(gate)).ok());
    TaskGroup moved = std::move(group);
    EXPECT_TRUE(moved.spawn(pass(gate)).ok());
    EXPECT_EQ(Noisy::alive, 2);
  }
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(TaskGroup, CancelledByAChildTheChildIsGoneWhenJoinReturns) {
  Rig rig;
  std::vector<std::string> log;
  auto child = [](TaskGroup& group, std::vector<std::string>& said) -> Task<void> {
    Noisy noisy;
    co_await sleep_for(1ms);
    group.cancel();
    said.emplace_back("cancelled, still running");
    co_await sleep_for(1ms);
    said.emplace_back("not reached");
  };
  auto parent = [](auto& make, std::vector<std::string>& said) -> Task<Status> {
    TaskGroup group;
    Gate gate;
    Status spawned = group.spawn(make(group, said));
    EXPECT_TRUE(spawned.ok());
    spawned = group.spawn(pass(gate));
    EXPECT_TRUE(spawned.ok());
    Status outcome = co_await group.join();
    EXPECT_EQ(Noisy::alive, 0);
    said.emplace_back("joined");
    co_return outcome;
  };
  Slot<Status> slot;
  auto started = begin(rig, parent(child, log), slot);
  rig.advance(1ms);
  ASSERT_TRUE(slot.value.has_value());
  EXPECT_EQ(slot.value->code(), Code::cancelled);
  EXPECT_EQ(log, (std::vector<std::string>{"cancelled, still running", "joined"}));
}

TEST(TaskGroup, AGroupMayBeDroppedByItsChild) {
  Rig rig;
  auto group = std::make_unique<TaskGroup>();
  auto child = [](std::unique_ptr<TaskGroup>& owner) -> Task<void> {
    Noisy noisy;
    co_await sleep_for(1ms);
    owner.reset();
    co_await sleep_for(1ms);
    ADD_FAILURE() << "not reached";
  };
  {
    const Poller::Scope scope(rig.poller);
    EXPECT_TRUE(group->spawn(child(group)).ok());
  }
  rig.advance(1ms);
  EXPECT_EQ(group, nullptr);
  EXPECT_EQ(Noisy::alive, 0);
  rig.advance(1ms);
}

// ---- Workers

TEST(WorkersThreads, RunOnComesBackToThePoller) {
  SteadyClock clock;
  Poller poller(Rig::options(clock));
  Workers workers(WorkersOptions{.threads = 2, .queue_max = 16});
  auto body = [](Workers& pool) -> Task<Result<int>> {
    const auto home = std::this_thread::get_id();
    auto there = [home] { return std::this_thread::get_id() == home ? 0 : 1; };
    int sum = 0;
    for (int i = 0; i < 200; ++i) {
      sum += co_await ok(run_on(pool, there));
      EXPECT_EQ(std::this_thread::get_id(), home);
    }
    auto nothing = [] {};
    co_await ok(run_on(pool, nothing));
    auto fails = [] { return Status(Code::not_found, "no file"); };
    Status status = co_await run_on(pool, fails);
    EXPECT_EQ(status.code(), Code::not_found);
    auto throws = []() -> int { throw std::runtime_error("bad"); };
    Result<int> thrown = co_await run_on(pool, throws);
    EXPECT_EQ(thrown.status().code(), Code::handler_threw);
    co_return sum;
  };
  EXPECT_EQ(*run_until(poller, body(workers)), 200);
  EXPECT_EQ(workers.threads(), 2U);
}

/// Holds up the only thread of a pool until it is let go.
class Plug final : public Work {
 public:
  Plug() : Work(&Plug::hold) {}
  void await_running() { running_.wait(false); }
  void release() {
    free_ = true;
    free_.notify_all();
  }

 private:
  static void hold(Work* work) {
    auto* self = static_cast<Plug*>(work);
    self->running_ = true;
    self->running_.notify_all();
    self->free_.wait(false);
  }
  std::atomic<bool> running_{false};
  std::atomic<bool> free_{false};
};

TEST(WorkersThreads, TheQueueIsBoundedAndDroppedWorkDoesNotRun) {
  SteadyClock clock;
  Poller poller(Rig::options(clock));
  std::atomic<int> ran{0};
  {
    Plug plug;
    Workers workers(WorkersOptions{.threads = 1, .queue_max = 2});
    ASSERT_TRUE(workers.submit(plug));
    plug.await_running();
    auto count = [&ran, noisy = std::make_shared<Noisy>()] { ++ran; };
    const Poller::Scope scope(poller);
    Slot<Status> slots[3];
    auto kept = start(run_on(workers, count), Callback<Status>{&Slot<Status>::set, &slots[0]});
    auto dropped = start(run_on(workers, count), Callback<Status>{&Slot<Status>::set, &slots[1]});
    auto refused = start(run_on(workers, count), Callback<Status>{&Slot<Status>::set, &slots[2]});
    EXPECT_EQ(workers.queued(), 2U);
    ASSERT_TRUE(slots[2].value.has_value());
    EXPECT_EQ(slots[2].value->code(), Code::resource_exhausted);
    dropped.drop();
    plug.release();
    while (!slots[0].value.has_value()) poller.run_or_sleep();
    EXPECT_TRUE(slots[0].value->ok());
    EXPECT_FALSE(slots[1].value.has_value());
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(WorkersThreads, AnAwaiterMayGoWhileTheWorkRuns) {
  SteadyClock clock;
  std::atomic<int> ran{0};
  Workers workers(WorkersOptions{.threads = 2, .queue_max = 64});
  for (int i = 0; i < 300; ++i) {
    Poller poller(Rig::options(clock));
    auto body = [](Workers& pool, std::atomic<int>& n) -> Task<Status> {
      Noisy noisy;
      auto count = [&n] { ++n; };
      co_await ok(run_on(pool, count));
      co_return Status();
    };
    Slot<Status> slot;
    const Poller::Scope scope(poller);
    auto started = start(body(workers, ran), Callback<Status>{&Slot<Status>::set, &slot});
    for (int k = 0; k < i % 30; ++k) poller.run_once();
    started.drop();
    EXPECT_EQ(Noisy::alive, 0);
  }
}

}  // namespace
}  // namespace pawl
