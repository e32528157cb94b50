// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/fixture.h"

namespace pawl::fabric::conformance {
namespace {

/// b lends through windows, a reads.
class Windows : public Conformance {
 protected:
  void SetUp() override {
    if (b_.fabric().capabilities().windows == WindowSupport::none) {
      GTEST_SKIP() << "this device has no windows";
    }
    lent_ = &b_.area(kBytes, MemoryUse::bulk_window_only);
    landing_ = &a_.area(kBytes);
    slots_a_ = &a_.area(4096, MemoryUse::messages);
    slots_b_ = &b_.area(4096, MemoryUse::messages);
    lent_->fill_pattern(0, kBytes, 1);
    landing_->fill(0, kBytes, '.');
    link_ = connect(a_, b_);
    window_ = b_.fabric().allocate_window().value();
  }
  void TearDown() override {
    for (const WindowId window : to_free()) {
      EXPECT_TRUE(b_.fabric().free_window(window).ok());
    }
    Conformance::TearDown();
  }
  std::vector<WindowId> to_free() const {
    return window_ ? std::vector{window_} : std::vector<WindowId>{};
  }

  WorkRequest bind_of(std::size_t offset, std::size_t bytes) const {
    return {.op = Opcode::bind, .window = window_, .bind_target = lent_->segment(offset, bytes)};
  }
  /// Binds, waits for it, and gives the key.
  std::uint64_t bind(std::size_t offset, std::size_t bytes) {
    const std::uint64_t key = b_.fabric().next_window_key(window_);
    const std::uint64_t id = b_.post(link_.b, bind_of(offset, bytes));
    EXPECT_TRUE(run_until([&] { return b_.done(id); }));
    EXPECT_EQ(b_.status(id), "success");
    return key;
  }
  std::string invalidate(EndpointId endpoint) {
    const std::uint64_t id =
        b_.post(endpoint, {.op = Opcode::invalidate, .fence = true, .window = window_});
    EXPECT_TRUE(run_until([&] { return b_.done(id); }));
    return b_.status(id);
  }
  std::string read(EndpointId endpoint, std::uint64_t key, std::uint64_t address,
                   std::uint32_t bytes) {
    const std::uint64_t id = a_.read(endpoint, landing_->segment(0, bytes), {key, address});
    EXPECT_TRUE(run_until([&] { return a_.done(id); }));
    return a_.status(id);
  }
  /// Refused by post, or it completes with `status` and ends the link.
  void expect_misuse(EndpointId endpoint, const WorkRequest& work, std::string_view status) {
    const std::uint64_t waiting = b_.receive(endpoint, slots_b_->segment(0, 64));
    Status why;
    const auto ids = b_.post(endpoint, {work}, why);
    if (ids.empty()) {
      EXPECT_EQ(why.code(), Code::failed_precondition) << why.to_string();
      return;
    }
    ASSERT_TRUE(run_until([&] { return b_.done(ids[0]) && b_.done(waiting); }));
    EXPECT_EQ(b_.status(ids[0]), status);
    EXPECT_EQ(b_.status(waiting), "flushed");
    EXPECT_TRUE(run_until([&] { return b_.event(EventKind::failed, endpoint) != nullptr; }));
  }
  /// Both ends of the link end in ERR.
  void expect_both_failed() {
    EXPECT_TRUE(run_until([&] {
      return a_.event(EventKind::failed, link_.a) && b_.event(EventKind::failed, link_.b);
    }));
  }

  static constexpr std::size_t kBytes = 1 << 18;
  Area* lent_ = nullptr;
  Area* landing_ = nullptr;
  Area* slots_a_ = nullptr;
  Area* slots_b_ = nullptr;
  Link link_;
  WindowId window_;
};
PAWL_CONFORMANCE(Windows);

TEST_P(Windows, BindAndMessageInOneChainAndThePeerReadsAtOnce) {
  // The READ is posted in the turn in which the message came.
  std::uint64_t read = 0;
  const std::uint64_t received = a_.receive(link_.a, slots_a_->segment(0, 64));
  a_.on_completion = [&](const Completion& c) {
    if (c.id != received) return;
    std::uint64_t key = 0;
    std::memcpy(&key, slots_a_->at(0), sizeof key);
    read = a_.read(link_.a, landing_->segment(0, 65536), {key, 0});
  };
  const std::uint64_t key = b_.fabric().next_window_key(window_);
  slots_b_->write(0, {reinterpret_cast<const char*>(&key), sizeof key});
  const LocalSegment message = slots_b_->segment(0, sizeof key);
  Status why;
  WorkRequest quiet = bind_of(4096, 65536);
  quiet.signalled = false;
  const auto chain =
      b_.post(link_.b, {quiet, {.op = Opcode::send, .local = std::span(&message, 1)}}, why);
  ASSERT_EQ(chain.size(), 2u) << why.to_string();
  ASSERT_TRUE(run_until([&] { return read != 0 && a_.done(read) && b_.all_done(chain); }));
  EXPECT_EQ(a_.status(read), "success");
  EXPECT_EQ(b_.status(chain[0]), "success");
  EXPECT_TRUE(landing_->read(0, 65536) == pattern(kBytes, 1).substr(4096, 65536));
}

TEST_P(Windows, TheAddressIsTheOffset) {
  const std::uint64_t key = bind(10'000, 5000);
  EXPECT_EQ(read(link_.a, key, 1234, 3766), "success");
  EXPECT_TRUE(landing_->read(0, 3766) == pattern(kBytes, 1).substr(11'234, 3766));
}

TEST_P(Windows, Promise4TheBoundsHold) {
  if (b_.fabric().capabilities().windows != WindowSupport::exact) {
    GTEST_SKIP() << "inexact windows may open more than their bytes: soft-RoCE does";
  }
  const std::uint64_t key = bind(10'000, 5000);
  EXPECT_EQ(read(link_.a, key, 1234, 3767), "remote_access");
  expect_both_failed();
}

TEST_P(Windows, Promise7ARevokedWindowGivesNothing) {
  const std::uint64_t key = bind(0, 65536);
  EXPECT_EQ(read(link_.a, key, 0, 64), "success");
  EXPECT_EQ(invalidate(link_.b), "success");
  landing_->fill(0, 65536, '.');
  EXPECT_EQ(read(link_.a, key, 0, 64), "remote_access");
  EXPECT_EQ(landing_->read(0, 65536), std::string(65536, '.'));
  expect_both_failed();
}

TEST_P(Windows, Promise7AFreedWindowGivesNothing) {
  const std::uint64_t key = bind(0, 65536);
  EXPECT_EQ(read(link_.a, key, 0, 64), "success");
  EXPECT_TRUE(b_.fabric().free_window(window_).ok());
  EXPECT_FALSE(b_.fabric().free_window(window_).ok());
  window_ = {};
  landing_->fill(0, 65536, '.');
  EXPECT_EQ(read(link_.a, key, 0, 64), "remote_access");
  EXPECT_EQ(landing_->read(0, 65536), std::string(65536, '.'));
  expect_both_failed();
}

TEST_P(Windows, Promise7RevokedInTheMiddleOfAReadNoLaterByteArrives) {
  // The owner overwrites after the revocation is proven: none of that may land.
  const std::uint64_t key = bind(0, kBytes);
  const std::uint64_t id = a_.read(link_.a, landing_->segment(0, kBytes), {key, 0});
  run_until([] { return false; }, 10us);
  EXPECT_TRUE(b_.fabric().free_window(window_).ok());
  window_ = {};
  lent_->fill(0, kBytes, '#');
  ASSERT_TRUE(run_until([&] { return a_.done(id); }));
  const std::string landed = landing_->read(0, kBytes);
  const std::string old = pattern(kBytes, 1);
  if (a_.status(id) == "success") {
    EXPECT_TRUE(landed == old) << "complete, or refused";
  } else {
    // What a refused READ leaves is undefined (tcp fills with zeros), but never the next use's.
    std::size_t next_use = 0;
    for (std::size_t i = 0; i < kBytes; ++i) next_use += landed[i] == '#' && old[i] != '#';
    EXPECT_EQ(next_use, 0u) << "bytes written after the revocation";
  }
}

TEST_P(Windows, ThroughAnotherEndpointIsRefused) {
  const Link other = connect(a_, b_);
  const std::uint64_t key = bind(0, 65536);
  EXPECT_EQ(read(other.a, key, 0, 64), "remote_access");
  EXPECT_EQ(landing_->read(0, 64), std::string(64, '.'));
  // The endpoint that it is bound on still works.
  EXPECT_EQ(read(link_.a, key, 0, 64), "success");
}

TEST_P(Windows, EachBindHasAKeyOfItsOwnAndOldKeysStayDead) {
  std::set<std::uint64_t> keys;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t key = bind(0, 4096);
    EXPECT_TRUE(keys.insert(key).second);
    EXPECT_EQ(invalidate(link_.b), "success");
  }
  const std::uint64_t now = bind(0, 4096);
  EXPECT_EQ(read(link_.a, now, 0, 64), "success");
  EXPECT_EQ(read(link_.a, *keys.begin(), 0, 64), "remote_access");
}

TEST_P(Windows, KeysStayApartForTheBindsOfAWindowsLife) {
  std::set<std::uint64_t> keys;
  for (std::uint32_t i = 0; i < kWindowBindsMax; ++i) {
    EXPECT_TRUE(keys.insert(bind(0, 4096)).second) << "bind " << i;
    ASSERT_EQ(invalidate(link_.b), "success");
  }
}

TEST_P(Windows, RebindingWithoutInvalidateIsRefusedOrABindError) {
  bind(0, 4096);
  expect_misuse(link_.b, bind_of(8192, 4096), "bind_error");
}

TEST_P(Windows, InvalidatingWhatIsNotBoundIsRefusedOrALocalError) {
  expect_misuse(link_.b, {.op = Opcode::invalidate, .window = window_}, "local_error");
}

TEST_P(Windows, InvalidatingTwiceIsRefusedOrALocalError) {
  bind(0, 4096);
  EXPECT_EQ(invalidate(link_.b), "success");
  expect_misuse(link_.b, {.op = Opcode::invalidate, .window = window_}, "local_error");
}

TEST_P(Windows, InvalidatingThroughAnotherEndpointIsRefusedOrALocalError) {
  const Link other = connect(a_, b_);
  bind(0, 4096);
  expect_misuse(other.b, {.op = Opcode::invalidate, .window = window_}, "local_error");
}

TEST_P(Windows, BindingAFreedWindowIsRefused) {
  EXPECT_TRUE(b_.fabric().free_window(window_).ok());
  Status why;
  const auto ids = b_.post(link_.b, {bind_of(0, 4096)}, why);
  window_ = {};
  if (ids.empty()) {
    EXPECT_FALSE(why.ok());
    return;
  }
  ASSERT_TRUE(run_until([&] { return b_.done(ids[0]); }));
  EXPECT_NE(b_.status(ids[0]), "success");
}

TEST_P(Windows, BindingBeyondTheRegistrationIsRefusedOrAnError) {
  LocalSegment beyond = lent_->segment(kBytes - 100, 101);
  Status why;
  const auto ids =
      b_.post(link_.b, {{.op = Opcode::bind, .window = window_, .bind_target = beyond}}, why);
  if (ids.empty()) {
    EXPECT_EQ(why.code(), Code::failed_precondition) << why.to_string();
    return;
  }
  ASSERT_TRUE(run_until([&] { return b_.done(ids[0]); }));
  EXPECT_TRUE(b_.status(ids[0]) == "local_error" || b_.status(ids[0]) == "bind_error")
      << b_.status(ids[0]);
  expect_both_failed();
}

TEST_P(Windows, BindingToNoBytesIsRefused) {
  Status why;
  EXPECT_TRUE(b_.post(link_.b, {bind_of(0, 0)}, why).empty());
  EXPECT_EQ(why.code(), Code::invalid_argument);
}

TEST_P(Windows, ABoundWindowIsFreedWhenItsEndpointIsInErr) {
  const std::uint64_t key = bind(0, 4096);
  const std::uint64_t read_back = b_.post(link_.b, {.op = Opcode::invalidate, .window = window_});
  b_.fabric().set_error(link_.b);
  ASSERT_TRUE(run_until([&] { return b_.done(read_back); }));
  EXPECT_TRUE(b_.fabric().free_window(window_).ok()) << "whatever became of the invalidate";
  window_ = {};
  b_.fabric().close(link_.b);
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::closed, link_.b) != nullptr; }));
  const Link next = connect(a_, b_);
  EXPECT_EQ(read(next.a, key, 0, 64), "remote_access");
}

TEST_P(Windows, IsNotFreedWhileABindMayStillBeExecuted) {
  // Behind a READ of the lending end and a fence the bind cannot have been executed.
  Area& large = a_.area(1 << 20);
  Area& landing = b_.area(1 << 20);
  const LocalSegment to = landing.segment(0, 1 << 20);
  WorkRequest bind = bind_of(0, 4096);
  bind.fence = true;
  Status why;
  const auto ids = b_.post(
      link_.b,
      {{.op = Opcode::read, .local = std::span(&to, 1), .remote = expose(a_, large, 0, 1 << 20)},
       bind},
      why);
  ASSERT_EQ(ids.size(), 2u) << why.to_string();
  const Status early = b_.fabric().free_window(window_);
  if (early.ok()) {
    window_ = {};
    GTEST_SKIP() << "this fabric cannot tell";
  }
  EXPECT_EQ(early.code(), Code::failed_precondition);
  ASSERT_TRUE(run_until([&] { return b_.all_done(ids); }));
  EXPECT_EQ(b_.status(ids[1]), "success") << "nothing was done to the window";
}

TEST_P(Windows, IsNotFreedWhileAnInvalidateMayStillBeExecuted) {
  // Behind a READ of the lending end and a fence the invalidate cannot have been executed.
  Area& large = a_.area(1 << 20);
  Area& landing = b_.area(1 << 20);
  bind(0, 4096);
  const LocalSegment to = landing.segment(0, 1 << 20);
  Status why;
  const auto ids = b_.post(
      link_.b,
      {{.op = Opcode::read, .local = std::span(&to, 1), .remote = expose(a_, large, 0, 1 << 20)},
       {.op = Opcode::invalidate, .fence = true, .window = window_}},
      why);
  ASSERT_EQ(ids.size(), 2u) << why.to_string();
  const Status early = b_.fabric().free_window(window_);
  EXPECT_EQ(early.code(), Code::failed_precondition) << early.to_string();
  ASSERT_TRUE(run_until([&] { return b_.all_done(ids); }));
  EXPECT_EQ(b_.status(ids[1]), "success") << "nothing was done to the window";
}

TEST_P(Windows, AFencedInvalidateWaitsForTheReadsBeforeIt) {
  // b reads from a and then invalidates, in one chain, while a reads through the window. As long as
  // b's READ is under way the window is bound: a refusal would take it to ERR with everything else.
  Area& large = a_.area(1 << 20);
  Area& landing = b_.area(1 << 20);
  const RemoteAddress remote = expose(a_, large, 0, 1 << 20);
  const std::uint64_t key = bind(0, 4096);
  const std::uint64_t meanwhile = a_.read(link_.a, landing_->segment(0, 64), {key, 0});
  const LocalSegment to = landing.segment(0, 1 << 20);
  Status why;
  const auto ids = b_.post(link_.b,
                           {{.op = Opcode::read, .local = std::span(&to, 1), .remote = remote},
                            {.op = Opcode::invalidate, .fence = true, .window = window_}},
                           why);
  ASSERT_EQ(ids.size(), 2u);
  std::vector<std::uint64_t> order;
  b_.on_completion = [&](const Completion& c) { order.push_back(c.id); };
  ASSERT_TRUE(run_until([&] { return b_.all_done(ids) && a_.done(meanwhile); }));
  EXPECT_EQ(b_.status(ids[0]), "success");
  EXPECT_EQ(b_.status(ids[1]), "success");
  EXPECT_EQ(order, ids);
  // One that a slow fabric held up until the invalidate was executed is refused.
  const std::string late = a_.status(meanwhile);
  EXPECT_TRUE(late == "success" || late == "remote_access") << late;
}

TEST_P(Windows, CountAsResources) {
  EXPECT_EQ(b_.fabric().resources().windows, 1u);
  const WindowId second = b_.fabric().allocate_window().value();
  EXPECT_NE(second, window_);
  EXPECT_EQ(b_.fabric().resources().windows, 2u);
  EXPECT_TRUE(b_.fabric().free_window(second).ok());
  EXPECT_EQ(b_.fabric().resources().windows, 1u);
}

class NoWindows : public Conformance {};
PAWL_CONFORMANCE(NoWindows);

TEST_P(NoWindows, AllocateSaysSo) {
  if (a_.fabric().capabilities().windows != WindowSupport::none) GTEST_SKIP() << "has windows";
  EXPECT_EQ(a_.fabric().allocate_window().status().code(), Code::unimplemented);
}

}  // namespace
}  // namespace pawl::fabric::conformance
