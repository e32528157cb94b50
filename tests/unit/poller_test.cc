// SPDX-License-Identifier: Apache-2.0
#include "pawl/poller.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "pawl/log.h"
#include "pawl/time.h"
#include "pawl/timer.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Rig;

/// Calls a function when it runs.
class Call final : public Work {
 public:
  explicit Call(std::function<void()> fn, const char* name = "call")
      : Work([](Work* work) { static_cast<Call*>(work)->fn_(); }, name), fn_(std::move(fn)) {}

 private:
  std::function<void()> fn_;
};

class Source : public PollSource {
 public:
  std::size_t poll(TimePoint) override {
    ++polls;
    return on_poll ? on_poll() : 0;
  }
  bool arm() override { return on_arm ? on_arm() : true; }
  [[nodiscard]] int fd() const override { return descriptor; }
  [[nodiscard]] TimePoint next_event() const override { return next; }
  [[nodiscard]] const char* name() const override { return "test source"; }

  int polls = 0;
  std::function<std::size_t()> on_poll;
  std::function<bool()> on_arm;
  int descriptor = -1;
  TimePoint next = TimePoint::never();
};

// ---- Turns

TEST(Poller, ATurnGoesInboxSourcesTimersReady) {
  Rig rig;
  std::string order;
  Source a;
  Source b;
  a.on_poll = [&] {
    order += "a";
    return std::size_t{1};
  };
  b.on_poll = [&] {
    order += "b";
    return std::size_t{0};
  };
  rig.poller.add(a);
  rig.poller.add(b);
  Call ready([&] { order += "r"; });
  Call posted([&] { order += "p"; });
  Timer timer;
  timer.arm(
      rig.poller, rig.poller.now(), [](void* s) { *static_cast<std::string*>(s) += "t"; }, &order);
  rig.poller.defer(ready);
  rig.poller.post(posted);
  EXPECT_TRUE(rig.poller.run_once());
  EXPECT_EQ(order, "pabtr");
  rig.poller.remove(a);
  rig.poller.remove(b);
  EXPECT_FALSE(rig.poller.run_once());
}

TEST(Poller, HandlersPerTurnAreBounded) {
  ManualClock clock;
  PollerOptions options = Rig::options(clock);
  options.handlers_per_turn = 3;
  Poller poller(options);
  int ran = 0;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<Call>([&] { ++ran; }));
    poller.defer(*calls.back());
  }
  poller.run_once();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(poller.arm());
  poller.run_once();
  poller.run_once();
  EXPECT_EQ(ran, 8);
  EXPECT_TRUE(poller.arm());
}

TEST(Poller, DeferredWorkMayBeWithdrawn) {
  Rig rig;
  int ran = 0;
  Call first([&] { ran += 1; });
  Call second([&] { ran += 10; });
  Call third([&] { ran += 100; });
  rig.poller.defer(first);
  rig.poller.defer(second);
  rig.poller.defer(third);
  EXPECT_TRUE(second.deferred());
  Poller::withdraw(second);
  Poller::withdraw(second);
  EXPECT_FALSE(second.deferred());
  rig.turn();
  EXPECT_EQ(ran, 101);
}

TEST(Poller, NowIsConstantWithinATurn) {
  Rig rig;
  const TimePoint start = rig.clock.now();
  Call first([&] { rig.clock.advance(1ms); });
  Call second([&] {
    EXPECT_EQ(rig.poller.now(), start);
    EXPECT_EQ(Poller::current(), &rig.poller);
  });
  rig.poller.defer(first);
  rig.poller.defer(second);
  rig.poller.run_once();
  EXPECT_EQ(rig.poller.now(), start + 1ms);
  EXPECT_EQ(Poller::current(), nullptr);
}

TEST(Poller, SourcesMayLeaveAndComeDuringATurn) {
  Rig rig;
  Source a;
  Source b;
  auto c = std::make_unique<Source>();
  Source later;
  a.on_poll = [&] {
    rig.poller.remove(a);
    rig.poller.remove(*c);
    c.reset();
    rig.poller.add(later);
    return std::size_t{1};
  };
  rig.poller.add(a);
  rig.poller.add(b);
  rig.poller.add(*c);
  rig.poller.run_once();
  EXPECT_EQ(a.polls, 1);
  EXPECT_EQ(b.polls, 1);
  EXPECT_EQ(later.polls, 0);
  rig.poller.run_once();
  EXPECT_EQ(a.polls, 1);
  EXPECT_EQ(b.polls, 2);
  EXPECT_EQ(later.polls, 1);
  rig.poller.remove(b);
  rig.poller.remove(later);
}

class Lines final : public LogSink {
 public:
  void write(Severity, std::string_view line) noexcept override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

TEST(Poller, ALongTurnIsCountedAndNamed) {
  ManualClock clock;
  Lines lines;
  Logger logger(clock, lines);
  PollerOptions options = Rig::options(clock);
  options.log = &logger;
  Poller poller(options);
  Call quick([&] { clock.advance(1ms); }, "quick");
  Call slow([&] { clock.advance(7ms); }, "demo.Blocks/get");
  poller.defer(quick);
  poller.run_once();
  EXPECT_EQ(poller.stats().long_turns, 0U);
  poller.defer(quick);
  poller.defer(slow);
  poller.run_once();
  EXPECT_EQ(poller.stats().long_turns, 1U);
  EXPECT_EQ(poller.stats().longest_turn, 8ms);
  EXPECT_EQ(poller.stats().longest_work, 7ms);
  EXPECT_STREQ(poller.stats().longest_work_name, "demo.Blocks/get");
  ASSERT_EQ(lines.lines.size(), 1U);
  EXPECT_NE(lines.lines[0].find("8 ms, of which 7 ms in demo.Blocks/get"), std::string::npos)
      << lines.lines[0];
  poller.defer(slow);
  poller.run_once();
  EXPECT_EQ(poller.stats().long_turns, 2U);
  EXPECT_EQ(lines.lines.size(), 1U) << "each is told once";
}

// ---- Threads and sleep

struct Running {
  explicit Running(Duration spin = Duration(0)) : poller(options(clock, spin)) {
    thread = std::thread([this] { poller.run(); });
  }
  ~Running() {
    poller.stop();
    thread.join();
  }
  static PollerOptions options(const Clock& clock, Duration spin) {
    PollerOptions options;
    options.clock = &clock;
    options.spin = spin;
    return options;
  }
  SteadyClock clock;
  Poller poller;
  std::thread thread;
};

class Counted final : public Work {
 public:
  Counted() : Work(&Counted::count) {}
  std::atomic<int> ran{0};
  void await(int n) {
    for (int seen = ran.load(); seen != n; seen = ran.load()) ran.wait(seen);
  }

 private:
  static void count(Work* work) {
    auto* self = static_cast<Counted*>(work);
    ++self->ran;
    self->ran.notify_all();
  }
};

TEST(PollerThreads, NoWakeupIsLost) {
  // Each post is awaited before the next, so that the poller is near or in its sleep all the time.
  for (const Duration spin : {Duration(0), Duration(2000)}) {
    Running running(spin);
    Counted work;
    constexpr int kPosts = 20'000;
    for (int i = 1; i <= kPosts; ++i) {
      running.poller.post(work);
      work.await(i);
    }
    EXPECT_EQ(work.ran, kPosts);
  }
}

TEST(PollerThreads, ManyThreadsPost) {
  Running running;
  constexpr int kThreads = 4;
  constexpr int kEach = 5'000;
  struct Numbered final : Work {
    Numbered() : Work(&Numbered::run_it) {}
    static void run_it(Work* work) {
      auto* self = static_cast<Numbered*>(work);
      if (*self->last >= self->number) ++*self->disorder;
      *self->last = self->number;
      ++*self->total;
      self->total->notify_all();
    }
    int number = 0;
    int* last = nullptr;
    int* disorder = nullptr;
    std::atomic<int>* total = nullptr;
  };
  std::atomic<int> total{0};
  int disorder = 0;
  std::vector<int> last(kThreads, -1);
  std::vector<std::vector<Numbered>> work(kThreads);
  for (auto& list : work) list = std::vector<Numbered>(kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Numbered& item = work[t][i];
        item.number = i;
        item.last = &last[t];
        item.disorder = &disorder;
        item.total = &total;
        running.poller.post(item);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int seen = total.load(); seen != kThreads * kEach; seen = total.load()) total.wait(seen);
  EXPECT_EQ(disorder, 0);
}

TEST(PollerThreads, StopEndsAPollerThatSleepsOrIsAboutTo) {
  SteadyClock clock;
  for (int i = 0; i < 500; ++i) {
    Poller poller(Running::options(clock, Duration(0)));
    std::thread thread([&] { poller.run(); });
    if (i % 2 == 0) std::this_thread::yield();
    poller.stop();
    thread.join();
  }
}

TEST(PollerThreads, APollerMayGoRightAfterItWasWoken) {
  // The thread that posts may still be on its way to the eventfd.
  SteadyClock clock;
  for (int i = 0; i < 300; ++i) {
    auto poller = std::make_unique<Poller>(Running::options(clock, Duration(0)));
    Poller* seen = poller.get();
    Call end([seen] { seen->stop(); });
    std::thread poster([&] { seen->post(end); });
    poller->run();
    poller.reset();
    poster.join();
  }
}

TEST(PollerThreads, SleepsUntilTheNextTimer) {
  SteadyClock clock;
  Poller poller(Running::options(clock, Duration(0)));
  Timer timer;
  const TimePoint start = clock.now();
  timer.arm(
      poller, start + 200ms, [](void* context) { static_cast<Poller*>(context)->stop(); }, &poller);
  poller.run();  // long before the timer is due, also on a machine with much else to run
  EXPECT_GE(clock.now() - start, Duration(200ms));
  EXPECT_GE(poller.stats().sleeps, 1U);
  EXPECT_LE(poller.stats().turns, 10U);  // it slept, it did not spin
}

TEST(PollerThreads, SleepsUntilADescriptorIsReady) {
  SteadyClock clock;
  Poller poller(Running::options(clock, Duration(0)));
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
  Source source;
  source.descriptor = event.get();
  source.on_poll = [&]() -> std::size_t {
    std::uint64_t n = 0;
    if (::read(event.get(), &n, sizeof(n)) < 0) return 0;
    poller.stop();
    return n;
  };
  poller.add(source);
  std::thread thread([&] {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(event.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  });
  poller.run();
  thread.join();
  poller.remove(source);
}

TEST(Poller, WhatRacedInKeepsItAwake) {
  Rig rig;
  Source source;
  rig.poller.add(source);
  source.on_arm = [] { return false; };
  EXPECT_FALSE(rig.poller.arm());
  source.on_arm = nullptr;
  EXPECT_TRUE(rig.poller.arm());
  EXPECT_TRUE(rig.poller.arm());
  Call call([] {});
  rig.poller.post(call);
  EXPECT_FALSE(rig.poller.arm());
  EXPECT_TRUE(rig.poller.run_once());
  source.next = rig.clock.now();
  EXPECT_FALSE(rig.poller.arm());
  source.next = rig.clock.now() + 1s;
  EXPECT_EQ(rig.poller.next_event(), source.next);
  EXPECT_TRUE(rig.poller.arm());
  rig.poller.remove(source);
}

TEST(Poller, AHungUpDescriptorDoesNotSpin) {
  SteadyClock clock;
  Poller poller(Running::options(clock, Duration(0)));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  Source source;  // never reads
  source.descriptor = here.get();
  poller.add(source);
  there.reset();
  Timer timer;
  timer.arm(
      poller, clock.now() + 20ms, [](void* context) { static_cast<Poller*>(context)->stop(); },
      &poller);
  poller.run();
  EXPECT_EQ(poller.stats().muted_sources, 1U);
  EXPECT_LE(poller.stats().turns, 40U);
  poller.remove(source);
}

TEST(Poller, AMutedDescriptorIsHeardAgainWhenItChanges) {
  SteadyClock clock;
  Poller poller(Running::options(clock, Duration(0)));
  const UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE));
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  Source source;
  source.descriptor = event.get();
  poller.add(source);
  while (poller.stats().muted_sources == 0) poller.run_or_sleep();
  source.on_poll = [&]() -> std::size_t {
    std::uint64_t n = 0;
    while (::read(event.get(), &n, sizeof(n)) > 0) {
    }
    source.on_poll = nullptr;
    return 1;
  };
  poller.run_or_sleep();
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  const int before = source.polls;
  while (source.polls < before + 2) poller.run_or_sleep();
  poller.remove(source);
}

// ---- Foreign loops

TEST(Poller, LivesInAForeignEpollLoop) {
  SteadyClock clock;
  Poller poller(Running::options(clock, Duration(0)));
  const UniqueFd foreign(::epoll_create1(0));
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(foreign.get(), EPOLL_CTL_ADD, poller.event_fd(), &event), 0);

  // A source that is an epoll itself, with many descriptors, as a fabric over sockets is.
  const UniqueFd nested(::epoll_create1(0));
  std::vector<UniqueFd> events;
  for (int i = 0; i < 200; ++i) {
    events.emplace_back(::eventfd(0, EFD_NONBLOCK));
    event.data.u32 = static_cast<std::uint32_t>(i);
    ASSERT_EQ(::epoll_ctl(nested.get(), EPOLL_CTL_ADD, events.back().get(), &event), 0);
  }
  int seen = 0;
  Source source;
  source.descriptor = nested.get();
  source.on_poll = [&]() -> std::size_t {
    epoll_event got[16];
    const int n = ::epoll_wait(nested.get(), got, 16, 0);
    for (int i = 0; i < n; ++i) {
      std::uint64_t value = 0;
      EXPECT_GT(::read(events[got[i].data.u32].get(), &value, sizeof(value)), 0);
      ++seen;
    }
    return static_cast<std::size_t>(n);
  };
  source.on_arm = [&] {
    pollfd ready{nested.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 0;
  };
  poller.add(source);

  const auto loop_until = [&](const auto& done) {
    int rounds = 0;
    while (!done()) {
      while (poller.run_once()) {
      }
      if (done()) break;
      if (!poller.arm()) continue;
      epoll_event got{};
      ::epoll_wait(foreign.get(), &got, 1, -1);
      ++rounds;
    }
    return rounds;
  };

  Counted work;
  std::thread other([&] { poller.post(work); });
  EXPECT_LE(loop_until([&] { return work.ran == 1; }), 3);
  other.join();

  const std::uint64_t one = 1;
  for (const UniqueFd& fd : events) ASSERT_GT(::write(fd.get(), &one, sizeof(one)), 0);
  EXPECT_LE(loop_until([&] { return seen == 200; }), 3);

  bool fired = false;
  Timer timer;
  timer.arm(
      poller, clock.now() + 2ms, [](void* context) { *static_cast<bool*>(context) = true; },
      &fired);
  EXPECT_LE(loop_until([&] { return fired; }), 5);
  poller.remove(source);
}

TEST(Poller, RunsWhatIsLeftWhenItIsDestroyed) {
  int ran = 0;
  Call posted([&] { ++ran; });
  Call deferred([&] { ++ran; });
  {
    Rig rig;
    rig.poller.post(posted);
    rig.poller.defer(deferred);
  }
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace pawl
