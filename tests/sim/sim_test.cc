// SPDX-License-Identifier: Apache-2.0
// What the simulated network promises beyond fabric.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "support/fabric_side.h"

namespace pawl::fabric {
namespace {

using testing::Area;
using testing::pattern;
using testing::Side;

/// Two nodes, connected; the second can crash and come back.
class Pair {
 public:
  static constexpr std::size_t kBytes = 1 << 20;

  explicit Pair(std::uint64_t seed, const SimOptions& options = {},
                std::function<void(std::string_view)> trace = {})
      : network(seed, options), loop(network) {
    network.set_trace(std::move(trace));
    start(0);
    start(1);
    connect();
    lent = &b().area(kBytes);
    landing = &a().area(kBytes);
    lent->fill(0, kBytes, 'o');
    remote = b().fabric().expose({1}, lent->handle(), lent->at(0), kBytes).value();
  }
  ~Pair() {
    for (std::size_t i = 0; i < 2; ++i) stop(i);
  }

  Side& a() { return *sides[0]; }
  Side& b() { return *sides[1]; }
  SimFabric& fabric(std::size_t i) { return *fabrics[i]; }

  void start(std::size_t i) {
    fabrics[i] = std::make_unique<SimFabric>(network, i == 0 ? "a" : "b");
    sides[i] = std::make_unique<Side>(*fabrics[i], network.clock(), 1 + 1'000'000 * i);
    loop.remove(participants[i]);
    participants[i] = loop.add([this, i] { return sides[i]->turn(); },
                               [this, i] { return fabrics[i]->next_event_time(); });
  }
  void stop(std::size_t i) {
    loop.remove(participants[i]);
    sides[i].reset();
    fabrics[i].reset();
  }
  void connect() {
    const std::string at = address();
    const std::size_t before = b().count(EventKind::connect_request);
    at_a = a().fabric().connect(at, {.group = {1}}, {}, network.now() + 1s).value();
    ASSERT_TRUE(loop.run_until([&] { return b().count(EventKind::connect_request) > before; }));
    at_b = b().events(EventKind::connect_request)[before]->endpoint;
    ASSERT_TRUE(b().fabric().accept(at_b, {.group = {1}}, {}).ok());
    ASSERT_TRUE(loop.run_until([&] {
      return a().event(EventKind::connected, at_a) && b().event(EventKind::connected, at_b);
    }));
  }
  std::string address() {
    const Result<ListenerId> listener = b().fabric().listen("b:0");
    return listener.ok() ? b().fabric().listener_address(*listener) : "";
  }
  std::uint64_t read(std::size_t bytes = kBytes, std::size_t at = 0) {
    return a().read(at_a, landing->segment(at, bytes), remote);
  }
  bool until(std::uint64_t id, Duration limit = 10s) {
    return loop.run_until([&] { return a().done(id); }, limit);
  }
  void run_for(Duration duration) { loop.run_for(duration); }

  SimNetwork network;
  SimLoop loop;
  std::array<std::unique_ptr<SimFabric>, 2> fabrics;
  std::array<std::unique_ptr<Side>, 2> sides;
  std::array<std::uint64_t, 2> participants{};
  EndpointId at_a, at_b;
  Area* lent = nullptr;
  Area* landing = nullptr;
  RemoteAddress remote;
};

SimOptions rough() {
  SimOptions options;
  options.jitter = 20us;
  options.stall = {.probability = 0.2, .min = 10us, .max = 1ms};
  options.read_delay = {.probability = 0.2, .min = 10us, .max = 3ms};
  options.packet_stall = {.probability = 0.1, .min = 10us, .max = 1ms};
  options.completion_stall = {.probability = 0.1, .min = 1us, .max = 100us};
  options.endpoint_loss = 0.005;
  return options;
}

/// A run with some of everything, as text.
std::string story(std::uint64_t seed) {
  std::string text;
  Pair pair(seed, rough(), [&](std::string_view line) { (text += line) += '\n'; });
  for (std::size_t i = 0; i < 40; ++i) {
    Status why;
    const LocalSegment segment = pair.landing->segment(i * 64, 64);
    pair.a().post(pair.at_a, {{.op = Opcode::receive, .local = std::span(&segment, 1)}}, why);
    pair.b().post(pair.at_b, {{.op = Opcode::send, .local = std::array{pair.lent->segment(0, 64)}}},
                  why);
    const LocalSegment to = pair.landing->segment(65536 + i * 8192, 8192);
    pair.a().post(pair.at_a,
                  {{.op = Opcode::read, .local = std::span(&to, 1), .remote = pair.remote}}, why);
    pair.run_for(20us);
  }
  pair.run_for(20ms);
  return text;
}

TEST(SimNetwork, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const std::string first = story(seed);
    EXPECT_GT(first.size(), 1000u);
    EXPECT_EQ(first, story(seed)) << "seed " << seed;
  }
}

TEST(SimNetwork, AnotherSeedGivesAnotherRun) { EXPECT_NE(story(1), story(2)); }

TEST(SimNetwork, AReadIsSampledPacketByPacketSoAnOverwriteGivesAMixture) {
  Pair pair(3);
  const std::uint64_t id = pair.read();
  // In the middle: 1 MiB takes about 84 us on this wire.
  pair.network.run_until(pair.network.now() + 40us);
  pair.lent->fill(0, Pair::kBytes, 'n');
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "success");
  const std::string landed = pair.landing->read(0, Pair::kBytes);
  const std::size_t first_new = landed.find('n');
  ASSERT_NE(first_new, std::string::npos);
  ASSERT_NE(first_new, 0u);
  EXPECT_EQ(first_new % pair.network.options().packet_bytes, 0u);
  EXPECT_EQ(landed, std::string(first_new, 'o') + std::string(Pair::kBytes - first_new, 'n'));
}

TEST(SimNetwork, TheCompletionComesAfterTheLastByteWasSampled) {
  SimOptions options;
  options.latency = 1ms;
  Pair pair(3, options);
  const std::uint64_t id = pair.read(64);
  pair.run_for(1500us);  // sampled, not yet landed
  pair.lent->fill(0, 64, 'n');
  EXPECT_FALSE(pair.a().done(id));
  EXPECT_EQ(pair.landing->read(0, 64), std::string(64, '\0'));
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.landing->read(0, 64), std::string(64, 'o'));
}

TEST(SimNetwork, ALateReadGetsWhatIsThereWhenItIsExecuted) {
  SimOptions options;
  options.read_delay = {.probability = 1, .min = 100ms, .max = 100ms};
  Pair pair(3, options);
  const std::uint64_t id = pair.read(4096);
  pair.run_for(50ms);
  pair.lent->fill(0, 4096, 'n');
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.landing->read(0, 4096), std::string(4096, 'n'));
}

class Window {
 public:
  explicit Window(Pair& pair) : pair_(pair) {
    id = pair.b().fabric().allocate_window().value();
    key = pair.b().fabric().next_window_key(id);
    const std::uint64_t bind = pair.b().post(
        pair.at_b,
        {.op = Opcode::bind, .window = id, .bind_target = pair.lent->segment(0, Pair::kBytes)});
    pair.loop.run_until([&] { return pair.b().done(bind); });
  }
  std::uint64_t read() {
    return pair_.a().read(pair_.at_a, pair_.landing->segment(0, Pair::kBytes), {key, 0});
  }
  void free() { EXPECT_TRUE(pair_.b().fabric().free_window(id).ok()); }

  WindowId id;
  std::uint64_t key = 0;

 private:
  Pair& pair_;
};

TEST(SimNetwork, ExactRevocationFailsTheReadInProgress) {
  Pair pair(3);
  Window window(pair);
  const std::uint64_t id = window.read();
  pair.network.run_until(pair.network.now() + 40us);
  window.free();
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "remote_access");
  const std::string landed = pair.landing->read(0, Pair::kBytes);
  EXPECT_NE(landed.find('o'), std::string::npos) << "it was in progress";
  EXPECT_NE(landed.find('\0'), std::string::npos);
}

TEST(SimNetwork, InexactRevocationSaysSuccessAlthoughBytesAreMissing) {
  SimOptions options;
  options.inexact_revocation = 1;
  options.capabilities.windows = WindowSupport::inexact;
  Pair pair(3, options);
  Window window(pair);
  const std::uint64_t id = window.read();
  pair.network.run_until(pair.network.now() + 40us);
  window.free();
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "success");
  const std::string landed = pair.landing->read(0, Pair::kBytes);
  EXPECT_NE(landed.find('o'), std::string::npos);
  EXPECT_NE(landed.find('\0'), std::string::npos) << "the end never arrived";
  EXPECT_TRUE(pair.loop.run_until([&] {
    return pair.a().event(EventKind::failed, pair.at_a) &&
           pair.b().event(EventKind::failed, pair.at_b);
  }));
  // What is executed after the revocation is refused all the same.
  pair.connect();
  const std::uint64_t late = window.read();
  ASSERT_TRUE(pair.until(late));
  EXPECT_EQ(pair.a().status(late), "remote_access");
}

// Promise 10, where `connected` and the first message wait for the same turn.
TEST(SimNetwork, NothingSucceedsWhileConnectedWaitsToBeTaken) {
  Pair pair(9);
  pair.b().on_event = [&](const Event& event) {
    if (event.kind == EventKind::connect_request) {
      EXPECT_TRUE(pair.b().fabric().accept(event.endpoint, {.group = {1}}, {}).ok());
    } else if (event.kind == EventKind::connected) {
      pair.b().send(event.endpoint, pair.lent->segment(0, 9));
    }
  };
  const EndpointId a = pair.a()
                           .fabric()
                           .connect(pair.address(), {.group = {1}}, {}, pair.network.now() + 1s)
                           .value();
  const std::uint64_t received = pair.a().receive(a, pair.landing->segment(0, 64));
  pair.loop.remove(pair.participants[0]);
  std::size_t completed = 0;
  pair.participants[0] = pair.loop.add(
      [&] {  // no poll_event
        std::array<Completion, 16> out;
        completed += pair.fabric(0).poll(pair.network.now(), out);
        return false;
      },
      [] { return TimePoint::never(); });
  pair.run_for(10ms);
  EXPECT_EQ(completed, 0u);
  pair.loop.remove(pair.participants[0]);
  pair.participants[0] = pair.loop.add([&] { return pair.a().turn(); },
                                       [&] { return pair.fabric(0).next_event_time(); });
  ASSERT_TRUE(pair.until(received));
  EXPECT_EQ(pair.a().status(received), "success");
}

TEST(SimNetwork, AWindowKeyComesBackAfter256Binds) {
  Pair pair(3);
  Window window(pair);
  for (int i = 0; i < 256; ++i) {
    const std::array<WorkRequest, 2> chain = {
        WorkRequest{.op = Opcode::invalidate, .window = window.id},
        WorkRequest{
            .op = Opcode::bind, .window = window.id, .bind_target = pair.lent->segment(0, 4096)}};
    EXPECT_EQ(pair.b().fabric().next_window_key(window.id) == window.key, i == 255);
    const std::uint64_t first = pair.b().post(pair.at_b, chain[0]);
    const std::uint64_t second = pair.b().post(pair.at_b, chain[1]);
    ASSERT_TRUE(pair.loop.run_until([&] { return pair.b().done(second); }));
    ASSERT_EQ(pair.b().status(first), "success");
  }
  const std::uint64_t id = pair.a().read(pair.at_a, pair.landing->segment(0, 64), {window.key, 0});
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "success") << "the device's trap is there: retire after 255";
  window.free();
}

TEST(SimNetwork, AWindowIsNotFreedUnderABindThatMayStillBeExecuted) {
  Pair pair(3);
  SimFabric& owner = pair.fabric(1);
  const WindowId window = owner.allocate_window().value();
  const std::uint64_t bind = pair.b().post(
      pair.at_b,
      {.op = Opcode::bind, .window = window, .bind_target = pair.lent->segment(0, 4096)});
  EXPECT_EQ(owner.free_window(window).code(), Code::failed_precondition);
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.b().done(bind); }));
  EXPECT_EQ(pair.b().status(bind), "success");
  const std::uint64_t invalidate =
      pair.b().post(pair.at_b, {.op = Opcode::invalidate, .window = window});
  EXPECT_EQ(owner.free_window(window).code(), Code::failed_precondition);
  owner.set_error(pair.at_b);
  EXPECT_TRUE(owner.free_window(window).ok()) << "in ERR it will not be executed";
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.b().done(invalidate); }));
  EXPECT_EQ(pair.b().status(invalidate), "flushed");
}

TEST(SimNetwork, ACrashIsNoticedByRetryExceededOnlyByThoseWhoWait) {
  Pair pair(3);
  const TimePoint crash_time = pair.network.now();
  pair.network.crash("b");
  pair.run_for(5s);
  EXPECT_EQ(pair.a().event(EventKind::failed), nullptr) << "idle peers notice nothing";
  const TimePoint posted = pair.network.now();
  const std::uint64_t id = pair.read(64);
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "retry_exceeded");
  EXPECT_GE(pair.network.now() - posted, pair.network.options().retry_timeout);
  EXPECT_NE(pair.a().event(EventKind::failed, pair.at_a), nullptr);
  EXPECT_GT(pair.network.now(), crash_time);
  // The crashed node's own side ends too, so that its owner can be torn down.
  EXPECT_NE(pair.b().event(EventKind::device), nullptr);
  EXPECT_NE(pair.b().event(EventKind::failed, pair.at_b), nullptr);
  EXPECT_FALSE(pair.b().fabric().listen("b:0").ok());
  EXPECT_FALSE(pair.b().fabric().connect("a", {}, {}, pair.network.now() + 1s).ok());
}

TEST(SimNetwork, ACrashInTheMiddleOfAReadIsNoticedByTheReader) {
  Pair pair(3);
  const std::uint64_t id = pair.read();
  pair.network.run_until(pair.network.now() + 40us);
  pair.network.crash("b");
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "retry_exceeded");
}

TEST(SimNetwork, ANodeRestartsUnderItsNameAndOldConnectionsStayDead) {
  Pair pair(3);
  const RemoteAddress old = pair.remote;
  const EndpointId old_at_a = pair.at_a;
  pair.network.crash("b");
  pair.stop(1);
  pair.start(1);
  pair.connect();
  EXPECT_NE(pair.at_a, old_at_a);
  Area& lent = pair.b().area(4096);
  lent.fill(0, 4096, 'n');
  const RemoteAddress now = pair.b().fabric().expose({1}, lent.handle(), lent.at(0), 4096).value();
  const std::uint64_t good = pair.a().read(pair.at_a, pair.landing->segment(0, 64), now);
  ASSERT_TRUE(pair.until(good));
  EXPECT_EQ(pair.a().status(good), "success");
  const std::uint64_t stale = pair.a().read(pair.at_a, pair.landing->segment(0, 64), old);
  ASSERT_TRUE(pair.until(stale));
  EXPECT_EQ(pair.a().status(stale), "remote_access") << "keys of the old incarnation";
  const std::uint64_t dead = pair.a().read(old_at_a, pair.landing->segment(0, 64), now);
  ASSERT_TRUE(pair.until(dead));
  EXPECT_EQ(pair.a().status(dead), "retry_exceeded");
}

TEST(SimNetwork, ABlockThatLastsEndsInRetryExceededAndAShortOneDoesNot) {
  Pair pair(3);
  pair.network.block_node("b");
  const std::uint64_t first = pair.read(64);
  pair.run_for(pair.network.options().retry_timeout / 2);
  EXPECT_FALSE(pair.a().done(first));
  pair.network.unblock_node("b");
  ASSERT_TRUE(pair.until(first, 1ms));
  EXPECT_EQ(pair.a().status(first), "success");
  pair.network.block_link("a", "b");
  const std::uint64_t second = pair.read(64);
  ASSERT_TRUE(pair.until(second));
  EXPECT_EQ(pair.a().status(second), "retry_exceeded");
  EXPECT_EQ(pair.b().event(EventKind::failed), nullptr) << "it cannot know yet";
  pair.network.unblock_link("a", "b");
  EXPECT_TRUE(
      pair.loop.run_until([&] { return pair.b().event(EventKind::failed, pair.at_b); }, 1s));
}

TEST(SimNetwork, AOneWayPartitionStopsOneWayOnly) {
  Pair pair(3);
  pair.network.block("b", "a");
  const std::uint64_t received = pair.b().receive(pair.at_b, pair.lent->segment(0, 64));
  const std::uint64_t sent = pair.a().send(pair.at_a, pair.landing->segment(0, 64));
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.b().done(received); }));
  EXPECT_EQ(pair.b().status(received), "success");
  pair.run_for(10ms);
  EXPECT_FALSE(pair.a().done(sent)) << "the ACK cannot come back";
  pair.network.unblock("b", "a");
  ASSERT_TRUE(pair.until(sent));
  EXPECT_EQ(pair.a().status(sent), "success");
}

TEST(SimNetwork, ConnectsAreRefusedLostOrLate) {
  SimOptions options;
  Pair pair(3, options);
  const std::string at = pair.address();
  pair.network.options().connect_refused = 1;
  EndpointId id = pair.a().fabric().connect(at, {}, {}, pair.network.now() + 1s).value();
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.a().event(EventKind::connect_failed, id); }));
  EXPECT_EQ(pair.a().event(EventKind::connect_failed, id)->status.code(), Code::unavailable);
  pair.network.options().connect_refused = 0;
  pair.network.block_node("b");
  id = pair.a().fabric().connect(at, {}, {}, pair.network.now() + 1s).value();
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.a().event(EventKind::connect_failed, id); }));
  EXPECT_EQ(pair.a().event(EventKind::connect_failed, id)->status.code(), Code::deadline);
  pair.network.unblock_node("b");
  pair.run_for(10ms);
  EXPECT_EQ(pair.fabric(1).resources().endpoints, 1u) << "the late request was abandoned";
}

TEST(SimNetwork, StallsDelayButKeepTheOrder) {
  SimOptions options;
  options.stall = {.probability = 0.5, .min = 100us, .max = 5ms};
  options.jitter = 100us;
  Pair pair(7, options);
  std::vector<std::uint64_t> receives;
  for (std::size_t i = 0; i < 60; ++i) {
    receives.push_back(pair.a().receive(pair.at_a, pair.landing->segment(i * 64, 64)));
    pair.lent->write(i * 64, "message " + std::to_string(1000 + i));
    pair.b().send(pair.at_b, pair.lent->segment(i * 64, 12));
  }
  ASSERT_TRUE(pair.loop.run_until([&] { return pair.a().all_done(receives); }));
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(pair.landing->read(i * 64, 12), "message " + std::to_string(1000 + i));
  }
}

TEST(SimNetwork, SlowNodesAreSlow) {
  Pair pair(3);
  const TimePoint before = pair.network.now();
  ASSERT_TRUE(pair.until(pair.read(64)));
  EXPECT_LT(pair.network.now() - before, 100us);
  pair.network.slow_down("b", 5ms);
  const TimePoint slow = pair.network.now();
  ASSERT_TRUE(pair.until(pair.read(64)));
  EXPECT_GT(pair.network.now() - slow, 10ms);
}

TEST(SimNetwork, BandwidthIsWhatTheOptionsSay) {
  SimOptions options;
  options.bytes_per_second = 1e9;
  Pair pair(3, options);
  const TimePoint before = pair.network.now();
  ASSERT_TRUE(pair.until(pair.read()));
  const Duration took = pair.network.now() - before;
  EXPECT_GT(took, 1048us);
  EXPECT_LT(took, 1100us);
}

TEST(SimNetwork, AReceiverThatIsNeverReadyFailsTheSendIfSoAsked) {
  SimOptions options;
  options.receiver_not_ready_timeout = 50ms;
  Pair pair(3, options);
  const std::uint64_t sent = pair.a().send(pair.at_a, pair.landing->segment(0, 64));
  ASSERT_TRUE(pair.until(sent));
  EXPECT_EQ(pair.a().status(sent), "receiver_not_ready");
}

TEST(SimNetwork, AnErrThatIsNotAnnouncedIsNoticedByWorkOnly) {
  SimOptions options;
  options.announce_errors = false;
  Pair pair(3, options);
  pair.b().fabric().set_error(pair.at_b);
  pair.run_for(2s);
  EXPECT_EQ(pair.a().event(EventKind::failed), nullptr);
  const std::uint64_t id = pair.read(64);
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "retry_exceeded");
}

TEST(SimNetwork, AMessageThatWaitedAtAnEndInErrIsNoticedToo) {
  SimOptions options;
  options.announce_errors = false;
  Pair pair(3, options);
  const std::uint64_t sent = pair.a().send(pair.at_a, pair.landing->segment(0, 64));
  pair.run_for(10ms);
  pair.b().fabric().set_error(pair.at_b);
  ASSERT_TRUE(pair.until(sent));
  EXPECT_EQ(pair.a().status(sent), "retry_exceeded");
}

TEST(SimNetwork, AnswersUnderWayLandAfterSetErrorUntilTheFlush) {
  SimOptions options;
  options.flush_delay_max = 10ms;
  options.latency = 20us;
  Pair pair(3, options);
  const std::uint64_t id = pair.read();
  pair.network.run_until(pair.network.now() + 60us);
  pair.a().fabric().set_error(pair.at_a);
  pair.landing->fill(0, Pair::kBytes, '\0');
  ASSERT_TRUE(pair.until(id));
  EXPECT_EQ(pair.a().status(id), "flushed");
  EXPECT_NE(pair.landing->read(0, Pair::kBytes).find('o'), std::string::npos)
      << "set_error does not give the memory back; the completion does";
}

TEST(SimNetwork, LossesHitEndpointsOrWholeGroups) {
  SimOptions options;
  Pair pair(3, options);
  const EndpointId first = pair.at_a;
  pair.connect();
  pair.network.options().endpoint_loss = 1;
  const std::uint64_t lost = pair.read(64);
  ASSERT_TRUE(pair.until(lost));
  EXPECT_EQ(pair.a().status(lost), "flushed");
  EXPECT_EQ(pair.a().event(EventKind::failed, first), nullptr);
  pair.network.options().endpoint_loss = 0;
  pair.connect();
  pair.network.options().connection_loss = 1;
  ASSERT_TRUE(pair.until(pair.read(64)));
  EXPECT_NE(pair.a().event(EventKind::failed, first), nullptr);
  EXPECT_NE(pair.a().event(EventKind::failed, pair.at_a), nullptr);
  pair.network.options().connection_loss = 0;
  pair.connect();
  pair.network.fail_connections("a", "b");
  pair.run_for(1ms);
  EXPECT_NE(pair.a().event(EventKind::failed, pair.at_a), nullptr);
  EXPECT_NE(pair.b().event(EventKind::failed, pair.at_b), nullptr);
}

TEST(SimNetwork, DeviceEventsArriveAsEvents) {
  Pair pair(3);
  pair.network.device_event("a", Status(Code::unavailable, "the port went down"));
  pair.run_for(1ms);
  ASSERT_NE(pair.a().event(EventKind::device), nullptr);
  EXPECT_EQ(pair.a().event(EventKind::device)->status.what(), "the port went down");
}

TEST(SimNetwork, StepMovesToTheNextEvent) {
  SimNetwork network(1);
  SimFabric fabric(network, "a");
  EXPECT_FALSE(network.step());
  EXPECT_EQ(network.next_event_time(), TimePoint::never());
  const TimePoint before = network.now();
  int done = 0;
  network.schedule(5us, network.node_named("a"), [&](SimFabric&) { ++done; });
  network.schedule(3us, network.node_named("a"), [&](SimFabric&) { done += 10; });
  EXPECT_EQ(network.next_event_time(), before + 3us);
  EXPECT_TRUE(network.step());
  EXPECT_EQ(done, 10);
  EXPECT_EQ(network.now(), before + 3us);
  EXPECT_TRUE(network.step());
  EXPECT_EQ(done, 11);
  network.run_until(before + 1ms);
  EXPECT_EQ(network.now(), before + 1ms);
}

TEST(SimLoop, MovesToTheDeadlinesOfParticipantsAndStopsAtItsLimit) {
  SimNetwork network(1);
  SimLoop loop(network);
  const TimePoint begin = network.now();
  TimePoint timer = begin + 7ms;
  int fired = 0;
  loop.add(
      [&] {
        if (network.now() < timer) return false;
        ++fired;
        timer = timer + 7ms;
        return true;
      },
      [&] { return timer; });
  EXPECT_TRUE(loop.run_until([&] { return fired == 3; }, begin + 1s));
  EXPECT_EQ(network.now(), begin + 21ms);
  EXPECT_FALSE(loop.run_until([] { return false; }, begin + 25ms));
  EXPECT_EQ(network.now(), begin + 25ms);
  EXPECT_EQ(fired, 3);
  loop.run_for(10ms);
  EXPECT_EQ(network.now(), begin + 35ms);
  EXPECT_EQ(fired, 5);
}

}  // namespace
}  // namespace pawl::fabric
