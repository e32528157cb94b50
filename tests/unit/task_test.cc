// SPDX-License-Identifier: Apache-2.0
#include "pawl/task.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/poller.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Gate;
using test::Noisy;
using test::Rig;

Operation<Result<int>> number(int value) { return Operation<Result<int>>::ready(value); }
Operation<Result<int>> failing() {
  return Operation<Result<int>>::ready(Status(Code::stale, "no longer there"));
}

TEST(Task, GivesItsValue) {
  Rig rig;
  auto task = []() -> Task<int> { co_return 7; };
  EXPECT_EQ(rig.run(task()), 7);
}

TEST(Task, IsLazy) {
  Rig rig;
  bool ran = false;
  auto body = [](bool& flag) -> Task<void> {
    flag = true;
    co_return;
  };
  {
    auto task = body(ran);
    EXPECT_FALSE(ran);
  }
  EXPECT_FALSE(ran);
  rig.run(body(ran));
  EXPECT_TRUE(ran);
}

Task<Result<int>> leaf(int value, Gate& gate) {
  Noisy noisy;
  co_await gate.wait();
  if (value < 0) co_return Status(Code::invalid_argument, "negative");
  co_return value;
}

Task<Result<int>> middle(int value, Gate& gate) {
  Noisy noisy;
  const int got = co_await ok(leaf(value, gate));
  co_return got + 1;
}

Task<Status> outer(int value, Gate& gate, int& out) {
  Noisy noisy;
  out = co_await ok(middle(value, gate));
  co_return Status();
}

TEST(Task, OkGivesTheValueThroughLevels) {
  Rig rig;
  Gate gate;
  int out = 0;
  Status status(Code::internal, "not set");
  auto started = rig.start(outer(41, gate, out), status);
  EXPECT_EQ(Noisy::alive, 3);
  gate.open();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(out, 42);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Task, OkEndsTheCoroutineWithTheError) {
  Rig rig;
  Gate gate;
  int out = 0;
  Status status;
  const int destroyed = Noisy::destroyed;
  auto started = rig.start(outer(-1, gate, out), status);
  gate.open();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(Noisy::destroyed, destroyed + 3);
}

TEST(Task, OkOfAnOperationThatFailsAtOnce) {
  Rig rig;
  auto body = []() -> Task<Result<int>> {
    Noisy noisy;
    const int a = co_await ok(number(1));
    const int b = co_await ok(failing());
    ADD_FAILURE() << "not reached";
    co_return a + b;
  };
  auto parent = [](auto& inner) -> Task<Result<int>> {
    Noisy noisy;
    co_return co_await ok(inner());
  };
  const int destroyed = Noisy::destroyed;
  auto result = rig.run(parent(body));
  EXPECT_EQ(result.status().code(), Code::stale);
  EXPECT_EQ(Noisy::destroyed, destroyed + 2);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Task, AFailedFrameIsGoneBeforeItsAwaiterGoesOn) {
  Rig rig;
  Gate gate;
  auto parent = [](Gate& g) -> Task<bool> {
    auto named = middle(-1, g);  // the frame's owner lives on
    auto result = co_await std::move(named);
    co_return Noisy::alive == 0 && !result.ok();
  };
  bool clean = false;
  auto started = rig.start(parent(gate), clean);
  gate.open();
  EXPECT_TRUE(clean);
}

TEST(Task, ExceptionsBecomeStatusWhereTheTaskCanCarryIt) {
  Rig rig;
  auto throws = []() -> Task<Result<int>> {
    Noisy noisy;
    throw std::runtime_error("the disk is on fire");
    co_return 1;
  };
  auto result = rig.run(throws());
  EXPECT_EQ(result.status().code(), Code::handler_threw);
  EXPECT_EQ(result.status().what(), "the disk is on fire");
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Task, OtherExceptionsAreThrownAtTheAwaiter) {
  Rig rig;
  auto throws = []() -> Task<int> {
    throw std::runtime_error("x");
    co_return 1;
  };
  auto catches = [](auto& inner) -> Task<bool> {
    try {
      co_await inner();
    } catch (const std::runtime_error&) {
      co_return true;
    }
    co_return false;
  };
  EXPECT_TRUE(rig.run(catches(throws)));
}

TEST(TaskDeathTest, AnExceptionNobodyCanTakeEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto die = [] {
    Rig rig;
    auto throws = []() -> Task<int> {
      throw std::runtime_error("lost");
      co_return 1;
    };
    rig.run(throws());
  };
  EXPECT_DEATH(die(), "an exception left a Task.*lost");
}

/// What a call returns: a value and more, as RPC outcomes are.
class Outcome {
 public:
  explicit Outcome(Noisy value) : value_(std::move(value)) {}
  static Outcome from_status(Status status) {
    Outcome outcome{Noisy()};
    outcome.status_ = std::move(status);
    return outcome;
  }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& status() const { return status_; }
  Noisy&& operator*() && { return std::move(value_); }

 private:
  Status status_;
  Noisy value_;
};

TEST(Task, OkTakesAnyTypeThatSaysHowItWent) {
  Rig rig;
  auto call = [](bool fails) -> Task<Outcome> {
    if (fails) co_await ok(failing());
    co_return Outcome(Noisy());
  };
  auto parent = [](auto& make, bool fails) -> Task<Result<std::string>> {
    Noisy value = co_await ok(make(fails));
    co_return value.text;
  };
  EXPECT_FALSE(rig.run(parent(call, false))->empty());
  EXPECT_EQ(rig.run(parent(call, true)).status().code(), Code::stale);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Task, OkTakesWhatIsThereAlready) {
  Rig rig;
  auto body = [](Result<int> result) -> Task<Result<int>> {
    Noisy noisy;
    co_await ok(Status());
    const int n = co_await ok(std::move(result));
    co_return n + 1;
  };
  auto parent = [](auto& make, Result<int> result) -> Task<Result<int>> {
    co_return co_await ok(make(std::move(result)));
  };
  EXPECT_EQ(*rig.run(parent(body, 1)), 2);
  EXPECT_EQ(rig.run(parent(body, Status(Code::stale, "x"))).status().code(), Code::stale);
  EXPECT_EQ(Noisy::alive, 0);
}

// ---- Dropping

TEST(Task, DropAtEverySuspensionPoint) {
  // The chain suspends `steps` times; it is dropped after each number of them.
  auto inner = [](Gate& gate) -> Task<Result<int>> {
    Noisy a;
    co_await gate.wait();
    Noisy b;
    co_await gate.wait();
    co_return 1;
  };
  auto chain = [](Gate& gate, auto& child) -> Task<Result<int>> {
    Noisy a;
    co_await gate.wait();
    const int one = co_await ok(child(gate));
    Noisy b;
    auto two = co_await child(gate);
    co_await ok(gate.wait_status());
    co_return one + *two;
  };
  constexpr int kSteps = 6;
  for (int dropped_after = 0; dropped_after <= kSteps; ++dropped_after) {
    Rig rig;
    Gate gate;
    Result<int> result = Status(Code::internal, "not set");
    const int destroyed = Noisy::destroyed;
    const int made = Noisy::made;
    auto started = rig.start(chain(gate, inner), result);
    for (int i = 0; i < dropped_after; ++i) {
      EXPECT_EQ(gate.waiting(), 1U) << i;
      gate.open();
    }
    EXPECT_EQ(result.ok(), dropped_after == kSteps);
    started.drop();
    EXPECT_EQ(gate.waiting(), 0U);
    EXPECT_EQ(Noisy::alive, 0) << "dropped after " << dropped_after;
    EXPECT_EQ(Noisy::destroyed - destroyed, Noisy::made - made);
  }
}

TEST(Task, DroppedFromInsideItEndsAtItsNextSuspension) {
  Rig rig;
  Gate gate;
  Started started;
  std::vector<std::string> log;
  auto inner = [](Gate& g, Started& self, std::vector<std::string>& said) -> Task<void> {
    Noisy noisy;
    co_await g.wait();
    self.drop();
    said.emplace_back("still here");
    co_await g.wait();
    said.emplace_back("not reached");
  };
  auto parent = [](auto& child, Gate& g, Started& self, auto& said) -> Task<Status> {
    Noisy noisy;
    co_await child(g, self, said);
    said.emplace_back("not reached");
    co_return Status();
  };
  Status status(Code::internal, "not set");
  started = rig.start(parent(inner, gate, started, log), status);
  gate.open();
  EXPECT_EQ(log, std::vector<std::string>{"still here"});
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_EQ(gate.waiting(), 0U);
  EXPECT_EQ(status.code(), Code::internal);
}

TEST(Task, DroppedFromInsideItMayAlsoEndNormally) {
  Rig rig;
  Gate gate;
  Started started;
  int value = 0;
  auto body = [](Gate& g, Started& self) -> Task<int> {
    Noisy noisy;
    co_await g.wait();
    self.drop();
    co_return 5;
  };
  started = rig.start(body(gate, started), value);
  gate.open();
  EXPECT_EQ(value, 0);
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Task, DroppedWhileItBeginsToWait) {
  // The operation that it awaits drops it from inside begin(), and completes or not.
  for (const bool completes : {false, true}) {
    Rig rig;
    Started started;
    Gate gate;
    auto body = [](Gate& g, auto op) -> Task<int> {
      Noisy noisy;
      co_await g.wait();
      co_await op();
      ADD_FAILURE() << "not reached";
      co_return 1;
    };
    auto op = [&started, completes] {
      return make_operation<test::CallInBegin>([&started] { started.drop(); }, completes);
    };
    int value = 0;
    started = rig.start(body(gate, op), value);
    gate.open();
    EXPECT_EQ(Noisy::alive, 0);
    EXPECT_EQ(value, 0);
  }
}

TEST(Task, MayBeDroppedInsideItsOwnCallback) {
  Rig rig;
  Gate gate;
  struct Owner {
    Started started;
    int calls = 0;
  } owner;
  auto body = [](Gate& g) -> Task<Unit> {
    Noisy noisy;
    co_await g.wait();
    co_return Unit();
  };
  const Poller::Scope scope(rig.poller);
  owner.started = start(body(gate), Callback<Unit>{[](void* context, Unit) {
                                                     auto* self = static_cast<Owner*>(context);
                                                     self->calls++;
                                                     self->started.drop();
                                                     EXPECT_EQ(Noisy::alive, 0);
                                                   },
                                                   &owner});
  gate.open();
  EXPECT_EQ(owner.calls, 1);
}

TEST(Task, OneTaskDoesNotRunInTheMiddleOfAnother) {
  Rig rig;
  Gate gate;
  std::vector<std::string> log;
  auto waiter = [](Gate& g, std::vector<std::string>& said) -> Task<void> {
    co_await g.wait();
    said.emplace_back("waiter");
  };
  auto opener = [](Gate& g, std::vector<std::string>& said) -> Task<void> {
    said.emplace_back("before");
    g.open();
    said.emplace_back("after");
    co_return;
  };
  Unit a;
  Unit b;
  auto first = rig.start(waiter(gate, log), a);
  auto second = rig.start(opener(gate, log), b);
  EXPECT_EQ(log, (std::vector<std::string>{"before", "after"}));
  rig.poller.run_once();
  EXPECT_EQ(log, (std::vector<std::string>{"before", "after", "waiter"}));
}

TEST(Task, ADeferredResumeMayBeDropped) {
  Rig rig;
  Gate gate;
  auto waiter = [](Gate& g) -> Task<void> {
    Noisy noisy;
    co_await g.wait();
    ADD_FAILURE() << "not reached";
  };
  auto opener = [](Gate& g) -> Task<void> {
    g.open();
    co_return;
  };
  Unit a;
  Unit b;
  auto first = rig.start(waiter(gate), a);
  auto second = rig.start(opener(gate), b);
  first.drop();
  EXPECT_EQ(Noisy::alive, 0);
  EXPECT_FALSE(rig.poller.run_once());
}

// ---- Depth

constexpr int kMany = 1'000'000;

TEST(Task, AMillionImmediateChildrenUseNoStack) {
  Rig rig;
  auto child = [](int i) -> Task<Result<int>> { co_return i & 1; };
  auto parent = [](auto& make) -> Task<Result<int>> {
    int sum = 0;
    for (int i = 0; i < kMany; ++i) sum += co_await ok(make(i));
    co_return sum;
  };
  EXPECT_EQ(*rig.run(parent(child)), kMany / 2);
}

TEST(Task, AMillionImmediateOperationsUseNoStack) {
  Rig rig;
  auto parent = []() -> Task<Result<int>> {
    int sum = 0;
    for (int i = 0; i < kMany; ++i) sum += co_await ok(number(1));
    for (int i = 0; i < kMany; ++i) sum += *(co_await number(1));
    co_return sum;
  };
  EXPECT_EQ(*rig.run(parent()), 2 * kMany);
}

TEST(Task, ManyFailuresUseNoStack) {
  Rig rig;
  auto child = []() -> Task<Result<int>> { co_return co_await ok(failing()); };
  auto parent = [](auto& make) -> Task<Result<int>> {
    int failed = 0;
    for (int i = 0; i < kMany / 10; ++i) {
      auto result = co_await make();
      if (!result.ok()) ++failed;
    }
    co_return failed;
  };
  EXPECT_EQ(*rig.run(parent(child)), kMany / 10);
}

TEST(Task, ManyChildrenThatSuspendUseNoStack) {
  Rig rig;
  auto child = [](bool fails) -> Task<Result<int>> {
    co_await sleep_for(Duration(0));
    if (fails) co_await ok(failing());
    co_return 1;
  };
  auto parent = [](auto& make) -> Task<Result<int>> {
    int good = 0;
    for (int i = 0; i < kMany / 10; ++i) {
      auto result = co_await make(i % 2 == 0);
      if (result.ok()) ++good;
    }
    co_return good;
  };
  EXPECT_EQ(*rig.run(parent(child)), kMany / 20);
}

TEST(Task, ParametersAreDestroyedOnce) {
  Rig rig;
  auto by_value = [](Noisy a, Noisy b) -> Task<Result<int>> {
    co_await sleep_for(Duration(0));
    co_return a.text == b.text ? 1 : 0;
  };
  auto parent = [](auto& make) -> Task<Result<int>> {
    co_return co_await ok(make(Noisy(), Noisy()));
  };
  const int balance = Noisy::made - Noisy::destroyed;
  EXPECT_EQ(*rig.run(parent(by_value)), 1);
  EXPECT_EQ(Noisy::made - Noisy::destroyed, balance);
  EXPECT_EQ(Noisy::alive, 0);
}

}  // namespace
}  // namespace pawl
