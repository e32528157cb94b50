// SPDX-License-Identifier: Apache-2.0
// Tasks and operations together with coroutines and awaitables of other libraries.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "pawl/poller.h"
#include "pawl/task.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Gate;
using test::Noisy;
using test::Rig;

TEST(Foreign, AwaitsForeignAwaitables) {
  Rig rig;
  test::ForeignEvent event;
  auto body = [](test::ForeignEvent& e) -> Task<Result<int>> {
    Noisy noisy;
    const int a = co_await e;
    const int b = co_await test::ForeignValue(4);
    const int c = co_await ok(test::ForeignResult(5));
    co_return a + b + c;
  };
  Result<int> result = Status(Code::internal, "not set");
  auto started = rig.start(body(event), result);
  EXPECT_FALSE(result.ok());
  {
    const Poller::Scope scope(rig.poller);
    event.set(3);
  }
  EXPECT_EQ(*result, 12);
  EXPECT_EQ(Noisy::alive, 0);

  auto dropped = rig.start(body(event), result);
  dropped.drop();
  EXPECT_EQ(Noisy::alive, 0);
}

TEST(Foreign, AForeignCoroutineAwaitsTasksAndOperations) {
  Rig rig;
  Gate gate;
  int got = 0;
  auto child = [](Gate& g) -> Task<Result<int>> {
    Noisy noisy;
    co_await g.wait();
    co_return 3;
  };
  auto foreign = [](auto& make, Gate& g, int& out) -> test::ForeignJob {
    auto value = co_await make(g);
    auto other = co_await Operation<Result<int>>::ready(4);
    out = *value + *other;
  };
  {
    const Poller::Scope scope(rig.poller);
    auto job = foreign(child, gate, got);
    job.start();
    EXPECT_EQ(got, 0);
    gate.open();
    EXPECT_EQ(got, 7);
  }
  {
    const Poller::Scope scope(rig.poller);
    auto job = foreign(child, gate, got);
    job.start();
    EXPECT_EQ(Noisy::alive, 1);
  }
  EXPECT_EQ(Noisy::alive, 0);  // the job was destroyed, and what it awaited with it
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(Foreign, AForeignCoroutineMayBeDestroyedByWhatItAwaits) {
  for (const bool completes : {false, true}) {
    Rig rig;
    const Poller::Scope scope(rig.poller);
    std::optional<test::ForeignJob> job;
    auto body = [](std::optional<test::ForeignJob>& self, bool also) -> test::ForeignJob {
      Noisy noisy;
      auto destroy = [&self] { self.reset(); };
      auto operation = make_operation<test::CallInBegin>(destroy, also);
      co_await std::move(operation);
      ADD_FAILURE() << "not reached";
    };
    job.emplace(body(job, completes));
    job->start();
    EXPECT_FALSE(job.has_value());
    EXPECT_EQ(Noisy::alive, 0);
  }
}

}  // namespace
}  // namespace pawl
