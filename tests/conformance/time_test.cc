// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <string>

#include "conformance/fixture.h"

namespace pawl::fabric::conformance {
namespace {

class Waiting : public Conformance {
 protected:
  static bool readable(int fd, int timeout_ms) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  /// Polls until nothing comes and arm agrees.
  bool arm(Side& side) {
    for (int i = 0; i < 1000; ++i) {
      if (!side.turn() && side.fabric().arm()) return true;
    }
    return false;
  }
};
PAWL_CONFORMANCE(Waiting);

TEST_P(Waiting, Promise9ArmedMeansThatWhatHappensLaterWakes) {
  if (world_->virtual_time()) GTEST_SKIP() << "virtual time has no descriptor";
  const Link link = connect(a_, b_);
  Area& out = b_.area(4096);
  Area& in = a_.area(4096);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t received = a_.receive(link.a, in.segment(0, 64));
    ASSERT_TRUE(arm(a_)) << "round " << i;
    const std::uint64_t sent = b_.send(link.b, out.segment(0, 64));
    // b alone takes turns; a sleeps on its descriptor until the message is there.
    while (!readable(a_.fabric().event_fd(), 0)) {
      ASSERT_FALSE(b_.done(sent)) << "acknowledged, and nobody was woken";
      b_.turn();
      readable(a_.fabric().event_fd(), 1);
    }
    ASSERT_TRUE(run_until([&] { return a_.done(received) && b_.done(sent); }));
  }
}

TEST_P(Waiting, Promise9ArmRefusesWhenSomethingCameInBetween) {
  if (world_->virtual_time()) GTEST_SKIP() << "virtual time has no descriptor";
  const Link link = connect(a_, b_);
  Area& out = b_.area(4096);
  Area& in = a_.area(4096);
  const std::uint64_t received = a_.receive(link.a, in.segment(0, 64));
  ASSERT_TRUE(arm(a_));
  b_.send(link.b, out.segment(0, 64));
  // Arm again without a poll, whenever: it is refused, or the descriptor tells.
  for (int i = 0; i < 100; ++i) {
    b_.turn();
    if (a_.fabric().arm() && !readable(a_.fabric().event_fd(), 1)) continue;
    a_.turn();
    if (a_.done(received)) break;
  }
  EXPECT_TRUE(a_.done(received));
}

TEST_P(Waiting, Promise9EventsWakeToo) {
  if (world_->virtual_time()) GTEST_SKIP() << "virtual time has no descriptor";
  const std::string at = address(b_);
  ASSERT_TRUE(arm(b_));
  ASSERT_TRUE(a_.fabric().connect(at, {.group = {1}}, {}, soon()).ok());
  for (int i = 0; i < 1000 && !readable(b_.fabric().event_fd(), 1); ++i) a_.turn();
  EXPECT_TRUE(readable(b_.fabric().event_fd(), 0));
  ASSERT_NE(next_request(b_), nullptr);
}

TEST_P(Waiting, WorkDoneGrowsWithBytesThatCompleteNothing) {
  if (world_->virtual_time()) GTEST_SKIP() << "there nothing moves between two events";
  if (a_.fabric().name() == "verbs") GTEST_SKIP() << "the device moves bytes, not poll";
  constexpr std::size_t kBytes = 8 << 20;
  const Link link = connect(a_, b_);
  Area& lent = b_.area(kBytes);
  Area& landing = a_.area(kBytes);
  const std::uint64_t read =
      a_.read(link.a, landing.segment(0, kBytes), expose(b_, lent, 0, kBytes));
  std::size_t grew_at_a = 0;
  std::size_t grew_at_b = 0;
  const auto turn = [](Side& side, std::size_t& grew) {
    const std::uint64_t before = side.fabric().work_done();
    const bool came = side.turn();
    if (!came && side.fabric().work_done() > before) ++grew;
  };
  const TimePoint limit = soon();
  while (!a_.done(read) && world_->now() < limit) {
    turn(a_, grew_at_a);
    turn(b_, grew_at_b);
  }
  ASSERT_EQ(a_.status(read), "success");
  // One turn of each was for the request itself.
  EXPECT_GT(grew_at_a, 4u) << "bytes landed, and none was the last";
  EXPECT_GT(grew_at_b, 4u) << "bytes were served";
  ASSERT_TRUE(arm(a_) && arm(b_));
  for (Side* side : {&a_, &b_}) {
    const std::uint64_t before = side->fabric().work_done();
    side->turn();
    EXPECT_EQ(side->fabric().work_done(), before) << "an idle turn";
  }
}

TEST_P(Waiting, NextEventTimeKnowsTheDeadlineOfAConnect) {
  // Nobody answers: the request is taken and left alone.
  const TimePoint deadline = world_->now() + 500ms;  // a busy guest needs some of it
  const std::string at = address(b_);
  const EndpointId a = a_.fabric().connect(at, {.group = {1}}, {}, deadline).value();
  ASSERT_NE(next_request(b_), nullptr);
  while (a_.turn() || b_.turn()) {
  }
  EXPECT_LE(a_.fabric().next_event_time(), deadline);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
}

TEST_P(Waiting, VirtualTimeIsNeverStuck) {
  if (!world_->virtual_time()) GTEST_SKIP() << "real time moves by itself";
  const Link link = connect(a_, b_);
  Area& out = b_.area(4096);
  Area& in = a_.area(4096);
  EXPECT_EQ(a_.fabric().event_fd(), -1);
  const std::uint64_t received = a_.receive(link.a, in.segment(0, 64));
  b_.send(link.b, out.segment(0, 64));
  while (!a_.done(received)) {
    const TimePoint next = std::min(a_.fabric().next_event_time(), b_.fabric().next_event_time());
    ASSERT_NE(next, TimePoint::never()) << "nothing is scheduled, and the message is not there";
    world_->wait(next);
    a_.turn();
    b_.turn();
  }
}

}  // namespace
}  // namespace pawl::fabric::conformance
