// SPDX-License-Identifier: Apache-2.0
// Deadlines of every length, used again, and inherited by a chain of calls: who asks hears
// `deadline`, at that time, whichever node's timer was first. Case 88.
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "pawl/deadline.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::payload;

constexpr Method kNext = make_method("test.Deadline/Next");
constexpr Method kSleep = make_method("test.Deadline/Sleep");
constexpr Method kPut = make_method("test.Deadline/Put", BulkDirection::upload);
constexpr Duration kLong = std::chrono::hours(1);

/// client -> a -> b -> c, where the last one sleeps.
class DeadlineChain : public ::testing::Test {
 protected:
  struct Hop {
    testing::FunctionService service;
    Node* node = nullptr;
    std::optional<Server> serving;
    Channel next;
    std::vector<Duration> remaining;  ///< of each call, when its handler began
    std::vector<Code> heard;          ///< what the next hop's call gave
    int cancelled = 0;
  };

  void SetUp() override {
    const char* const names[] = {"a", "b", "c"};
    for (std::size_t i = 0; i < 3; ++i) {
      Hop& hop = hops_[i];
      hop.node = &world_.add(names[i]);
      if (i < 2) hop.next = hop.node->channel(std::string(names[i + 1]) + ":1");
      hop.service.add(kNext, [this, &hop](Call& call, std::span<const std::byte>, Upload&,
                                          Download&) { return handle(hop, call); });
      Result<Server> serving = hop.node->serve(std::string(names[i]) + ":1", hop.service);
      ASSERT_TRUE(serving.ok()) << serving.status().to_string();
      hop.serving.emplace(*std::move(serving));
    }
    client_ = &world_.add("client");
    channel_ = client_->channel("a:1");
    sleep_ = 1ms;
    ASSERT_TRUE(ask({}).ok()) << "all three connections are made";
    for (Hop& hop : hops_) {
      hop.remaining.clear();
      hop.heard.clear();
    }
  }
  void TearDown() override {
    channel_ = Channel();
    for (Hop& hop : hops_) {
      hop.next = Channel();
      hop.serving.reset();
    }
  }
  Task<Result<Payload>> handle(Hop& hop, Call& call) {
    hop.remaining.push_back(call.remaining());
    if (!hop.next) {
      co_await sleep_for(sleep_);
      if (call.cancelled()) ++hop.cancelled;
      co_return Payload::of("slept");
    }
    const Outcome<Payload> outcome =
        co_await hop.next.call(kNext, Payload(), call.inherit(margin_));
    hop.heard.push_back(outcome.status().code());
    if (call.cancelled()) ++hop.cancelled;
    if (!outcome.ok()) co_return outcome.status();
    co_return Payload::of(std::string(outcome->text()) + "+");
  }
  Outcome<Payload> ask(Duration deadline) {
    CallOptions options;
    options.deadline = deadline;
    return world_.run(*client_, channel_.call(kNext, Payload(), options));
  }

  std::array<Hop, 3> hops_;  // before the world: services outlive their nodes
  testing::World world_{88};
  Node* client_ = nullptr;
  Channel channel_;
  Duration sleep_{0};
  Duration margin_{0};
};

TEST_F(DeadlineChain, NoHopHasMoreTimeThanTheOneBefore) {
  sleep_ = 5ms;
  margin_ = 2ms;
  const Outcome<Payload> outcome = ask(100ms);
  ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(outcome->text(), "slept++");
  Duration before = 100ms;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(hops_[i].remaining.size(), 1u);
    const Duration now = hops_[i].remaining[0];
    EXPECT_LE(now, before - (i > 0 ? margin_ : Duration(0)));
    EXPECT_GT(now, before - margin_ - 1ms) << "what the way took, and no more";
    before = now;
  }
}

// Without a margin all timers fire at about the same time; the caller's answer is the same.
TEST_F(DeadlineChain, TheCallerHearsDeadlineAtItsDeadlineAndEveryHopIsCancelled) {
  sleep_ = 1s;
  int round = 0;
  for (Duration deadline = 100us; deadline < 50ms; deadline = deadline * 3 / 2) {
    const TimePoint begin = world_.now();
    const Outcome<Payload> outcome = ask(deadline);
    EXPECT_EQ(outcome.status().code(), Code::deadline) << outcome.to_string();
    EXPECT_LE(world_.now() - begin, deadline);
    EXPECT_GT(world_.now() - begin, deadline - 20us) << "a hop's own timer may be first";
    world_.run_for(2s);
    ++round;
    for (const Hop& hop : hops_) {
      for (const Code code : hop.heard) EXPECT_EQ(code, Code::deadline);
      EXPECT_EQ(hop.node->stats().served_live, 0u);
      EXPECT_EQ(hop.node->stats().calls_live, 0u);
    }
  }
  EXPECT_GT(round, 10);
  EXPECT_EQ(hops_[2].cancelled, round);
}

// With one the innermost ends first, and its reason travels back to who asked.
TEST_F(DeadlineChain, AMarginLeavesTimeForTheInnermostReason) {
  sleep_ = 1s;
  margin_ = 5ms;
  const TimePoint begin = world_.now();
  const Outcome<Payload> outcome = ask(50ms);
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_EQ(outcome.ran(), Ran::yes) << "a answered";
  EXPECT_NE(outcome.status().what().find("no complete answer from c within 40 ms"),
            std::string_view::npos)
      << outcome.to_string();
  EXPECT_LT(world_.now() - begin, 41ms);
  EXPECT_GT(world_.now() - begin, 39ms);
  // What is left is less than the margin: nothing is sent.
  margin_ = 60ms;
  const std::uint64_t served = hops_[1].node->stats().served_started;
  EXPECT_EQ(ask(50ms).status().code(), Code::deadline);
  EXPECT_EQ(hops_[1].node->stats().served_started, served);
}

TEST_F(DeadlineChain, TheLongestDeadlineIsInheritedWithoutOverflow) {
  for (const Duration deadline :
       {Duration::max(), Duration::max() - Duration(1), Duration::max() / 2}) {
    for (const Duration margin : {Duration(0), Duration(1s)}) {
      margin_ = margin;
      const Outcome<Payload> outcome = ask(deadline);
      ASSERT_TRUE(outcome.ok()) << outcome.to_string();
      for (Hop& hop : hops_) {
        ASSERT_EQ(hop.remaining.size(), 1u);
        EXPECT_GT(hop.remaining[0], Duration::max() / 4);
        hop.remaining.clear();
      }
    }
  }
  margin_ = Duration(0);
  world_.run_for(kLong);  // no timer of these is left behind, early or negative
  EXPECT_TRUE(ask(100ms).ok());
}

class DeadlineUse : public testing::StackFixture {
 protected:
  DeadlineUse() {
    service_.add(
        kSleep,
        [](Call&, std::span<const std::byte> request, Upload&, Download&) -> Task<Result<Payload>> {
          const auto ns = static_cast<std::int64_t>(testing::number(request));
          co_await sleep_for(Duration(ns));
          co_return Payload();
        });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          EXPECT_GT(call.remaining(), kLong);
          auto pulled = co_await ok(in.pull(call.pool()));
          EXPECT_TRUE(testing::holds(std::as_const(pulled).bytes(), 3));
          co_return Payload();
        });
  }
  Outcome<Payload> ask(Duration time, const CallOptions& options) {
    const auto ns = static_cast<std::uint64_t>(time.count());
    return world_.run(*client_, channel_.call(kSleep, payload(ns), options));
  }
};

TEST_F(DeadlineUse, OptionsThatAreUsedAgainGiveEachCallItsFullTime) {
  start();
  const CallOptions options = within(50ms);
  for (int i = 0; i < 10; ++i) {
    const Outcome<Payload> outcome = ask(40ms, options);
    EXPECT_TRUE(outcome.ok()) << i << ": " << outcome.to_string();
  }
  expect_quiet();
}

TEST_F(DeadlineUse, OfANanosecondOrLessEndsThereAndThen) {
  start();
  ASSERT_TRUE(ask(1us, {}).ok());
  const std::uint64_t started = server_->stats().served_started;
  for (const Duration deadline :
       {Duration::min(), Duration(-1s), Duration(-1), Duration(1), Duration(999)}) {
    const TimePoint begin = world_.now();
    const Outcome<Payload> outcome = ask(1ms, within(deadline));
    EXPECT_EQ(outcome.status().code(), Code::deadline) << outcome.to_string();
    EXPECT_EQ(outcome.status().what().find("-"), std::string_view::npos) << outcome.to_string();
    EXPECT_EQ(world_.now() - begin, std::max(deadline, Duration(0)));
    if (deadline.count() <= 0) {
      EXPECT_EQ(outcome.ran(), Ran::no);
    }
  }
  world_.run_for(1s);
  EXPECT_EQ(server_->stats().served_started, started) << "expired work is not begun";
  expect_quiet();
}

// A lease outlives its call's time, which is without end.
TEST_F(DeadlineUse, TheLongestOneLendsWithoutOverflow) {
  start();
  for (const Duration deadline : {Duration::max(), Duration::max() - Duration(1)}) {
    const Outcome<Payload> outcome = world_.run(
        *client_,
        channel_.call(kPut, Payload(), lend(block_of(*client_, 3, 100'000)), within(deadline)));
    EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  }
  EXPECT_EQ(client_->stats().leases_timed_out, 0u);
  expect_quiet();
}

}  // namespace
}  // namespace pawl
