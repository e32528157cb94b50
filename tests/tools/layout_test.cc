// SPDX-License-Identifier: Apache-2.0
// The table of `pawl demo` for terminals of every width.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "tools/demo_layout.h"
#include "tools/demo_text.h"

namespace pawl::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Its numbers are as long as they get.
Row long_row() {
  Row row;
  row.guard = Guard::disconnect;
  for (std::uint64_t Row::*count :
       {&Row::calls, &Row::timed_out, &Row::late_reads, &Row::late_reads_reused,
        &Row::stale_refused, &Row::connections_lost}) {
    row.*count = 999'949'999'999;
  }
  row.wrong_bytes = row.good_bytes = 999'940'000'000;
  row.seconds = 1;
  row.p50_ns = row.p99_ns = row.p999_ns = 999'999'999;
  return row;
}

std::vector<std::string> lines_of(const Layout& layout, const Row& row) {
  std::istringstream text(layout.header() + layout.line(row, false) + "\n" +
                          layout.line(Guard::disconnect) + "\n");
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(DemoLayout, NoLineIsLongerThanTheTerminal) {
  for (std::size_t columns = kLiveColumnsMin; columns < 160; ++columns) {
    std::vector<Layout> tables = Layout::rest_for_terminal(columns);
    tables.push_back(Layout::for_terminal(columns));
    for (const Layout& layout : tables) {
      EXPECT_LE(layout.width(), columns);
      const std::vector<std::string> lines = lines_of(layout, long_row());
      EXPECT_EQ(lines.size(), Layout::kHeaderLines + 2);
      for (const std::string& line : lines) EXPECT_LE(line.size(), layout.width()) << line;
    }
  }
}

TEST(DemoLayout, ANarrowTerminalShowsWhatMattersAndTheRestAtTheEnd) {
  for (const std::size_t columns : {kLiveColumnsMin, std::size_t{80}, std::size_t{111}}) {
    const std::string live = Layout::for_terminal(columns).header();
    for (const char* title : {"guard", "calls", "reused", "stale", "wrong", "lost"}) {
      EXPECT_THAT(live, HasSubstr(title)) << columns;
    }
    std::string rest;
    for (const Layout& layout : Layout::rest_for_terminal(columns)) rest += layout.header();
    for (const char* title : {"goodput", "timed", "executed", "p50", "p99", "p99.9"}) {
      EXPECT_THAT(live + rest, HasSubstr(title)) << columns;
    }
    EXPECT_THAT(rest, Not(HasSubstr("wrong"))) << columns;
  }
  EXPECT_THAT(Layout::for_terminal(80).header(), HasSubstr("goodput"));
}

TEST(DemoLayout, AWideTerminalShowsAllAndNothingIsLeft) {
  const std::size_t width = Layout::whole().width();
  EXPECT_EQ(Layout::for_terminal(width).header(), Layout::whole().header());
  EXPECT_TRUE(Layout::rest_for_terminal(width).empty());
  EXPECT_LT(Layout::for_terminal(width - 1).width(), width);
}

TEST(DemoLayout, ColourIsOfWrongBytesAloneAndTakesNoRoom) {
  Row row = long_row();
  EXPECT_THAT(Layout::whole().line(row, true), HasSubstr("\x1b[31;1m   1000 GB\x1b[0m"));
  row.wrong_bytes = 0;
  EXPECT_THAT(Layout::whole().line(row, true), HasSubstr("\x1b[32m         0\x1b[0m"));
  EXPECT_THAT(Layout::whole().line(row, false), Not(HasSubstr("\x1b")));
}

TEST(DemoText, CountsAreShortenedOnlyWhereTheyDoNotFit) {
  EXPECT_EQ(count_text(0, 7), "0");
  EXPECT_EQ(count_text(999'999, 7), "999,999");
  EXPECT_EQ(count_text(1'000'000, 7), "1.0 M");
  EXPECT_EQ(count_text(1'000'000, 9), "1,000,000");
  EXPECT_EQ(count_text(12'345'678, 7), "12.3 M");
}

TEST(DemoText, LinesAreBrokenBetweenWords) {
  EXPECT_EQ(wrapped("one two three\nfour\n\n", 8), "one two\nthree\nfour\n\n");
  EXPECT_EQ(wrapped("one two\n", 7), "one two\n");
  EXPECT_EQ(wrapped("a /path/that/is/long b\n", 6), "a\n/path/that/is/long\nb\n");
  EXPECT_EQ(wrapped("one two three\n", 0), "one two three\n");
}

}  // namespace
}  // namespace pawl::tools
