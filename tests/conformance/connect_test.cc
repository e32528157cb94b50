// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "conformance/fixture.h"

namespace pawl::fabric::conformance {
namespace {

class Connect : public Conformance {
 protected:
  static constexpr EndpointOptions kGroup1{.group = {1}};
};
PAWL_CONFORMANCE(Connect);

TEST_P(Connect, HelloReachesTheOtherEndBothWays) {
  const std::string at = address(b_);
  const EndpointId a = a_.fabric().connect(at, kGroup1, hello("from a"), soon()).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(text_of(request->hello), "from a");
  EXPECT_FALSE(request->peer_address.empty());
  EXPECT_TRUE(request->listener);
  EXPECT_EQ(a_.count(EventKind::connected), 0u);
  ASSERT_TRUE(b_.fabric().accept(request->endpoint, kGroup1, hello("from b")).ok());
  ASSERT_TRUE(run_until([&] {
    return a_.event(EventKind::connected, a) && b_.event(EventKind::connected, request->endpoint);
  }));
  EXPECT_EQ(text_of(a_.event(EventKind::connected, a)->hello), "from b");
  EXPECT_FALSE(a_.event(EventKind::connected, a)->peer_address.empty());
}

TEST_P(Connect, HelloMayBeEmptyOrAtItsLimitAndNotAboveIt) {
  const std::string most(kHelloBytesMax, 'x');
  const std::string more(kHelloBytesMax + 1, 'x');
  const std::string at = address(b_);
  EXPECT_EQ(a_.fabric().connect(at, kGroup1, hello(more), soon()).status().code(), Code::too_large);
  EXPECT_EQ(a_.fabric().resources().endpoints, 0u);

  const EndpointId a = a_.fabric().connect(at, kGroup1, hello(most), soon()).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(text_of(request->hello), most);
  EXPECT_EQ(b_.fabric().accept(request->endpoint, kGroup1, hello(more)).code(), Code::too_large);
  ASSERT_TRUE(b_.fabric().accept(request->endpoint, kGroup1, hello(most)).ok());
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connected, a) != nullptr; }));
  EXPECT_EQ(text_of(a_.event(EventKind::connected, a)->hello), most);

  const EndpointId empty = a_.fabric().connect(at, kGroup1, {}, soon()).value();
  request = next_request(b_);
  ASSERT_NE(request, nullptr);
  EXPECT_TRUE(request->hello.empty());
  ASSERT_TRUE(b_.fabric().accept(request->endpoint, kGroup1, {}).ok());
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connected, empty) != nullptr; }));
  EXPECT_TRUE(a_.event(EventKind::connected, empty)->hello.empty());
}

TEST_P(Connect, RejectCarriesHello) {
  const EndpointId a =
      a_.fabric().connect(address(b_), kGroup1, hello("let me in"), soon()).value();
  Area& area = a_.area(4096);
  const std::uint64_t posted = a_.receive(a, area.segment(0, 64));
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  Area& own = b_.area(4096);
  const std::uint64_t waiting = b_.receive(request->endpoint, own.segment(0, 64));
  b_.fabric().reject(request->endpoint, hello("no, because"));
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
  const Event& failed = *a_.event(EventKind::connect_failed, a);
  EXPECT_EQ(text_of(failed.hello), "no, because");
  EXPECT_FALSE(failed.status.ok());
  EXPECT_EQ(a_.status(posted), "flushed");
  ASSERT_TRUE(run_until([&] { return b_.done(waiting); }));
  EXPECT_EQ(b_.status(waiting), "flushed");
  run_for(1ms);
  EXPECT_EQ(b_.count(EventKind::closed), 0u);
  EXPECT_EQ(b_.fabric().resources().endpoints, 0u);
}

TEST_P(Connect, TheHelloOfARejectIsCutToItsLimit) {
  const std::string most = pattern(kHelloBytesMax, 1);
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  b_.fabric().reject(request->endpoint, hello(most + pattern(kHelloBytesMax, 2)));
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
  EXPECT_TRUE(text_of(a_.event(EventKind::connect_failed, a)->hello) == most);
}

TEST_P(Connect, ToNobodyFailsWithTheAddressInItsSentence) {
  const std::string at = world_->dead_address();
  const EndpointId a = a_.fabric().connect(at, kGroup1, hello("anyone?"), soon()).value();
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
  const Status& status = a_.event(EventKind::connect_failed, a)->status;
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_NE(status.what().find(at), std::string_view::npos) << status.to_string();
  EXPECT_EQ(a_.fabric().resources().endpoints, 0u);
}

TEST_P(Connect, ToAClosedListenerFails) {
  const ListenerId listener = b_.fabric().listen(world_->any_address(1)).value();
  const std::string at = b_.fabric().listener_address(listener);
  b_.fabric().close_listener(listener);
  EXPECT_EQ(b_.fabric().resources().listeners, 0u);
  const EndpointId a = a_.fabric().connect(at, kGroup1, {}, soon()).value();
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
}

TEST_P(Connect, EndsAtItsDeadlineAndALateAnswerBelongsToNobody) {
  const TimePoint deadline = world_->now() + 300ms;  // a busy guest needs some of it
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, hello("?"), deadline).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
  EXPECT_GE(world_->now(), deadline);
  EXPECT_EQ(a_.event(EventKind::connect_failed, a)->status.code(), Code::deadline);
  EXPECT_EQ(a_.fabric().resources().endpoints, 0u);

  // The same address again; the answer to the first attempt must not connect the second.
  const EndpointId second = a_.fabric().connect(address(b_), kGroup1, hello("2"), soon()).value();
  EXPECT_NE(second, a);
  const Status late = b_.fabric().accept(request->endpoint, kGroup1, hello("late"));
  const Event* other = next_request(b_);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(text_of(other->hello), "2");
  ASSERT_TRUE(b_.fabric().accept(other->endpoint, kGroup1, hello("in time")).ok());
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connected, second) != nullptr; }));
  EXPECT_EQ(text_of(a_.event(EventKind::connected, second)->hello), "in time");
  // The accepting end learns that nobody is there: by accept's error, or by an event after it.
  const EndpointId gone = request->endpoint;
  EXPECT_TRUE(run_until([&] {
    return !late.ok() || b_.event(EventKind::connect_failed, gone) != nullptr ||
           b_.event(EventKind::failed, gone) != nullptr;
  }));
}

TEST_P(Connect, APastDeadlineFailsAtOnce) {
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, world_->now()).value();
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed, a) != nullptr; }));
  EXPECT_EQ(a_.event(EventKind::connect_failed, a)->status.code(), Code::deadline);
}

TEST_P(Connect, CloseWhileConnectingGivesClosedAndNothingElse) {
  Area& area = a_.area(4096);
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const std::uint64_t posted = a_.receive(a, area.segment(0, 64));
  a_.fabric().close(a);
  a_.fabric().close(a);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::closed, a) != nullptr; }));
  EXPECT_EQ(a_.status(posted), "flushed");
  run_for(20ms);
  EXPECT_EQ(a_.count(EventKind::closed, a), 1u);
  EXPECT_EQ(a_.count(EventKind::connect_failed, a), 0u);
  EXPECT_EQ(a_.count(EventKind::connected, a), 0u);
}

TEST_P(Connect, CloseOfARequestRefusesIt) {
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  b_.fabric().close(request->endpoint);
  ASSERT_TRUE(run_until([&] {
    return a_.event(EventKind::connect_failed, a) && b_.event(EventKind::closed, request->endpoint);
  }));
}

TEST_P(Connect, ReceivesMayBePostedBeforeTheConnectionStands) {
  Area& area_a = a_.area(4096);
  Area& area_b = b_.area(4096);
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const std::uint64_t at_a = a_.receive(a, area_a.segment(0, 64));
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  const EndpointId b = request->endpoint;
  const std::uint64_t at_b = b_.receive(b, area_b.segment(0, 64));
  ASSERT_TRUE(b_.fabric().accept(b, kGroup1, {}).ok());
  // Each end sends as soon as it may.
  a_.on_event = [&](const Event& event) {
    if (event.kind == EventKind::connected) a_.send(a, area_a.segment(1024, 5));
  };
  b_.on_event = [&](const Event& event) {
    if (event.kind == EventKind::connected) b_.send(b, area_b.segment(1024, 5));
  };
  area_a.write(1024, "to b!");
  area_b.write(1024, "to a!");
  ASSERT_TRUE(run_until([&] { return a_.done(at_a) && b_.done(at_b); }));
  EXPECT_EQ(area_a.read(0, 5), "to a!");
  EXPECT_EQ(area_b.read(0, 5), "to b!");
}

TEST_P(Connect, AcceptRefusesLessDepthThanReceivesWerePosted) {
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  Area& area = b_.area(4096);
  for (std::size_t i = 0; i < 3; ++i) b_.receive(request->endpoint, area.segment(i * 64, 64));
  const Status status =
      b_.fabric().accept(request->endpoint, {.group = {1}, .receive_depth = 2}, {});
  EXPECT_EQ(status.code(), Code::resource_exhausted) << status.to_string();
  ASSERT_TRUE(b_.fabric().accept(request->endpoint, {.group = {1}, .receive_depth = 3}, {}).ok());
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connected, a) != nullptr; }));
}

TEST_P(Connect, OnlyReceivesArePostedBeforeTheConnectionStands) {
  Area& area = a_.area(4096);
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const LocalSegment segment = area.segment(0, 64);
  for (const Opcode op : {Opcode::send, Opcode::read}) {
    Status why;
    EXPECT_TRUE(a_.post(a, {{.op = op, .local = std::span(&segment, 1)}}, why).empty());
    EXPECT_EQ(why.code(), Code::failed_precondition);
  }
}

TEST_P(Connect, Promise10NothingSucceedsAndNothingFailsBeforeConnectedWasTaken) {
  // The peer sends and then fails at once; Side checks the order of what comes.
  Area& area_a = a_.area(4096);
  Area& area_b = b_.area(4096);
  const EndpointId a = a_.fabric().connect(address(b_), kGroup1, {}, soon()).value();
  const std::uint64_t received = a_.receive(a, area_a.segment(0, 64));
  const Event* request = next_request(b_);
  ASSERT_NE(request, nullptr);
  const EndpointId b = request->endpoint;
  ASSERT_TRUE(b_.fabric().accept(b, kGroup1, {}).ok());
  b_.on_event = [&](const Event& event) {
    if (event.kind == EventKind::connected) b_.send(b, area_b.segment(0, 9));
  };
  area_b.write(0, "immediate");
  ASSERT_TRUE(run_until([&] { return a_.done(received); }));
  EXPECT_EQ(a_.status(received), "success");
  b_.fabric().set_error(b);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::failed, a) != nullptr; }));
}

TEST_P(Connect, ListenerErrorsNameTheAddress) {
  const ListenerId first = b_.fabric().listen(world_->any_address(1)).value();
  const std::string at = b_.fabric().listener_address(first);
  const Result<ListenerId> again = b_.fabric().listen(at);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().what().find(at), std::string_view::npos);
  EXPECT_FALSE(b_.fabric().listen("").ok());
  EXPECT_FALSE(a_.fabric().connect("", kGroup1, {}, soon()).ok());
  const ListenerId second = b_.fabric().listen(world_->any_address(1)).value();
  EXPECT_NE(b_.fabric().listener_address(second), at);
  EXPECT_EQ(b_.fabric().resources().listeners, 2u);
  b_.fabric().close_listener(first);
  b_.fabric().close_listener(first);
  b_.fabric().close_listener(second);
  EXPECT_EQ(b_.fabric().listener_address(first), "");
}

TEST_P(Connect, ManyAtOnceAndBothWays) {
  constexpr std::size_t kConnections = 24;
  const std::string at_b = address(b_);
  const std::string at_a = address(a_);
  const auto accept_all = [](Side& side) {
    side.on_event = [&side](const Event& event) {
      if (event.kind != EventKind::connect_request) return;
      EXPECT_TRUE(side.fabric().accept(event.endpoint, kGroup1, event.hello).ok());
    };
  };
  accept_all(a_);
  accept_all(b_);
  std::map<EndpointId, std::string> from_a;
  for (std::size_t i = 0; i < kConnections; ++i) {
    const std::string name = "connection " + std::to_string(i);
    from_a[a_.fabric().connect(at_b, kGroup1, hello(name), soon()).value()] = name;
    ASSERT_TRUE(b_.fabric().connect(at_a, kGroup1, {}, soon()).ok());
  }
  ASSERT_TRUE(run_until([&] {
    return a_.count(EventKind::connected) == 2 * kConnections &&
           b_.count(EventKind::connected) == 2 * kConnections;
  }));
  for (const auto& [endpoint, name] : from_a) {
    EXPECT_EQ(text_of(a_.event(EventKind::connected, endpoint)->hello), name);
  }
}

TEST_P(Connect, ClosedIdsNeverMeanAnotherEndpoint) {
  std::set<EndpointId> seen;
  Area& area = a_.area(4096);
  const LocalSegment segment = area.segment(0, 64);
  EndpointId old;
  for (int round = 0; round < 8; ++round) {
    const Link link = connect(a_, b_);
    EXPECT_TRUE(seen.insert(link.a).second) << "an id came back";
    if (old) {
      Status why;
      EXPECT_TRUE(
          a_.post(old, {{.op = Opcode::receive, .local = std::span(&segment, 1)}}, why).empty());
      EXPECT_EQ(why.code(), Code::failed_precondition);
      a_.fabric().set_error(old);
      a_.fabric().close(old);
      EXPECT_FALSE(a_.fabric().accept(old, kGroup1, {}).ok());
      a_.fabric().reject(old, {});
      run_for(1ms);
      EXPECT_EQ(a_.count(EventKind::failed, link.a), 0u);
      EXPECT_EQ(a_.count(EventKind::closed, old), 1u);
    }
    a_.fabric().close(link.a);
    b_.fabric().close(link.b);
    ASSERT_TRUE(run_until([&] {
      return a_.event(EventKind::closed, link.a) && b_.event(EventKind::closed, link.b);
    }));
    old = link.a;
  }
}

}  // namespace
}  // namespace pawl::fabric::conformance
