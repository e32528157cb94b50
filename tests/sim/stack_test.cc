// SPDX-License-Identifier: Apache-2.0
// The whole stack in virtual time: calls, bulk both ways, deadlines, cancels, losses.
#include <string>

#include "pawl/task_group.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::Faults;
using testing::fill;
using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Stack/Echo");
constexpr Method kSlow = make_method("test.Stack/Slow");
constexpr Method kGet = make_method("test.Stack/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Stack/Put", BulkDirection::upload);
constexpr Method kLatest = make_method("test.Stack/Latest", BulkDirection::download);

/// Get(tag, bytes) lends a buffer with the tag's pattern; Put(tag) checks what it pulls.
class StackTest : public testing::StackFixture {
 protected:
  StackTest() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kSlow,
                 [this](Call& call, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   co_await sleep_for(Duration(static_cast<std::int64_t>(number(request))));
                   saw_cancelled_ = call.cancelled();
                   co_return Payload();
                 });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(number(request, 1)));
                   fill(buffer.bytes(), number(request));
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(in.pull(call.pool()));
                   (holds(buffer.bytes(), number(request)) ? puts_good_ : puts_wrong_) += 1;
                   co_return Payload();
                 });
  }
  Outcome<Payload> echo(std::string_view text) {
    return world_.run(*client_, channel_.call(kEcho, Payload::of(text)));
  }
  Outcome<Pulled<Payload>> get(std::uint64_t tag, std::uint64_t bytes) {
    return world_.run(*client_, channel_.call(kGet, payload(tag, bytes), into(client_->pool())));
  }
  Outcome<Payload> put(std::uint64_t tag, std::size_t bytes, const CallOptions& options = {}) {
    return world_.run(
        *client_, channel_.call(kPut, payload(tag), lend(block_of(*client_, tag, bytes)), options));
  }

  int puts_good_ = 0, puts_wrong_ = 0;
  bool saw_cancelled_ = false;
};

TEST_F(StackTest, EchoGivesTheBytesBack) {
  start();
  const Outcome<Payload> outcome = echo("hello");
  ASSERT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(outcome->text(), "hello");
  EXPECT_EQ(server_->stats().served_ok, 1u);
  expect_quiet();
}

TEST_F(StackTest, RequestsOfEverySizeUpToTheLimitArrive) {
  start();
  for (const std::size_t bytes : {1u, 100u, 4096u, 8000u, 8192u, 20000u, 1000000u}) {
    const std::string text(bytes, 'x');
    const Outcome<Payload> outcome = echo(text);
    ASSERT_TRUE(outcome.ok()) << bytes << ": " << outcome.to_string();
    EXPECT_EQ(outcome->text(), text);
  }
  const Outcome<Payload> too_long = echo(std::string((1u << 20) + 1, 'x'));
  EXPECT_EQ(too_long.status().code(), Code::too_large);
  EXPECT_EQ(too_long.ran(), Ran::no);
  expect_quiet();
}

TEST_F(StackTest, DownloadsOfEverySizeAreWhole) {
  start();
  for (const std::size_t bytes : {1u, 4096u, 4097u, 65536u, 100001u, 1u << 20, 16u << 20}) {
    Outcome<Pulled<Payload>> outcome = get(bytes, bytes);
    ASSERT_TRUE(outcome.ok()) << bytes << ": " << outcome.to_string();
    ASSERT_TRUE(outcome->part().ok());
    EXPECT_EQ(outcome->part()->size(), bytes);
    EXPECT_TRUE(holds(outcome->part()->bytes(), bytes));
    EXPECT_EQ(outcome.info().bulk, bytes > 4096);
  }
  EXPECT_EQ(client_->stats().transfers_stale, 0u);
  expect_quiet();
}

TEST_F(StackTest, UploadsOfEverySizeAreWhole) {
  start();
  int puts = 0;
  for (const std::size_t bytes : {1u, 4096u, 4097u, 65536u, 100001u, 1u << 20, 16u << 20}) {
    const Outcome<Payload> outcome = put(bytes, bytes);
    ASSERT_TRUE(outcome.ok()) << bytes << ": " << outcome.to_string();
    EXPECT_EQ(puts_good_, ++puts);
  }
  EXPECT_EQ(puts_wrong_, 0);
  EXPECT_EQ(client_->stats().confirms_valid, 5u);  // the small ones travel inside the request
  expect_quiet();
}

TEST_F(StackTest, ACallEndsAtItsDeadlineToTheNanosecond) {
  start();
  ASSERT_TRUE(echo("connected").ok());
  const TimePoint begin = world_.now();
  CallOptions options;
  options.deadline = 50ms;
  const Outcome<Payload> outcome =
      world_.run(*client_, channel_.call(kSlow, payload(std::uint64_t{200'000'000}), options));
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_EQ(outcome.ran(), Ran::unknown);
  EXPECT_EQ((world_.now() - begin).count(), Duration(50ms).count());
  world_.run_for(300ms);
  EXPECT_TRUE(saw_cancelled_);
  expect_quiet();
}

TEST_F(StackTest, ADeadlineThatHasPassedFailsWithoutSending) {
  start();
  ASSERT_TRUE(echo("connected").ok());
  const std::uint64_t sent = client_->stats().messages_sent;
  CallOptions options;
  options.deadline = Duration(-1);
  const Outcome<Payload> outcome = world_.run(*client_, channel_.call(kEcho, Payload(), options));
  EXPECT_EQ(outcome.status().code(), Code::deadline);
  EXPECT_EQ(outcome.ran(), Ran::no);
  EXPECT_EQ(client_->stats().messages_sent, sent);
}

TEST_F(StackTest, UnknownMethodsAndNoServerAreNamed) {
  start();
  const Outcome<Payload> unknown =
      world_.run(*client_, channel_.call(make_method("test.Stack/Nothing"), Payload()));
  EXPECT_EQ(unknown.status().code(), Code::unimplemented);
  EXPECT_EQ(unknown.ran(), Ran::no);
  EXPECT_EQ(unknown.status().what(),
            "test.Stack/Nothing at server: the peer serves no method of that name");

  Channel nowhere = client_->channel("nobody:1");
  CallOptions options;
  options.deadline = 100ms;
  const Outcome<Payload> refused = world_.run(*client_, nowhere.call(kEcho, Payload(), options));
  EXPECT_EQ(refused.status().code(), Code::unavailable);
  EXPECT_EQ(refused.ran(), Ran::no);
  EXPECT_NE(refused.status().what().find("nobody:1"), std::string_view::npos)
      << refused.to_string();
}

TEST_F(StackTest, ANodeThatGoesDropsTheHandlersThatWait) {
  start();
  ASSERT_TRUE(echo("connected").ok());
  CallOptions options;
  options.deadline = 10ms;
  (void)world_.run(*client_, channel_.call(kSlow, payload(std::uint64_t{60'000'000'000}), options));
  EXPECT_EQ(server_->stats().served_live, 1u);
  serving_.reset();
  world_.crash("server");  // the sleep would end long after its poller
}

TEST_F(StackTest, MoreCallsThanMayWaitForAConnectionAreRefused) {
  ChannelOptions channel;
  channel.calls_max = 10;
  start({}, {}, channel);
  Channel nowhere = client_->channel("nobody:1", channel);
  std::vector<Started> calls;
  int refused = 0;
  {
    const Poller::Scope scope(client_->poller());
    for (int i = 0; i < 15; ++i) {
      calls.push_back(pawl::start(
          nowhere.call(kEcho, Payload()),
          Callback<Outcome<Payload>>{[](void* count, Outcome<Payload> outcome) {
                                       if (outcome.status().code() == Code::resource_exhausted) {
                                         ++*static_cast<int*>(count);
                                       }
                                     },
                                     &refused}));
    }
  }
  world_.run_for(1ms);
  EXPECT_EQ(refused, 5);
  {
    const Poller::Scope scope(client_->poller());
    calls.clear();  // those that wait are cancelled, and make room
  }
  EXPECT_EQ(client_->stats().calls_live, 0u);
}

// The heart of it: READs that are executed when their bytes belong to another use already.
TEST_F(StackTest, LateReadsOfReusedMemoryAreRefused) {
  constexpr std::size_t kBytes = 100'000;
  Block latest;
  service_.add(kLatest,
               [&latest](Call& call, std::span<const std::byte> request, Upload&,
                         Download& out) -> Task<Result<Payload>> {
                 std::move(latest).retire();  // its readers are cut off, its memory comes next
                 auto buffer = co_await ok(call.pool().acquire(kBytes));
                 fill(buffer.bytes(), number(request));
                 latest = std::move(buffer).freeze();
                 out.add(latest);
                 co_return Payload();
               });
  start();
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = 20ms;
  world_.set_faults(faults);
  int good = 0, stale = 0, wrong = 0;
  const auto one = [&](std::uint64_t tag) -> Task<Status> {
    auto got = co_await channel_.call(kLatest, payload(tag), into(client_->pool()));
    if (got.ok()) ++(holds(got->parts()[0]->bytes(), tag) ? good : wrong);
    if (got.status().code() == Code::stale) ++stale;
    co_return Status();
  };
  const auto all = [&]() -> Task<Status> {
    TaskGroup group;
    for (std::uint64_t tag = 1; tag <= 200; ++tag) {
      (void)group.spawn(one(tag));
      co_await sleep_for(2ms);
    }
    co_return co_await group.join();
  };
  EXPECT_TRUE(world_.run(*client_, all()).ok());
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(stale, 50);
  EXPECT_GT(good, 0);
  latest = Block();
  expect_quiet();
}

TEST_F(StackTest, UploadsThatTimeOutDoNoHarm) {
  start();
  ASSERT_TRUE(put(1, 100000).ok());
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = 250ms;
  world_.set_faults(faults);
  int timeouts = 0;
  for (std::uint64_t tag = 2; tag < 102; ++tag) {
    CallOptions options;
    options.deadline = 50ms;
    const Outcome<Payload> outcome = put(tag, 100000, options);
    if (outcome.status().code() == Code::deadline) ++timeouts;
  }
  EXPECT_GT(timeouts, 30);
  EXPECT_EQ(puts_wrong_, 0);
  expect_quiet();
}

}  // namespace
}  // namespace pawl
