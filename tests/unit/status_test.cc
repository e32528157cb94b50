// SPDX-License-Identifier: Apache-2.0
// Status, Result, time, logging.
#include "pawl/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pawl/log.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_EQ(status.what(), "");
}

TEST(Status, SaysWhatFailed) {
  const Status status(Code::deadline, "no answer within 50 ms", Ran::unknown);
  EXPECT_EQ(status.to_string(), "deadline (ran: unknown): no answer within 50 ms");
  EXPECT_EQ(Status(Code::not_found, "no such file").to_string(), "not_found: no such file");
  EXPECT_EQ(Status(Code::internal, "x", Ran::no, 12).to_string(),
            "internal (ran: no, native: 12): x");
}

TEST(Status, OwnsItsDetailThroughCopiesAndMoves) {
  Status copy;
  {
    Status status = Status::with_detail(Code::connection_lost, std::string(100, 'x'), Ran::yes, 5);
    copy = status;
    Status moved = std::move(status);
    EXPECT_EQ(moved.what(), std::string(100, 'x'));
    Status& same = moved;
    moved = same;
    moved = Status(Code::stale, "a literal");
    EXPECT_EQ(moved.what(), "a literal");
  }
  EXPECT_EQ(copy.what(), std::string(100, 'x'));
  EXPECT_EQ(copy.ran(), Ran::yes);
  EXPECT_EQ(copy.native(), 5);
  const Status other = std::move(copy).with_ran(Ran::no);
  EXPECT_EQ(other.what().size(), 100U);
  EXPECT_EQ(other.with_ran(Ran::unknown).ran(), Ran::unknown);
  EXPECT_EQ(other.ran(), Ran::no);
}

TEST(Status, RetryableNeedsTheCodeAndTheHandler) {
  EXPECT_TRUE(Status(Code::unavailable, "").retryable());
  EXPECT_FALSE(Status(Code::unavailable, "", Ran::unknown).retryable());
  EXPECT_TRUE(Status(Code::unavailable, "", Ran::unknown).retryable(true));
  EXPECT_TRUE(Status(Code::data_lost, "", Ran::yes).retryable(true));
  EXPECT_FALSE(Status(Code::deadline, "").retryable(true));
  EXPECT_FALSE(Status(Code::invalid_argument, "").retryable(true));
  EXPECT_FALSE(Status().retryable(true));
}

TEST(Status, EveryCodeHasAName) {
  for (const int n :
       {0, 1, 2, 3, 4, 20, 21, 22, 40, 41, 42, 43, 44, 45, 46, 47, 60, 61, 62, 80, 81, 82}) {
    EXPECT_NE(code_name(static_cast<Code>(n)), "unknown") << n;
  }
  EXPECT_EQ(code_name(static_cast<Code>(5)), "unknown");
  EXPECT_EQ(code_name(static_cast<Code>(255)), "unknown");
  EXPECT_EQ(ran_name(Ran::yes), "yes");
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(**good, 3);
  const std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 3);
  const Result<int> bad = Status(Code::stale, "gone");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::stale);
  const Result<int> wrong = Status();
  EXPECT_EQ(wrong.status().code(), Code::internal);
}

TEST(ResultDeathTest, TheValueOfAFailedOneEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Result<int> bad = Status(Code::stale, "gone");
  EXPECT_DEATH((void)*bad, "failed Result is used: stale: gone");
}

TEST(Time, Saturates) {
  EXPECT_EQ(TimePoint{5} + Duration::max(), TimePoint::never());
  EXPECT_EQ(TimePoint{5} + 3ns, TimePoint{8});
  EXPECT_EQ(TimePoint::never() + 1s, TimePoint::never());
  EXPECT_EQ((TimePoint{INT64_MIN + 1} + Duration(-5)).ns, INT64_MIN);
  EXPECT_EQ(TimePoint{8} - TimePoint{5}, 3ns);
  const SteadyClock clock;
  const TimePoint before = clock.now();
  EXPECT_LE(before, clock.now());
}

class Lines final : public LogSink {
 public:
  void write(Severity severity, std::string_view line) noexcept override {
    lines.push_back(std::string(severity_name(severity)) + ": " + std::string(line));
  }
  std::vector<std::string> lines;
};

TEST(Logger, LimitsTheRateAndCountsWhatItLeftOut) {
  ManualClock clock;
  Lines sink;
  Logger logger(clock, sink, LoggerOptions{.lines_per_second = 2, .burst_lines = 3});
  for (int i = 0; i < 10; ++i) logger.warning("again");
  EXPECT_EQ(sink.lines.size(), 3U);
  EXPECT_EQ(logger.suppressed_lines(), 7U);
  logger.error("of another severity");
  EXPECT_EQ(sink.lines.back(), "error: of another severity");
  clock.advance(500ms);
  logger.warning("later");
  EXPECT_EQ(sink.lines.back(), "warning: (7 lines left out) later");
  logger.warning("too soon");
  EXPECT_EQ(sink.lines.size(), 5U);
  clock.advance(Duration::max() / 2);
  for (int i = 0; i < 10; ++i) logger.warning("again");
  EXPECT_EQ(sink.lines.size(), 8U);
}

TEST(Logger, LeavesOutWhatIsBelowItsLeast) {
  ManualClock clock;
  Lines sink;
  Logger logger(clock, sink);
  logger.debug("x");
  EXPECT_FALSE(logger.enabled(Severity::debug));
  EXPECT_TRUE(sink.lines.empty());
  logger.info("y");
  EXPECT_EQ(sink.lines.size(), 1U);
}

TEST(Logger, WritesToStderrByDefault) {
  ManualClock clock;
  Logger logger(clock);
  ::testing::internal::CaptureStderr();
  logger.warning("watch out");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "pawl warning: watch out\n");
}

}  // namespace
}  // namespace pawl
