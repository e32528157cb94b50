// SPDX-License-Identifier: Apache-2.0
// Whom the log blames for a long turn: what ran, or that the thread did not.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <functional>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "pawl/log.h"
#include "pawl/poller.h"
#include "support/log_lines.h"

namespace pawl {
namespace {

/// Time passes with the thread on its core, or without one.
class CoreClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint{1'000'000'000} + passed_; }
  [[nodiscard]] Duration thread_ran() const override {
    ++reads;
    return ran_;
  }
  void run(Duration d) { passed_ += d, ran_ += d; }
  void wait(Duration d) { passed_ += d; }

  mutable int reads = 0;  ///< of thread_ran

 private:
  Duration passed_{0}, ran_{0};
};

class Engine final : public PollSource {
 public:
  std::size_t poll(TimePoint) override {
    if (!turn) return 0;
    std::exchange(turn, nullptr)();
    return 1;
  }
  [[nodiscard]] const char* name() const override { return "rpc engine"; }
  std::function<void()> turn;
};

struct Handler : Work {
  Handler() : Work(&Handler::go, "demo.Blocks/Get") {}
  static void go(Work* work) { static_cast<Handler*>(work)->body(); }
  std::function<void()> body;
};

class LongTurn : public ::testing::Test {
 protected:
  LongTurn() { poller_.add(engine_); }
  ~LongTurn() override { poller_.remove(engine_); }
  PollerOptions options() {
    PollerOptions options;
    options.clock = &clock_;
    options.log = &logger_;
    return options;
  }
  void engine(std::function<void()> turn) {
    engine_.turn = std::move(turn);
    poller_.run_once();
  }
  void handler(std::function<void()> body) {
    handler_.body = std::move(body);
    poller_.defer(handler_);
    poller_.run_once();
  }
  void expect_line(std::size_t index, const std::string& text) {
    ASSERT_EQ(lines_.lines.size(), index + 1);
    EXPECT_NE(lines_.lines[index].find(text), std::string::npos) << lines_.lines[index];
  }

  CoreClock clock_;
  testing::LogLines lines_;
  Logger logger_{clock_, lines_};
  Engine engine_;
  Handler handler_;
  Poller poller_{options()};
};

TEST_F(LongTurn, OfAThreadWithoutACoreBlamesNoCodeAndIsToldOnce) {
  const auto preempted = [this] { clock_.run(1ms), clock_.wait(10ms); };
  engine(preempted);
  expect_line(0,
              "a poller's turn took 11 ms, of which its thread had no core for 10 ms (told once): "
              "peers wait meanwhile; the machine has more to run than cores");
  EXPECT_EQ(lines_.count("rpc engine") + lines_.count("Workers"), 0u);
  engine(preempted);
  EXPECT_EQ(lines_.lines.size(), 1u);
  EXPECT_EQ(poller_.stats().long_turns, 2u) << "both are counted";
  engine([this] { clock_.run(11ms); });
  expect_line(1, "11 ms, of which 11 ms in rpc engine");  // its own fault is told all the same
}

TEST_F(LongTurn, OfTheLibraryAdvisesNoWorkers) {
  engine([this] { clock_.run(8ms); });
  expect_line(0, "8 ms, of which 8 ms in rpc engine (told once for each): peers wait meanwhile");
  EXPECT_EQ(lines_.count("Workers"), 0u);
}

TEST_F(LongTurn, OfAHandlerThatComputesAdvisesWorkers) {
  handler([this] { clock_.run(8ms); });
  expect_line(0,
              "8 ms, of which 8 ms in demo.Blocks/Get (told once for each): peers wait meanwhile; "
              "a handler or callback of the program's own that computes or blocks belongs on "
              "Workers");
}

TEST_F(LongTurn, OfAHandlerThatDoesNotRunSaysSo) {
  handler([this] { clock_.run(1ms), clock_.wait(7ms); });
  expect_line(0, "; its thread did not run for 7 ms: it blocked or had no core; a handler");
}

// The same time without a core may lie before the turn: then the turn is what it is.
TEST_F(LongTurn, OwesNothingToASleepBeforeIt) {
  engine([this] { clock_.run(1ms); });
  ASSERT_TRUE(poller_.arm());
  clock_.wait(1h);
  engine([this] { clock_.run(8ms); });
  expect_line(0, "8 ms, of which 8 ms in rpc engine");
}

TEST_F(LongTurn, IsJudgedWithoutASystemCallInEveryTurn) {
  for (int i = 0; i < 1000; ++i) engine([this] { clock_.run(10us); });  // 10 ms in all
  EXPECT_LE(clock_.reads, 6);
  EXPECT_GE(clock_.reads, 3);
  EXPECT_TRUE(lines_.lines.empty());
}

/// Its descriptor is always readable: no sleep lasts.
class Restless final : public PollSource {
 public:
  std::size_t poll(TimePoint) override { return ++polls % 2 == 0 ? 1 : 0; }
  [[nodiscard]] int fd() const override { return fd_.get(); }
  int polls = 0;

 private:
  UniqueFd fd_{::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST_F(LongTurn, IsJudgedWithoutASystemCallAfterEverySleep) {
  Restless restless;
  poller_.add(restless);
  for (int i = 0; i < 1000; ++i) poller_.run_or_sleep();
  poller_.remove(restless);
  EXPECT_EQ(poller_.stats().sleeps, 500u);
  EXPECT_EQ(clock_.reads, 1);
}

TEST(ThreadClock, TellsWhatTheThreadRan) {
  const SteadyClock clock;
  const Duration before = clock.thread_ran();
  for (int i = 0; i < 1'000'000 && clock.thread_ran() == before; ++i) {
  }
  EXPECT_GT(clock.thread_ran(), before);
  const ManualClock manual;
  EXPECT_EQ(manual.thread_ran(), Duration(manual.now().ns));
}

}  // namespace
}  // namespace pawl
