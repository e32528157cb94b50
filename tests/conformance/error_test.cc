// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <map>
#include <string>
#include <vector>

#include "conformance/fixture.h"

namespace pawl::fabric::conformance {
namespace {

class Errors : public Conformance {
 protected:
  void SetUp() override {
    area_a_ = &a_.area(kBytes);
    area_b_ = &b_.area(kBytes);
    area_b_->fill_pattern(0, kBytes, 1);
    link_ = connect(a_, b_);
    remote_ = expose(b_, *area_b_, 0, kBytes);
  }

  /// Receives, READs, and sends that find no receive, all unfinished.
  std::vector<std::uint64_t> post_much() {
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < 8; ++i) {
      ids.push_back(a_.receive(link_.a, area_a_->segment(i * 64, 64)));
      ids.push_back(a_.send(link_.a, area_a_->segment(1024, 64)));
    }
    for (std::size_t i = 1; i < 24; ++i) {
      ids.push_back(a_.read(link_.a, area_a_->segment(i * 32768, 32768), remote_));
    }
    const LocalSegment segment = area_a_->segment(2048, 64);
    ids.push_back(a_.post(
        link_.a, {.op = Opcode::send, .signalled = false, .local = std::span(&segment, 1)}));
    return ids;
  }

  static constexpr std::size_t kBytes = 1 << 20;
  Area* area_a_ = nullptr;
  Area* area_b_ = nullptr;
  Link link_;
  RemoteAddress remote_;
};
PAWL_CONFORMANCE(Errors);

TEST_P(Errors, Promise2SetErrorFlushesEverythingOnce) {
  const auto ids = post_much();
  run_until([] { return false; }, 5us);
  a_.fabric().set_error(link_.a);
  a_.fabric().set_error(link_.a);
  ASSERT_TRUE(run_until([&] { return a_.all_done(ids); }));
  std::size_t flushed = 0;
  for (const std::uint64_t id : ids) {
    const std::string status = a_.status(id);
    EXPECT_TRUE(status == "flushed" || status == "success") << status;
    flushed += status == "flushed" ? 1 : 0;
  }
  EXPECT_GE(flushed, 16u) << "the receives and the sends without a receive";
  run_for(5ms);
  EXPECT_EQ(a_.count(EventKind::failed, link_.a), 0u) << "not by itself";
  EXPECT_EQ(a_.count(EventKind::closed, link_.a), 0u);
  // The peer's end fails soon after.
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::failed, link_.b) != nullptr; }));
  EXPECT_FALSE(b_.event(EventKind::failed, link_.b)->status.ok());
}

TEST_P(Errors, Promise2CloseFlushesEverythingOnceAndComesLast) {
  const auto ids = post_much();
  run_until([] { return false; }, 5us);
  a_.fabric().close(link_.a);
  a_.fabric().close(link_.a);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::closed, link_.a) != nullptr; }));
  EXPECT_TRUE(a_.all_done(ids)) << "closed before the last completion";
  run_for(5ms);
  EXPECT_EQ(a_.count(EventKind::closed, link_.a), 1u);
  EXPECT_EQ(a_.fabric().resources().endpoints, 0u);
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::failed, link_.b) != nullptr; }));
}

TEST_P(Errors, ClosedWaitsForCompletionsThatAreNotPolledYet) {
  // Events are asked for after each single completion. Side checks the order.
  batch_ = 1;
  const auto ids = post_much();
  a_.fabric().close(link_.a);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::closed, link_.a) != nullptr; }));
  EXPECT_TRUE(a_.all_done(ids));
}

TEST_P(Errors, Promise6NothingIsExecutedAfterSetError) {
  area_b_->write(0, "before");
  const std::uint64_t received = b_.receive(link_.b, area_b_->segment(4096, 64));
  b_.fabric().set_error(link_.b);
  a_.send(link_.a, area_a_->segment(0, 64));
  Status why;
  const LocalSegment segment = area_b_->segment(0, 6);
  for (const Opcode op : {Opcode::send, Opcode::receive, Opcode::read}) {
    EXPECT_TRUE(b_.post(link_.b, {{.op = op, .local = std::span(&segment, 1)}}, why).empty());
    EXPECT_EQ(why.code(), Code::failed_precondition);
  }
  ASSERT_TRUE(run_until(
      [&] { return b_.done(received) && a_.event(EventKind::failed, link_.a) != nullptr; }));
  EXPECT_EQ(b_.status(received), "flushed");
  EXPECT_TRUE(area_b_->read(4096, 64) == pattern(kBytes, 1).substr(4096, 64));
}

TEST_P(Errors, Promise6AnOwnerInErrServesNoReads) {
  b_.fabric().set_error(link_.b);
  const std::uint64_t read = a_.read(link_.a, area_a_->segment(0, 64), remote_);
  ASSERT_TRUE(run_until([&] { return a_.done(read); }));
  EXPECT_NE(a_.status(read), "success");
  EXPECT_EQ(area_a_->read(0, 64), std::string(64, '\0'));
}

TEST_P(Errors, Promise3MemoryIsGivenBackByTheCompletionWhateverItsStatus) {
  // Each landing range is overwritten in the moment in which its completion is polled; whatever is
  // under way at that time must not change it any more.
  std::map<std::uint64_t, std::size_t> place;
  for (std::size_t i = 0; i < 24; ++i) {
    place[a_.read(link_.a, area_a_->segment(i * 32768, 32768), remote_)] = i * 32768;
  }
  std::map<std::uint64_t, std::size_t> slots;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t at = 24 * 32768 + i * 4096;
    slots[a_.receive(link_.a, area_a_->segment(at, 4096))] = at;
    b_.send(link_.b, area_b_->segment(0, 4096));
  }
  a_.on_completion = [&](const Completion& c) {
    const auto found = place.find(c.id);
    if (found != place.end()) return area_a_->fill(found->second, 32768, '#');
    area_a_->fill(slots.at(c.id), 4096, '#');
  };
  // Until the first has landed or 30 us; then the end comes while the rest is under way.
  run_until([&] { return !a_.completions.empty(); }, 30us);
  a_.fabric().set_error(link_.a);
  ASSERT_TRUE(run_until([&] { return a_.outstanding(link_.a) == 0; }));
  run_for(20ms);
  for (const auto& [id, at] : place) {
    EXPECT_TRUE(area_a_->read(at, 32768) == std::string(32768, '#')) << a_.status(id);
  }
  for (const auto& [id, at] : slots) {
    EXPECT_TRUE(area_a_->read(at, 4096) == std::string(4096, '#')) << a_.status(id);
  }
  a_.fabric().close(link_.a);
  run_for(20ms);
  for (const auto& [id, at] : place) {
    EXPECT_TRUE(area_a_->read(at, 32768) == std::string(32768, '#')) << a_.status(id);
  }
}

TEST_P(Errors, Promise3AlsoWhenTheOwnerFails) {
  std::map<std::uint64_t, std::size_t> place;
  for (std::size_t i = 0; i < 24; ++i) {
    place[a_.read(link_.a, area_a_->segment(i * 32768, 32768), remote_)] = i * 32768;
  }
  a_.on_completion = [&](const Completion& c) { area_a_->fill(place.at(c.id), 32768, '#'); };
  run_until([&] { return !a_.completions.empty(); }, 30us);
  b_.fabric().close(link_.b);
  ASSERT_TRUE(run_until([&] { return a_.outstanding(link_.a) == 0; }));
  run_for(20ms);
  for (const auto& [id, at] : place) {
    EXPECT_TRUE(area_a_->read(at, 32768) == std::string(32768, '#')) << a_.status(id);
  }
}

TEST_P(Errors, PostAcceptsWhatFitsIntoTheSendQueue) {
  const EndpointOptions small{.group = {1}, .send_depth = 4, .receive_depth = 3};
  const Link link = connect(a_, b_, small, {.group = {1}});
  const LocalSegment segment = area_a_->segment(0, 64);
  const std::vector<WorkRequest> chain(
      6, WorkRequest{.op = Opcode::send, .local = std::span(&segment, 1)});
  Status why;
  const auto accepted = a_.post(link.a, chain, why);
  EXPECT_EQ(accepted.size(), 4u);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_TRUE(a_.post(link.a, {chain[0]}, why).empty());
  const std::vector<WorkRequest> room(
      4, WorkRequest{.op = Opcode::receive, .local = std::span(&segment, 1)});
  EXPECT_EQ(a_.post(link.a, room, why).size(), 3u);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  // A completion that was polled makes room.
  b_.receive(link.b, area_b_->segment(0, 64));
  ASSERT_TRUE(run_until([&] { return a_.done(accepted[0]); }));
  EXPECT_EQ(a_.post(link.a, {chain[0], chain[0]}, why).size(), 1u);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
}

TEST_P(Errors, PostStopsAtTheFirstBadRequest) {
  const LocalSegment good = area_a_->segment(0, 64);
  const LocalSegment empty = area_a_->segment(0, 0);
  Status why;
  const auto accepted = a_.post(link_.a,
                                {{.op = Opcode::send, .local = std::span(&good, 1)},
                                 {.op = Opcode::send, .local = std::span(&empty, 1)},
                                 {.op = Opcode::send, .local = std::span(&good, 1)}},
                                why);
  EXPECT_EQ(accepted.size(), 1u);
  EXPECT_EQ(why.code(), Code::invalid_argument);
  const std::uint64_t first = b_.receive(link_.b, area_b_->segment(0, 64));
  const std::uint64_t second = b_.receive(link_.b, area_b_->segment(64, 64));
  ASSERT_TRUE(run_until([&] { return b_.done(first) && a_.all_done(accepted); }));
  run_for(2ms);
  EXPECT_FALSE(b_.done(second));
}

TEST_P(Errors, ALocalSegmentOutsideItsRegistrationIsALocalError) {
  for (const Opcode op : {Opcode::send, Opcode::read}) {
    const Link link = connect(a_, b_);
    b_.receive(link.b, area_b_->segment(0, 64));
    const LocalSegment beyond = area_a_->segment(kBytes - 10, 11);
    const std::uint64_t id =
        a_.post(link.a, {.op = op, .local = std::span(&beyond, 1), .remote = remote_});
    ASSERT_TRUE(run_until([&] {
      return a_.done(id) && a_.event(EventKind::failed, link.a) != nullptr &&
             b_.event(EventKind::failed, link.b) != nullptr;
    }));
    EXPECT_EQ(a_.status(id), "local_error");
  }
}

TEST_P(Errors, ALocalSegmentWithoutARegistrationIsALocalError) {
  LocalSegment segment = area_a_->segment(0, 64);
  segment.memory = {};
  const std::uint64_t id = a_.send(link_.a, segment);
  ASSERT_TRUE(run_until([&] { return a_.done(id); }));
  EXPECT_EQ(a_.status(id), "local_error");
}

TEST_P(Errors, OneEndpointsErrorIsNoOther) {
  const Link other = connect(a_, b_);
  a_.fabric().set_error(link_.a);
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::failed, link_.b) != nullptr; }));
  const std::uint64_t read = a_.read(other.a, area_a_->segment(0, 64), remote_);
  const std::uint64_t received = b_.receive(other.b, area_b_->segment(0, 64));
  a_.send(other.a, area_a_->segment(64, 64));
  ASSERT_TRUE(run_until([&] { return a_.done(read) && b_.done(received); }));
  EXPECT_EQ(a_.status(read), "success");
  EXPECT_EQ(b_.status(received), "success");
}

TEST_P(Errors, UnknownEndpointsAreIgnored) {
  const EndpointId unknown{0x7fff'ffff'ffff};
  a_.fabric().close(unknown);
  a_.fabric().set_error(unknown);
  a_.fabric().reject(unknown, {});
  a_.fabric().close(EndpointId{});
  EXPECT_FALSE(a_.fabric().accept(unknown, {}, {}).ok());
  Status why;
  const LocalSegment segment = area_a_->segment(0, 64);
  EXPECT_TRUE(
      a_.post(unknown, {{.op = Opcode::receive, .local = std::span(&segment, 1)}}, why).empty());
  EXPECT_FALSE(a_.fabric().deregister_memory(MemoryHandle{0x7fff'ffff}).ok());
  EXPECT_FALSE(a_.fabric().deregister_memory(MemoryHandle{}).ok());
  run_for(1ms);
  EXPECT_EQ(a_.count(EventKind::closed), 0u);
}

TEST_P(Errors, BlockedPathsHoldEverythingBackAndLoseNothing) {
  if (!world_->block(1, 0)) GTEST_SKIP() << "paths cannot be blocked here";
  Area& in = a_.area(65536);
  const std::uint64_t received = a_.receive(link_.a, in.segment(0, 64));
  const std::uint64_t read = a_.read(link_.a, in.segment(4096, 4096), remote_);
  const std::uint64_t sent = b_.send(link_.b, area_b_->segment(0, 64));
  run_for(100ms);
  EXPECT_FALSE(a_.done(received) || a_.done(read) || b_.done(sent));
  world_->unblock(1, 0);
  ASSERT_TRUE(run_until([&] { return a_.done(received) && a_.done(read) && b_.done(sent); }));
  EXPECT_EQ(a_.status(received), "success");
  EXPECT_EQ(a_.status(read), "success");
}

TEST_P(Errors, Promise12AHostThatVanishedIsNoticedByWhatItDoesNotAcknowledge) {
  if (!world_->vanish(1))
    GTEST_SKIP() << "over sockets: TcpSocket.APeerThatStopsAcknowledgingIsRetryExceeded";
  const std::uint64_t waiting = a_.receive(link_.a, area_a_->segment(0, 64));
  run_for(10s);
  EXPECT_EQ(a_.count(EventKind::failed, link_.a), 0u) << "nothing asked it for an answer";
  EXPECT_FALSE(a_.done(waiting));
  const std::uint64_t sent = a_.send(link_.a, area_a_->segment(1024, 64));
  const std::uint64_t behind = a_.send(link_.a, area_a_->segment(1024, 64));
  ASSERT_TRUE(run_until([&] {
    return a_.event(EventKind::failed, link_.a) != nullptr && a_.outstanding(link_.a) == 0;
  }));
  EXPECT_EQ(a_.count(EventKind::failed, link_.a), 1u);
  EXPECT_FALSE(a_.event(EventKind::failed, link_.a)->status.ok());
  EXPECT_EQ(a_.status(sent), "retry_exceeded") << "the oldest";
  EXPECT_EQ(a_.status(behind), "flushed");
  EXPECT_EQ(a_.status(waiting), "flushed");
}

TEST_P(Errors, Promise12AnEndpointWithAReceivePostedHearsOfThePeersEnd) {
  const std::uint64_t waiting = a_.receive(link_.a, area_a_->segment(0, 64));
  b_.fabric().close(link_.b);
  ASSERT_TRUE(run_until(
      [&] { return a_.event(EventKind::failed, link_.a) != nullptr && a_.done(waiting); }));
  EXPECT_EQ(a_.status(waiting), "flushed");
  run_for(5ms);
  EXPECT_EQ(a_.count(EventKind::failed, link_.a), 1u);
}

TEST_P(Errors, ResourcesCountWhatExists) {
  const Fabric::Resources before = a_.fabric().resources();
  EXPECT_EQ(before.endpoints, 1u);
  EXPECT_EQ(before.registrations, 1u);
  EXPECT_EQ(before.work_requests, 0u);
  EXPECT_EQ(b_.fabric().resources().keys, 1u);
  EXPECT_EQ(b_.fabric().resources().listeners, 1u);
  const std::uint64_t id = a_.receive(link_.a, area_a_->segment(0, 64));
  EXPECT_EQ(a_.fabric().resources().work_requests, 1u);
  a_.fabric().set_error(link_.a);
  ASSERT_TRUE(run_until([&] { return a_.done(id); }));
  EXPECT_EQ(a_.fabric().resources().work_requests, 0u);
  b_.fabric().close_group({1});
  EXPECT_EQ(b_.fabric().resources().keys, b_.fabric().capabilities().exact_keys ? 0u : 1u);
  Area& more = a_.area(4096);
  EXPECT_EQ(a_.fabric().resources().registrations, 2u);
  EXPECT_TRUE(more.deregister().ok());
  EXPECT_EQ(a_.fabric().resources().registrations, 1u);
}

}  // namespace
}  // namespace pawl::fabric::conformance
