// SPDX-License-Identifier: Apache-2.0
// Spin, then sleep: how long an idle poller looks for work before it asks the kernel to wake it.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "pawl/poller.h"
#include "pawl/time.h"

namespace pawl {
namespace {

constexpr Duration kSpin = 100us;
constexpr Duration kStep = 10us;  // how long a turn takes

/// Each poll takes kStep of the clock's time. Going to sleep makes the descriptor readable, so that
/// the sleep ends at once.
class IdleSource final : public PollSource {
 public:
  explicit IdleSource(ManualClock& clock) : clock_(clock), fd_(::eventfd(0, EFD_NONBLOCK)) {}

  std::size_t poll(TimePoint) override {
    clock_.advance(kStep);
    ++polls;
    std::uint64_t count = 0;
    if (::read(fd_.get(), &count, sizeof count) > 0) {
      if (--sleeps_left == 0) poller->stop();
      return 1;
    }
    return polls == busy_poll ? 1 : 0;
  }
  bool arm() override {
    polls_at_sleep.push_back(polls);
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(fd_.get(), &one, sizeof one), ssize_t{sizeof one});
    return true;
  }
  [[nodiscard]] int fd() const override { return fd_.get(); }

  Poller* poller = nullptr;
  int sleeps_left = 1;  // then the poller is stopped
  int polls = 0;
  int busy_poll = 0;  // the poll that finds something
  std::vector<int> polls_at_sleep;

 private:
  ManualClock& clock_;
  const UniqueFd fd_;
};

class PollerIdle : public ::testing::Test {
 protected:
  /// Runs until the source has ended as many sleeps as it wants; gives the polls before each.
  std::vector<int> run(Duration spin) {
    PollerOptions options;
    options.clock = &clock_;
    options.spin = spin;
    Poller poller(options);
    source_.poller = &poller;
    poller.add(source_);
    poller.run();
    poller.remove(source_);
    sleeps_ = poller.stats().sleeps;
    return source_.polls_at_sleep;
  }

  ManualClock clock_;
  IdleSource source_{clock_};
  std::uint64_t sleeps_ = 0;
};

TEST_F(PollerIdle, NothingSleepsWithinTheSpinTimeAndItSleepsAfterwards) {
  // The first idle turn begins at 0; the one that begins at kSpin is the last of the spin.
  EXPECT_EQ(run(kSpin), (std::vector<int>{1 + static_cast<int>(kSpin / kStep)}));
  EXPECT_EQ(sleeps_, 1u);
}

TEST_F(PollerIdle, WorkBeginsTheSpinTimeAnew) {
  source_.busy_poll = 6;
  EXPECT_EQ(run(kSpin), (std::vector<int>{6 + 1 + static_cast<int>(kSpin / kStep)}));
  EXPECT_EQ(sleeps_, 1u);
}

TEST_F(PollerIdle, EachSleepIsSpunForAnew) {
  source_.sleeps_left = 3;
  const int each = 1 + static_cast<int>(kSpin / kStep);  // and one that finds what woke it
  EXPECT_EQ(run(kSpin), (std::vector<int>{each, 2 * each + 1, 3 * each + 2}));
  EXPECT_EQ(sleeps_, 3u);
}

TEST_F(PollerIdle, WithoutASpinTimeTheFirstIdleTurnIsFollowedBySleep) {
  EXPECT_EQ(run(Duration(0)), (std::vector<int>{1}));
  EXPECT_EQ(sleeps_, 1u);
}

}  // namespace
}  // namespace pawl
