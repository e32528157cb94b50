// SPDX-License-Identifier: Apache-2.0
// Guard `window` through the whole stack in virtual time: both directions, every way a call can
// end, and what a late READ costs.
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

constexpr Method kGet = make_method("test.Window/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Window/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 100'000;

class WindowTest : public testing::StackFixture, public ::testing::WithParamInterface<Guard> {
 protected:
  WindowTest() {
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte> request, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   for (std::uint64_t i = 0; i < number(request, 1); ++i) {
                     auto buffer = co_await ok(call.pool().acquire(kBytes));
                     fill(buffer.bytes(), number(request) + i);
                     Block block = std::move(buffer).freeze();
                     if (keep_) kept_ = block;
                     out.add(std::move(block));
                   }
                   co_return Payload();
                 });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   if (put_delay_.count() > 0) co_await sleep_for(put_delay_);
                   auto buffer = co_await ok(in.pull(call.pool()));
                   (holds(buffer.bytes(), number(request)) ? puts_good_ : puts_wrong_) += 1;
                   co_return Payload();
                 });
  }
  void start(Guard guard) {
    NodeOptions node;
    node.memory_windows = true;
    node.guard = guard;
    ChannelOptions channel;
    channel.guard = guard;
    StackFixture::start(node, node, channel);
  }
  Outcome<Pulled<Payload>> get(std::uint64_t tag, std::uint64_t parts, CallOptions options = {}) {
    return world_.run(*client_,
                      channel_.call(kGet, payload(tag, parts), into(client_->pool()), options));
  }
  Outcome<Payload> put(std::uint64_t tag, CallOptions options = {}) {
    return world_.run(*client_, channel_.call(kPut, payload(tag),
                                              lend(block_of(*client_, tag, kBytes)), options));
  }
  void expect_no_window_bound() {
    expect_quiet();
    for (Node* node : {client_, server_}) EXPECT_EQ(node->stats().windows_bound, 0u);
  }

  bool keep_ = false;  // the last Block that was lent, in kept_
  Block kept_;
  Duration put_delay_{0};
  int puts_good_ = 0, puts_wrong_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Guard, WindowTest, ::testing::Values(Guard::window, Guard::window_verify),
                         [](const auto& each) { return std::string(guard_name(each.param)); });

TEST_P(WindowTest, CallsBothWaysBindOnceAndInvalidateOnce) {
  start(GetParam());
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Outcome<Pulled<Payload>> got = get(i, 1);
    ASSERT_TRUE(got.ok()) << got.to_string();
    EXPECT_TRUE(holds(got->parts()[0]->bytes(), i));
    EXPECT_EQ(got.info().guard, GetParam());
    const Outcome<Payload> put = this->put(100 + i);
    ASSERT_TRUE(put.ok()) << put.to_string();
  }
  EXPECT_EQ(puts_good_, 20);
  EXPECT_EQ(puts_wrong_, 0);
  expect_no_window_bound();
  for (Node* node : {client_, server_}) {
    const NodeStats stats = node->stats();
    EXPECT_EQ(stats.window_binds, 20u);
    EXPECT_EQ(stats.window_invalidates, 20u);
    EXPECT_EQ(stats.window_revokes, 0u);
    EXPECT_EQ(stats.data_endpoints_lost, 0u);
    EXPECT_EQ(stats.confirms_valid, GetParam() == Guard::window ? 0u : 20u);
  }
}

TEST_P(WindowTest, SeveralPartsAreSeveralBindsInOneChain) {
  start(GetParam());
  {
    const Outcome<Pulled<Payload>> got = get(7, 16);
    ASSERT_TRUE(got.ok()) << got.to_string();
    for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(holds(got->parts()[i]->bytes(), 7 + i));
  }
  const Outcome<Pulled<Payload>> many = get(7, 17);
  EXPECT_EQ(many.status().code(), Code::too_large) << many.to_string();
  expect_no_window_bound();
  EXPECT_EQ(server_->stats().window_binds, 16u);
}

TEST_P(WindowTest, WindowsAreRetiredBeforeAKeyComesTwice) {
  start(GetParam());
  // Last given back, first taken: one window is bound again and again.
  for (std::uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(get(i, 1).ok());
  expect_no_window_bound();
  EXPECT_EQ(server_->stats().window_binds, 600u);
}

TEST_P(WindowTest, ATimeOutRevokesAndTheMemoryComesBack) {
  start(GetParam());
  ASSERT_TRUE(get(1, 1).ok());
  ASSERT_TRUE(put(1).ok());
  put_delay_ = 50ms;
  Outcome<Payload> late = put(2, within(10ms));
  EXPECT_EQ(late.status().code(), Code::deadline);
  EXPECT_EQ(late.quarantine(), QuarantineReason::window_revoke);
  const TimePoint before = world_.now();
  ASSERT_TRUE(world_.run(*client_, std::move(late.lent_back())).ok());
  EXPECT_LT(world_.now() - before, 1ms);
  EXPECT_EQ(client_->stats().pool.bytes_in_use, 0u);
  put_delay_ = 0ms;
  EXPECT_TRUE(put(3).ok());
  expect_no_window_bound();
  EXPECT_EQ(puts_wrong_, 0);
}

// The late READ is refused by the owner's device, which costs the data endpoint and nothing else.
// Found by the late-READ kit: the bytes came back with the end of the call only.
TEST_P(WindowTest, MemoryThatIsTakenBackIsFreeAfterTheGraceThoughTheCallGoesOn) {
  start(GetParam());
  ASSERT_TRUE(get(1, 1).ok());
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = 500ms;
  world_.set_faults(faults);
  keep_ = true;
  Operation<Outcome<Pulled<Payload>>> call =
      channel_.call(kGet, payload(2, 1), into(client_->pool()), within(1s));
  {
    const Poller::Scope scope(client_->poller());
    call.begin({[](void*, Outcome<Pulled<Payload>>) {}, nullptr});
  }
  world_.run_for(5ms);
  ASSERT_EQ(server_->stats().windows_bound, 1u);
  std::move(kept_).retire();
  EXPECT_GT(server_->stats().pool.bytes_in_use, 0u) << "a READ may be on its way";
  world_.run_for(1ms + 1us);
  EXPECT_EQ(server_->stats().windows_bound, 0u);
  EXPECT_EQ(server_->stats().window_revokes, 1u);
  EXPECT_EQ(server_->stats().pool.bytes_in_use, 0u);
  EXPECT_EQ(client_->stats().calls_live, 1u) << "it still waits for its READ";
  world_.run_for(2s);
  expect_no_window_bound();
}

TEST_P(WindowTest, ALateReadIsRefusedAndTheNextCallSucceeds) {
  start(GetParam());
  ASSERT_TRUE(get(1, 1).ok());
  Faults faults;
  faults.read_delay = 1;
  faults.read_delay_max = 200ms;
  world_.set_faults(faults);
  std::size_t late = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Outcome<Pulled<Payload>> got = get(10 + i, 1, within(5ms));
    if (got.ok()) {
      EXPECT_TRUE(holds(got->parts()[0]->bytes(), 10 + i));
    } else {
      ++late;
    }
    // The owner has its memory back at once, long before the READ is executed.
    world_.run_for(2ms);
    EXPECT_EQ(server_->stats().pool.bytes_in_use, 0u);
  }
  EXPECT_GT(late, 10u);
  world_.set_faults({});
  world_.run_for(1s);
  {
    const Outcome<Pulled<Payload>> after = get(99, 1);
    ASSERT_TRUE(after.ok()) << after.to_string();
    EXPECT_TRUE(holds(after->parts()[0]->bytes(), 99));
  }
  EXPECT_GT(server_->stats().window_revokes, 0u);
  EXPECT_GT(server_->stats().data_endpoints_lost, 0u);
  EXPECT_EQ(client_->stats().connections_lost, 0u);
  expect_no_window_bound();
}

TEST_P(WindowTest, MoreCallsThanWindowsWaitTheirTurn) {
  start(GetParam());
  TaskGroup group;
  int good = 0;
  const auto one = [&](std::uint64_t tag) -> Task<Status> {
    auto operation = channel_.call(kGet, payload(tag, 4), into(client_->pool()));
    auto outcome = co_await std::move(operation);
    if (!outcome.ok()) co_return outcome.status();
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (holds(outcome->parts()[i]->bytes(), tag + i)) ++good;
    }
    co_return {};
  };
  {
    const Poller::Scope scope(client_->poller());
    for (std::uint64_t i = 0; i < 200; ++i) (void)group.spawn(one(i * 10));
  }
  const Status all = world_.run(*client_, group.join());
  EXPECT_TRUE(all.ok()) << all.to_string();
  EXPECT_EQ(good, 800);
  expect_no_window_bound();
  EXPECT_EQ(server_->stats().window_binds, 800u);
}

// Messages that carry keys, requests and answers, are lost with their endpoint: each call says
// whether its handler ran, none is stuck, none runs twice.
TEST_P(WindowTest, CallsOnALostEndpointEndAndSayWhetherTheyRan) {
  start(GetParam());
  ASSERT_TRUE(get(1, 1).ok());
  ASSERT_TRUE(put(1).ok());
  Faults faults;
  faults.endpoint_loss = 0.03;
  world_.set_faults(faults);
  std::uint64_t ran = 2, perhaps = 0, failed = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Status status;
    Ran said = Ran::no;
    if (i % 2 == 0) {
      const Outcome<Pulled<Payload>> got = get(i, 1, within(300ms));
      status = got.ok() ? Status() : got.status();
      said = got.ran();
      const bool right = !got.ok() || holds(got->parts()[0]->bytes(), i);
      EXPECT_TRUE(right);
    } else {
      const Outcome<Payload> done = put(i, within(300ms));
      status = done.ok() ? Status() : done.status();
      said = done.ran();
    }
    failed += status.ok() ? 0 : 1;
    ran += said == Ran::yes ? 1 : 0;
    perhaps += said == Ran::unknown ? 1 : 0;
  }
  world_.set_faults({});
  EXPECT_GT(failed, 0u);
  EXPECT_EQ(puts_wrong_, 0);
  expect_no_window_bound();
  const std::uint64_t started = server_->stats().served_started;
  EXPECT_GE(started, ran);
  EXPECT_LE(started, ran + perhaps);
  EXPECT_GT(client_->stats().data_endpoints_lost, 0u);
}

TEST_P(WindowTest, AGuardThatTheOtherEndCannotDoIsRefusedByName) {
  NodeOptions with, without;
  with.memory_windows = true;
  ChannelOptions channel;
  channel.guard = GetParam();
  StackFixture::start(without, with, channel);
  const Outcome<Payload> refused = put(1);
  EXPECT_EQ(refused.status().code(), Code::unimplemented);
  EXPECT_EQ(refused.ran(), Ran::no);
  EXPECT_NE(refused.status().what().find("memory_windows"), std::string_view::npos);
}

TEST_P(WindowTest, AServerWhoseGuardTheCallerCannotDoRunsNoHandler) {
  NodeOptions with;
  with.memory_windows = true;
  with.guard = GetParam();
  StackFixture::start(with, {}, {});
  const Outcome<Pulled<Payload>> refused = get(1, 1);
  EXPECT_EQ(refused.status().code(), Code::unimplemented);
  EXPECT_EQ(refused.ran(), Ran::no);
  EXPECT_TRUE(put(1).ok()) << "which the caller lends";
}

}  // namespace
}  // namespace pawl
