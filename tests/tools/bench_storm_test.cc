// SPDX-License-Identifier: Apache-2.0
// The parts of `pawl bench storm`: which READs are held, what is made of a sample, and the verdict.
#include "tools/bench_storm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/bench.h"
#include "tools/bench_row.h"
#include "tools/bench_table.h"
#include "tools/bench_verdict.h"

namespace pawl::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A storm's row with one sample of 100 calls, `held` percent of them held.
BenchRow row_of(Guard guard, std::uint32_t held, std::uint64_t good) {
  BenchRow row;
  row.system = "pawl";
  row.settings.shape = Shape::download;
  row.settings.size = 10;
  row.settings.guard = guard;
  row.settings.held_percent = held;
  SampleResult& sample = row.samples.emplace_back();
  sample.calls = 100;
  sample.times.add(120us);
  sample.storm.calm.add(100us);
  sample.storm.held = held;
  sample.storm.offered_bytes = (100 - held) * 10;
  sample.storm.good_bytes = good * 10;
  sample.storm.timed_out = held;
  return row;
}

TEST(BenchStormHold, ReadsOfTheCallThatLandsThereAndOfNoOther) {
  std::array<std::byte, 300> memory{};
  const auto landing = [&](std::size_t at) { return std::span(memory).subspan(at, 100); };
  HoldBook book;
  book.set(landing(0), 3ms);
  book.set(landing(100), Duration{0});
  const auto hold_at = [&](std::size_t at) {
    fabric::LocalSegment segment;
    segment.address = &memory[at];
    fabric::WorkRequest read;
    read.local = std::span(&segment, 1);
    const fabric::RandomDelay hold = book.hold_of(read);
    EXPECT_EQ(hold.min, hold.max);
    return hold.probability == 1 ? hold.min : Duration{0};
  };
  EXPECT_EQ(hold_at(0), 3ms);
  EXPECT_EQ(hold_at(99), 3ms) << "all READs of the call";
  EXPECT_EQ(hold_at(100), Duration{0});
  EXPECT_EQ(hold_at(250), Duration{0}) << "nothing was said of it";
  book.set(landing(0), Duration{0});  // the next call
  EXPECT_EQ(hold_at(50), Duration{0});
  EXPECT_EQ(book.hold_of({}).probability, 0);
}

TEST(BenchStormHold, UntilTheUseOfTheBufferIsOver) {
  const HoldRange download = hold_range(Shape::download, 8ms);
  EXPECT_EQ(download.min, 8ms / kLendParts);
  EXPECT_GT(download.max, 8ms);
  const HoldRange upload = hold_range(Shape::upload, 8ms);
  EXPECT_EQ(upload.min, 8ms);
  EXPECT_GT(upload.max, 8ms);
}

TEST(BenchStormRow, GoodputIsOfWhatWasOfferedToCallsThatWereNotHeld) {
  const BenchRow row = row_of(Guard::verify, 20, 60);
  EXPECT_EQ(figure_of(row.samples[0], Figure::goodput_ratio), 0.75);
  EXPECT_NEAR(figure_of(row.samples[0], Figure::p99_to_calm), 1.2, 0.05);
  EXPECT_EQ(figure_of(SampleResult(), Figure::goodput_ratio), 0);
  EXPECT_EQ(figure_of(SampleResult(), Figure::p99_to_calm), 0);
  const std::string json = json_of(row);
  for (const char* part :
       {"\"guard\": \"verify\"", "\"held_percent\": 20", "\"goodput_ratio\": 0.750",
        "\"timed_out\": 20", "\"held_calls\": 20", "\"late_reads\": 0"}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

TEST(BenchStormRow, AGuardThatIsMissingIsNamed) {
  BenchRow row = row_of(Guard::window, 5, 0);
  row.samples.clear();
  row.missing = "no windows here";
  EXPECT_THAT(json_of(row), HasSubstr("\"guard\": \"window\", \"held_percent\": 5, \"missing\""));
  EXPECT_THAT(line_of(storm_columns(), row), HasSubstr("no windows here\n"));
}

TEST(BenchStormRow, WrongBytesAreShownByTheBaselinesOnly) {
  EXPECT_TRUE(row_of(Guard::none, 5, 0).shows_wrong_bytes());
  EXPECT_FALSE(row_of(Guard::verify, 5, 0).shows_wrong_bytes());
  EXPECT_FALSE(row_of(Guard::none, 0, 0).shows_wrong_bytes()) << "no storm";
}

TEST(BenchVerdict, TargetsAreMetOrMissed) {
  std::vector<BenchRow> rows{row_of(Guard::none, 5, 0), row_of(Guard::verify, 5, 95),
                             row_of(Guard::window, 1, 10), row_of(Guard::window, 5, 70)};
  rows[2].samples[0].counts.connections_lost = 2;
  std::vector<std::string> sentences;
  for (const StormTarget& target : storm_targets(rows)) sentences.push_back(sentence_of(target));
  EXPECT_THAT(
      sentences,
      ElementsAre("verify, download, 5 % held: goodput_ratio is 1 (at least 0.95): met",
                  "verify, download, 5 % held: p99_to_calm is 1.2 (at most 1.5): met",
                  "verify, download, 5 % held: connections_lost is 0 (at most 0): met",
                  "window, download, 1 % held: connections_lost is 2 (at most 0): missed",
                  "window, download, 5 % held: goodput_ratio is 0.737 (at least 0.8): missed",
                  "window, download, 5 % held: connections_lost is 0 (at most 0): met"));
  EXPECT_THAT(json_of(storm_targets(rows)[4]), HasSubstr("\"at_least\": 0.800, \"met\": false"));
}

TEST(BenchVerdict, WithoutAWrongByteTheRunProvedNothing) {
  std::vector<BenchRow> rows{row_of(Guard::none, 5, 0), row_of(Guard::verify, 5, 0)};
  ASSERT_EQ(proved_nothing(rows).size(), 1u);
  EXPECT_THAT(proved_nothing(rows)[0], HasSubstr("none, download, 5 % held: the run proved"));
  rows[0].samples[0].wrong_bytes = 1;
  EXPECT_THAT(proved_nothing(rows), IsEmpty());
}

TEST(BenchStormOptions, PercentagesAndDirections) {
  EXPECT_THAT(*helds_from("1,5,20"), ElementsAre(1u, 5u, 20u));
  for (const char* words : {"", "0", "91", "100", "5%", "1K", "-1", "0.5", "5,5", "1,,2"}) {
    EXPECT_EQ(helds_from(words).status().code(), Code::invalid_argument) << words;
  }
  EXPECT_THAT(*directions_from("upload,download"), ElementsAre(Shape::upload, Shape::download));
  EXPECT_THAT(directions_from("call").status().what(), HasSubstr("download or upload"));
}

}  // namespace
}  // namespace pawl::tools
