// SPDX-License-Identifier: Apache-2.0
// Deadlines and outages, in virtual time: what a deadline costs and when it ends a call (case 28),
// how soon a server that is back is found (case 19), what runs after its caller gave up (case 27).
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Deadline/Echo");
constexpr Method kNever = make_method("test.Deadline/Never");
constexpr Method kSet = make_method("test.Deadline/Set");
constexpr Duration kSecond = std::chrono::seconds(1);

class DeadlineTest : public testing::StackFixture {
 protected:
  DeadlineTest() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(
        kNever,
        [](Call& call, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          (void)co_await call.on_cancelled();
          co_return Payload();
        });
    service_.add(kSet,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   set_.push_back(number(request));
                   co_return Payload();
                 });
  }
  Outcome<Payload> call(const Method& method, std::uint64_t value, const CallOptions& options) {
    return world_.run(*client_, channel_.call(method, payload(value), options));
  }
  Duration since(TimePoint begin) const { return world_.now() - begin; }

  std::vector<std::uint64_t> set_;
};

std::vector<Duration> latencies(Duration deadline) {
  testing::World world(28);
  testing::FunctionService service;
  service.add(kEcho,
              [](Call&, std::span<const std::byte> request, Upload&,
                 Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  Node& server = world.add("server");
  Node& client = world.add("client");
  const Result<Server> serving = server.serve("server:1", service);
  const Channel channel = client.channel("server:1");
  std::vector<Duration> all;
  for (int i = 0; i < 2000; ++i) {
    const TimePoint begin = world.now();
    CallOptions options;
    options.deadline = deadline;
    EXPECT_TRUE(world.run(client, channel.call(kEcho, payload(1), options)).ok());
    all.push_back(world.now() - begin);
  }
  return all;
}

// case 28
TEST(DeadlineCost, ACallThatIsAnsweredTakesTheSameTimeWithEveryDeadline) {
  const std::vector<Duration> unlimited = latencies(Duration::max());
  EXPECT_LT(*std::max_element(unlimited.begin(), unlimited.end()), 100us);
  for (const Duration deadline : {Duration(1ms), Duration(2 * kSecond), Duration(3600 * kSecond)}) {
    EXPECT_EQ(latencies(deadline), unlimited) << deadline.count();
  }
}

// case 28
TEST_F(DeadlineTest, AThousandCallsWithoutAnAnswerEndEachAtItsOwnDeadline) {
  start();
  ASSERT_TRUE(call(kEcho, 1, {}).ok());
  struct One {
    testing::World& world;
    TimePoint due;
    bool over = false;
    Started started;
  };
  std::vector<One> all;
  all.reserve(1000);
  {
    const Poller::Scope scope(client_->poller());
    for (int i = 0; i < 1000; ++i) {
      const Duration deadline = 1ms + Duration(1'000'003) * (i * 7919 % 1000);
      One& one = all.emplace_back(world_, world_.now() + deadline);
      one.started = pawl::start(
          channel_.call(kNever, Payload(), within(deadline)),
          Callback<Outcome<Payload>>{[](void* context, Outcome<Payload> outcome) {
                                       auto* self = static_cast<One*>(context);
                                       EXPECT_EQ(outcome.status().code(), Code::deadline);
                                       EXPECT_EQ((self->world.now() - self->due).count(), 0);
                                       self->over = true;
                                     },
                                     &one});
    }
  }
  world_.run_for(2 * kSecond);
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](const One& one) { return one.over; }));
  {
    const Poller::Scope scope(client_->poller());
    all.clear();
  }
  expect_quiet();
}

// Gone, or swallowed by the network, with calls arriving all the time.
// case 19
TEST_F(DeadlineTest, AServerThatIsBackIsFoundWithinTheLongestBackoff) {
  start();
  ASSERT_TRUE(call(kEcho, 1, {}).ok());
  for (int cycle = 0; cycle < 24; ++cycle) {
    const bool swallowed = cycle % 2 == 0;
    const Duration down = std::array{kSecond, 10 * kSecond, 60 * kSecond}[cycle / 2 % 3];
    if (swallowed) {
      world_.cut("client", "server");
    } else {
      serving_.reset();
      world_.crash("server");
    }
    const TimePoint end = world_.now() + down;
    for (int i = 0; world_.now() < end; ++i) {
      CallOptions options = within(100ms);
      options.wait_for_connection = i % 3 != 0;
      const TimePoint begin = world_.now();
      EXPECT_FALSE(call(kEcho, 1, options).ok());
      EXPECT_LE(since(begin), 100ms) << "nobody waits beyond his deadline";
      if (since(begin) < 100ms) world_.run_for(50ms);
    }
    if (swallowed) {
      world_.mend("client", "server");
    } else {
      server_ = &world_.add("server");
      serve();
    }
    const TimePoint back = world_.now();
    const Outcome<Payload> first = call(kEcho, 1, within(10 * kSecond));
    EXPECT_TRUE(first.ok()) << "cycle " << cycle << ": " << first.to_string();
    EXPECT_LE(since(back), ChannelOptions().reconnect_backoff_max + kSecond) << "cycle " << cycle;
  }
  expect_quiet();
}

// A connection that is lost takes the requests on it along: none starts afterwards, and the library
// makes none again.
// case 27
TEST_F(DeadlineTest, ARequestOfALostConnectionNeverRunsAfterANewerOne) {
  start();
  for (std::uint64_t old = 1; old <= 20; old += 2) {
    ASSERT_TRUE(call(kEcho, 1, {}).ok());
    world_.cut("client", "server");
    const Outcome<Payload> first = call(kSet, old, within(2 * kSecond));
    EXPECT_FALSE(first.ok());
    world_.mend("client", "server");
    set_.clear();
    EXPECT_TRUE(call(kSet, old + 1, within(10 * kSecond)).ok());
    world_.run_for(60 * kSecond);
    EXPECT_EQ(set_, std::vector<std::uint64_t>{old + 1});
  }
  expect_quiet();
}

// The connection stands it: the request comes late, and its cancel behind it.
// case 27
TEST_F(DeadlineTest, ARequestThatTheNetworkHeldUpIsNotStartedIfItsCancelIsThereToo) {
  start();
  ASSERT_TRUE(call(kEcho, 1, {}).ok());
  world_.cut("client", "server");
  EXPECT_EQ(call(kSet, 1, within(100ms)).status().code(), Code::deadline);
  world_.run_for(100ms);
  world_.mend("client", "server");
  EXPECT_TRUE(call(kSet, 2, {}).ok());
  world_.run_for(kSecond);
  EXPECT_EQ(set_, std::vector<std::uint64_t>{2});
  EXPECT_EQ(client_->stats().connections_lost, 0u);
  EXPECT_EQ(server_->stats().served_expired, 1u) << "it came, and was not started";
  expect_quiet();
}

}  // namespace
}  // namespace pawl
