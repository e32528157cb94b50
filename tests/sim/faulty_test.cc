// SPDX-License-Identifier: Apache-2.0
// What FaultyFabric injects. That it keeps the promises of fabric.h is tests/conformance's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fabric/faulty/faulty_fabric.h"
#include "fabric/faulty/shared_reuse_table.h"
#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "support/fabric_side.h"

namespace pawl::fabric {
namespace {

using testing::Area;
using testing::Side;

/// Node a behind a FaultyFabric, connected to b, which exposes 64 KiB of 'o'.
class Faulty : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 65536;

  void SetUp() override { start({}); }

  void start(const FaultPlan& plan, ReuseOracle* oracle = nullptr) {
    stop();
    network_ = std::make_unique<SimNetwork>(11);
    loop_ = std::make_unique<SimLoop>(*network_);
    inner_a_ = std::make_unique<SimFabric>(*network_, "a");
    inner_b_ = std::make_unique<SimFabric>(*network_, "b");
    faulty_ = std::make_unique<FaultyFabric>(*inner_a_, plan, oracle);
    owner_ = std::make_unique<FaultyFabric>(*inner_b_, FaultPlan{}, oracle);
    a_ = std::make_unique<Side>(*faulty_, network_->clock());
    b_ = std::make_unique<Side>(*owner_, network_->clock(), 1'000'000);
    for (Side* side : {a_.get(), b_.get()}) {
      loop_->add([side] { return side->turn(); },
                 [side] { return side->fabric().next_event_time(); });
    }
    lent_ = &b_->area(kBytes);
    landing_ = &a_->area(kBytes);
    lent_->fill(0, kBytes, 'o');
    remote_ = expose();
    connect();
  }
  void stop() {
    a_.reset();
    b_.reset();
    owner_.reset();
    faulty_.reset();
    inner_b_.reset();
    inner_a_.reset();
  }
  void TearDown() override { stop(); }

  RemoteAddress expose() {
    return b_->fabric().expose({1}, lent_->handle(), lent_->at(0), kBytes).value();
  }
  EndpointId start_connect(Duration limit = 1s) {
    if (address_.empty() || b_->fabric().resources().listeners == 0) {
      address_ = b_->fabric().listener_address(b_->fabric().listen("b:0").value());
    }
    b_->on_event = [this](const Event& event) {
      if (event.kind != EventKind::connect_request) return;
      EXPECT_TRUE(b_->fabric().accept(event.endpoint, {.group = {1}}, {}).ok());
      at_b_ = event.endpoint;
    };
    return a_->fabric().connect(address_, {.group = {1}}, {}, network_->now() + limit).value();
  }
  void connect() {
    at_a_ = start_connect();
    loop_->run_until([&] {
      return a_->event(EventKind::connected, at_a_) && b_->event(EventKind::connected, at_b_);
    });
  }
  std::uint64_t read(std::size_t bytes = 64, std::size_t at = 0) {
    return a_->read(at_a_, landing_->segment(at, bytes), remote_);
  }
  bool until(std::uint64_t id, Duration limit = 10s) {
    return loop_->run_until([&] { return a_->done(id); }, limit);
  }
  const FaultCounters& counters() const { return faulty_->counters(); }

  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<SimLoop> loop_;
  std::unique_ptr<SimFabric> inner_a_, inner_b_;
  std::unique_ptr<FaultyFabric> faulty_, owner_;
  std::unique_ptr<Side> a_, b_;
  std::string address_;
  EndpointId at_a_, at_b_;
  Area* lent_ = nullptr;
  Area* landing_ = nullptr;
  RemoteAddress remote_;
};

TEST_F(Faulty, WithoutAPlanNothingHappens) {
  ASSERT_TRUE(until(read()));
  EXPECT_EQ(counters().operations, 1u);
  EXPECT_EQ(counters().reads_held, 0u);
}

TEST_F(Faulty, HeldReadsAreExecutedLate) {
  start({.hold_read = {.probability = 1, .min = 150ms, .max = 150ms}, .late_after = 100ms});
  const TimePoint posted = network_->now();
  const std::uint64_t id = read();
  loop_->run_for(100ms);
  EXPECT_FALSE(a_->done(id));
  EXPECT_EQ(inner_a_->resources().work_requests, 0u) << "the device has not seen it";
  EXPECT_EQ(faulty_->resources().work_requests, 1u);
  lent_->fill(0, kBytes, 'n');
  ASSERT_TRUE(until(id));
  EXPECT_GE(network_->now() - posted, 150ms);
  EXPECT_EQ(landing_->read(0, 64), std::string(64, 'n')) << "bytes of the next use";
  EXPECT_EQ(counters().reads_held, 1u);
  EXPECT_EQ(counters().reads_executed, 1u);
  EXPECT_EQ(counters().reads_late, 1u);
}

TEST_F(Faulty, EachReadIsHeldAsItsOwnPlanSays) {
  FaultPlan plan{.hold_read = {.probability = 1, .min = 900ms, .max = 900ms}};
  plan.hold_read_by = [](const WorkRequest& request) {
    const Duration hold = request.local[0].length > 64 ? 300ms : 100ms;
    return RandomDelay{.probability = 1, .min = hold, .max = hold};
  };
  start(plan);
  const std::uint64_t large = read(128, 0);
  const std::uint64_t small = read(64, 128);
  loop_->run_for(200ms);
  EXPECT_TRUE(a_->done(small));
  EXPECT_FALSE(a_->done(large));
  loop_->run_for(200ms);
  EXPECT_TRUE(a_->done(large));
}

TEST_F(Faulty, ReadsHeldShorterAreNotLate) {
  start({.hold_read = {.probability = 1, .min = 10ms, .max = 90ms}, .late_after = 100ms});
  for (std::size_t i = 0; i < 20; ++i) read(64, i * 64);
  ASSERT_TRUE(loop_->run_until([&] { return a_->outstanding() == 0; }));
  EXPECT_EQ(counters().reads_held, 20u);
  EXPECT_EQ(counters().reads_executed, 20u);
  EXPECT_EQ(counters().reads_late, 0u);
}

TEST_F(Faulty, AFaultPointHoldsAllReadsAndReleasesTheOldest) {
  faulty_->hold_reads(true);
  const std::array ids = {read(64, 0), read(64, 64), read(64, 128)};
  loop_->run_for(1s);
  EXPECT_EQ(faulty_->reads_held(), 3u);
  EXPECT_EQ(faulty_->release_reads(1), 1u);
  ASSERT_TRUE(until(ids[0]));
  loop_->run_for(1s);
  EXPECT_FALSE(a_->done(ids[1]));
  EXPECT_EQ(faulty_->release_reads(), 2u);
  ASSERT_TRUE(until(ids[1]));
  ASSERT_TRUE(until(ids[2]));
  EXPECT_EQ(faulty_->release_reads(), 0u);
  faulty_->hold_reads(false);
  ASSERT_TRUE(until(read()));
}

TEST_F(Faulty, HeldReadsAreFlushedOnceAndCountInTheQueue) {
  faulty_->hold_reads(true);
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < 128; ++i) ids.push_back(read(64, i * 64));
  Status why;
  const LocalSegment segment = landing_->segment(0, 64);
  EXPECT_TRUE(
      a_->post(at_a_, {{.op = Opcode::send, .local = std::span(&segment, 1)}}, why).empty());
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  a_->fabric().set_error(at_a_);
  ASSERT_TRUE(loop_->run_until([&] { return a_->all_done(ids); }, 1s));
  EXPECT_EQ(a_->status(ids[0]), "flushed");
  EXPECT_EQ(counters().reads_flushed_while_held, 128u);
  EXPECT_EQ(faulty_->release_reads(), 0u);
  loop_->run_for(1s);
  EXPECT_EQ(landing_->read(0, 64), std::string(64, '\0'));
}

TEST_F(Faulty, HeldReadsAreFlushedWhenThePeerFails) {
  faulty_->hold_reads(true);
  const std::uint64_t id = read();
  b_->fabric().close(at_b_);
  ASSERT_TRUE(until(id, 1s));
  EXPECT_EQ(a_->status(id), "flushed");
  EXPECT_NE(a_->event(EventKind::failed, at_a_), nullptr);
}

TEST_F(Faulty, CloseComesAfterWhatIsHeld) {
  faulty_->hold_reads(true);
  faulty_->hold_completions(true);
  const std::uint64_t held = read();
  const std::uint64_t sent = a_->send(at_a_, landing_->segment(0, 64));
  b_->receive(at_b_, lent_->segment(0, 64));
  loop_->run_for(1ms);
  EXPECT_EQ(faulty_->completions_held(), 1u);
  a_->fabric().close(at_a_);
  ASSERT_TRUE(loop_->run_until([&] { return a_->event(EventKind::closed, at_a_) != nullptr; }, 1s));
  EXPECT_EQ(a_->status(held), "flushed");
  EXPECT_EQ(a_->status(sent), "success") << "it had completed at the device";
  EXPECT_EQ(faulty_->resources().endpoints, 0u);
  EXPECT_EQ(faulty_->resources().work_requests, 0u);
}

TEST_F(Faulty, CompletionsAreHeldAndReleasedInOrder) {
  faulty_->hold_completions(true);
  std::vector<std::uint64_t> receives;
  for (std::size_t i = 0; i < 4; ++i) {
    receives.push_back(a_->receive(at_a_, landing_->segment(i * 64, 64)));
    b_->send(at_b_, lent_->segment(0, 64));
  }
  loop_->run_for(10ms);
  EXPECT_TRUE(a_->completions.empty());
  EXPECT_EQ(faulty_->completions_held(), 4u);
  EXPECT_EQ(faulty_->release_completions(1), 1u);
  loop_->settle();
  ASSERT_EQ(a_->completions.size(), 1u);
  EXPECT_EQ(a_->completions[0].id, receives[0]);
  faulty_->hold_completions(false);
  const std::uint64_t later = a_->receive(at_a_, landing_->segment(512, 64));
  b_->send(at_b_, lent_->segment(0, 64));
  loop_->run_for(10ms);
  EXPECT_FALSE(a_->done(later)) << "messages do not overtake";
  EXPECT_EQ(faulty_->release_completions(), 4u);
  loop_->settle();
  ASSERT_EQ(a_->completions.size(), 5u);
  EXPECT_EQ(a_->completions[4].id, later);
}

TEST_F(Faulty, DelayedSendsKeepTheirOrder) {
  start({.delay_send = {.probability = 0.5, .min = 1ms, .max = 20ms}});
  std::vector<std::uint64_t> receives;
  for (std::size_t i = 0; i < 40; ++i) {
    receives.push_back(b_->receive(at_b_, lent_->segment(i * 64, 64)));
    std::string text = "message " + std::to_string(100 + i);
    const LocalSegment segment{.address = reinterpret_cast<std::byte*>(text.data()),
                               .length = static_cast<std::uint32_t>(text.size())};
    a_->post(at_a_, {.op = Opcode::send,
                     .signalled = i % 3 == 0,
                     .inline_payload = true,
                     .local = std::span(&segment, 1)});
    text.assign(text.size(), 'x');  // copied by post
  }
  ASSERT_TRUE(loop_->run_until([&] { return b_->all_done(receives); }));
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(lent_->read(i * 64, 11), "message " + std::to_string(100 + i));
  }
  EXPECT_GT(counters().sends_delayed, 5u);
}

TEST_F(Faulty, AFenceWaitsForHeldReads) {
  faulty_->hold_reads(true);
  const std::uint64_t held = read();
  const std::uint64_t received = b_->receive(at_b_, lent_->segment(0, 64));
  const LocalSegment segment = landing_->segment(0, 64);
  const std::uint64_t sent =
      a_->post(at_a_, {.op = Opcode::send, .fence = true, .local = std::span(&segment, 1)});
  loop_->run_for(100ms);
  EXPECT_FALSE(b_->done(received));
  faulty_->release_reads();
  ASSERT_TRUE(until(sent));
  EXPECT_TRUE(a_->done(held));
  EXPECT_TRUE(b_->done(received));
}

TEST_F(Faulty, TheNthOperationFailsItsEndpoint) {
  start({.fail_at_operation = 3});
  const std::array ids = {read(64, 0), read(64, 64), read(64, 128)};
  Status why;
  const LocalSegment segment = landing_->segment(0, 64);
  EXPECT_TRUE(
      a_->post(at_a_, {{.op = Opcode::receive, .local = std::span(&segment, 1)}}, why).empty());
  EXPECT_EQ(why.code(), Code::failed_precondition);
  ASSERT_TRUE(loop_->run_until([&] { return a_->all_done(ids); }, 1s));
  EXPECT_EQ(a_->status(ids[2]), "flushed");
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 1u);
  EXPECT_EQ(counters().endpoints_failed, 1u);
  EXPECT_TRUE(loop_->run_until([&] { return b_->event(EventKind::failed, at_b_) != nullptr; }, 1s));
}

TEST_F(Faulty, PostsAreRefusedAsIfTheQueueWereFull) {
  faulty_->plan().refuse_post = 0.5;
  std::size_t refused = 0;
  const LocalSegment segment = landing_->segment(0, 64);
  for (int i = 0; i < 50; ++i) {
    Status why;
    if (a_->post(at_a_, {{.op = Opcode::receive, .local = std::span(&segment, 1)}}, why).empty()) {
      EXPECT_EQ(why.code(), Code::resource_exhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10u);
  EXPECT_LT(refused, 40u);
  EXPECT_EQ(counters().posts_refused, refused);
}

TEST_F(Faulty, ConnectsAreRefused) {
  faulty_->plan().refuse_connect = 1;
  const EndpointId id = start_connect();
  const std::uint64_t posted = a_->receive(id, landing_->segment(0, 64));
  ASSERT_TRUE(loop_->run_until([&] { return a_->event(EventKind::connect_failed, id); }, 100ms));
  EXPECT_EQ(a_->event(EventKind::connect_failed, id)->status.code(), Code::unavailable);
  EXPECT_EQ(a_->status(posted), "flushed");
  EXPECT_EQ(counters().connects_refused, 1u);
  EXPECT_EQ(faulty_->resources().endpoints, 1u);
}

TEST_F(Faulty, ALostConnectedEndsAtItsDeadlineAndGivesItsReceivesBack) {
  faulty_->plan().lose_connected = 1;
  const TimePoint begin = network_->now();
  const EndpointId id = start_connect(300ms);
  const std::uint64_t posted = a_->receive(id, landing_->segment(0, 64));
  ASSERT_TRUE(loop_->run_until([&] { return b_->event(EventKind::connected, at_b_); }, 100ms));
  b_->send(at_b_, lent_->segment(0, 64));  // the peer believes in the connection
  loop_->run_for(100ms);
  EXPECT_FALSE(a_->done(posted));
  ASSERT_TRUE(loop_->run_until([&] { return a_->event(EventKind::connect_failed, id); }, 1s));
  EXPECT_EQ(a_->event(EventKind::connect_failed, id)->status.code(), Code::deadline);
  EXPECT_GE(network_->now() - begin, 300ms);
  EXPECT_EQ(a_->status(posted), "flushed");
  EXPECT_EQ(a_->count(EventKind::connected, id), 0u);
  EXPECT_EQ(counters().connected_lost, 1u);
}

TEST_F(Faulty, TheOracleTellsLateReadsOfReusedBuffers) {
  SharedReuseTable table = SharedReuseTable::create().value();
  start({.late_after = 100ms}, &table);
  faulty_->hold_reads(true);
  const std::uint64_t first = read(64, 0);
  loop_->run_for(200ms);
  EXPECT_EQ(faulty_->release_reads(), 1u);
  ASSERT_TRUE(until(first));
  EXPECT_EQ(counters().reads_late, 1u);
  EXPECT_EQ(counters().reads_of_reused, 0u) << "late, but the buffer is still the same use";
  const std::uint64_t second = read(64, 0);
  const std::uint64_t third = read(64, 64);
  EXPECT_EQ(expose().key, remote_.key);  // lent anew
  faulty_->release_reads(1);
  ASSERT_TRUE(until(second));
  EXPECT_EQ(counters().reads_of_reused, 1u);
  EXPECT_EQ(counters().reads_late_of_reused, 0u);
  loop_->run_for(200ms);
  faulty_->release_reads(1);
  ASSERT_TRUE(until(third));
  EXPECT_EQ(counters().reads_of_reused, 2u);
  EXPECT_EQ(counters().reads_late_of_reused, 1u);
  faulty_->hold_reads(false);
  stop();
}

TEST(SharedReuseTable, IsSharedBetweenProcesses) {
  SharedReuseTable table = SharedReuseTable::create().value();
  const RemoteAddress remote{.key = 0x1234'5678, .address = 4096};
  EXPECT_EQ(table.on_read_executed(remote, table.on_read_posted(remote)), ReadVerdict::unknown);
  table.on_expose({1}, remote, nullptr);
  const std::uint64_t posted = table.on_read_posted(remote);
  EXPECT_EQ(table.on_read_executed(remote, posted), ReadVerdict::same);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<SharedReuseTable> mine = SharedReuseTable::attach(table.fd());
    if (mine.ok()) mine->on_expose({1}, remote, nullptr);
    ::_exit(mine.ok() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(table.on_read_executed(remote, posted), ReadVerdict::reused);
  EXPECT_EQ(table.exposes(remote.key), 2u);
  EXPECT_FALSE(SharedReuseTable::attach(-1).ok());
}

TEST(SharedReuseTable, KeysDoNotMixAndAFullTableSaysUnknown) {
  SharedReuseTable table = SharedReuseTable::create().value();
  for (std::uint64_t key = 1; key <= SharedReuseTable::kSlots + 100; ++key) {
    table.on_expose({1}, {.key = key, .address = 0}, nullptr);
  }
  std::size_t known = 0;
  for (std::uint64_t key = 1; key <= SharedReuseTable::kSlots; ++key) {
    const std::uint64_t count = table.exposes(key);
    EXPECT_LE(count, 1u);
    known += count;
  }
  EXPECT_GT(known, SharedReuseTable::kSlots * 9 / 10);
}

}  // namespace
}  // namespace pawl::fabric
