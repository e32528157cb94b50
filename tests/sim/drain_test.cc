// SPDX-License-Identifier: Apache-2.0
// A server is drained while requests are on their way to it: calls that it did not accept did not
// run, and say so.
#include <string>

#include "base/random.h"
#include "pawl/task_group.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Drain/Echo");
constexpr Method kPut = make_method("test.Drain/Put", BulkDirection::upload);

class DrainTest : public testing::StackFixture, public ::testing::WithParamInterface<Guard> {
 protected:
  DrainTest() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto buffer = co_await ok(in.pull(call.pool()));
          co_return Payload();
        });
  }
  void count(const Status& status, Ran ran) {
    ++(status.ok() ? ok_ : refused_);
    if (status.ok() || ran == Ran::no) return;
    ADD_FAILURE() << "it may have run: " << status.to_string();
  }
  Task<void> keep_calling(std::uint64_t seed) {
    Random random(seed);
    for (std::uint64_t i = 0; !enough_; ++i) {
      if (random.below(3) == 0) {
        auto call = channel_.call(kPut, payload(i), lend(block_of(*client_, i, 20'000)));
        auto outcome = co_await std::move(call);
        count(outcome.status(), outcome.ran());
      } else {
        auto call = channel_.call(kEcho, payload(i));
        auto outcome = co_await std::move(call);
        count(outcome.status(), outcome.ran());
      }
      co_await sleep_for(Duration(static_cast<std::int64_t>(random.below(20'000))));
    }
  }

  bool enough_ = false;
  std::uint64_t ok_ = 0, refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Guard, DrainTest, ::testing::Values(Guard::verify, Guard::window),
                         [](const auto& each) { return std::string(guard_name(each.param)); });

// That a device acknowledges what its program has not seen is RecoveryTest's.
TEST_P(DrainTest, RequestsThatCrossTheGoawayAreRefusedAndDidNotRun) {
  NodeOptions node;
  node.memory_windows = GetParam() == Guard::window;
  ChannelOptions channel;
  channel.guard = GetParam();
  channel.reconnect_backoff_first = channel.reconnect_backoff_max = 1ms;
  start(node, node, channel);
  constexpr std::uint64_t kCallers = 8;
  constexpr int kDrains = 30;
  TaskGroup callers;
  {
    const Poller::Scope scope(client_->poller());
    for (std::uint64_t i = 0; i < kCallers; ++i) (void)callers.spawn(keep_calling(i));
  }
  Random random(7);
  for (int i = 0; i < kDrains; ++i) {
    world_.run_for(3ms + Duration(static_cast<std::int64_t>(random.below(100'000))));
    const Status drained = world_.run(*server_, serving_->drain());
    EXPECT_TRUE(drained.ok()) << drained.to_string();
    serving_.reset();
    serve();
  }
  enough_ = true;
  world_.run_for(1s);
  EXPECT_GT(ok_, std::uint64_t{kDrains});
  EXPECT_GT(refused_, 0u) << "none crossed";
  EXPECT_EQ(client_->stats().calls_live, 0u);
  {
    const Poller::Scope scope(client_->poller());
    (void)world_.run(*client_, callers.join());
  }
  expect_quiet();
}

}  // namespace
}  // namespace pawl
