// SPDX-License-Identifier: Apache-2.0
#include "demo_table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "json.h"

namespace pawl::tools {

namespace {

constexpr std::uint64_t kReusedReadsMin = 100;  // fewer prove nothing
constexpr std::size_t kHeaderLines = 3;
struct Column {
  int width;
  std::array<std::string_view, kHeaderLines> title;
};
constexpr std::array<Column, 12> kColumns = {{
    {10, {"", "", "guard"}},
    {11, {"", "", "calls"}},
    {8, {"", "timed", "out"}},
    {9, {"late", "READs", "executed"}},
    {9, {"of a", "reused", "buffer"}},
    {9, {"", "stale,", "refused"}},
    {10, {"wrong", "bytes", "accepted"}},
    {8, {"connec-", "tions", "lost"}},
    {11, {"", "", "goodput"}},
    {9, {"", "", "p50"}},
    {9, {"", "", "p99"}},
    {9, {"", "", "p99.9"}},
}};
constexpr int kGuard = 0;
constexpr int kWrong = 6;

constexpr int table_width() {
  int width = 0;
  for (const Column& column : kColumns) width += column.width;
  return width;
}

/// The first is on the left of its column, the others on the right.
std::string cell(std::size_t column, std::string_view text) {
  const int width = kColumns[column].width;
  return column == kGuard ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

std::string header() {
  std::string text;
  for (std::size_t i = 0; i < kHeaderLines; ++i) {
    for (std::size_t c = 0; c < kColumns.size(); ++c) text += cell(c, kColumns[c].title[i]);
    text += '\n';
  }
  return text;
}

/// 1234567 -> "1,234,567"
std::string grouped(std::uint64_t n) {
  std::string text = fmt::to_string(n);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string scaled(double value, double base, const std::array<const char*, 4>& units) {
  std::size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100 ? 0 : 1;
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}
std::string bytes_text(double bytes) { return scaled(bytes, 1000, {"B", "kB", "MB", "GB"}); }
std::string time_text(std::uint64_t ns) {
  return ns == 0 ? "-" : scaled(static_cast<double>(ns) / 1e3, 1000, {"us", "ms", "s", "ks"});
}

std::string wrong_text(std::uint64_t bytes) {
  return bytes == 0 ? "0" : bytes_text(static_cast<double>(bytes));
}

std::string names(Guard guard) { return fmt::format("`{}`", guard_name(guard)); }

/// "`none` accepted 12 MB of wrong bytes in 34 transfers"
std::string account(const Row& row) {
  std::string text = names(row.guard);
  if (row.wrong_bytes == 0) {
    text += " accepted no wrong byte";
  } else {
    text += fmt::format(" accepted {} of wrong bytes in {} transfers", wrong_text(row.wrong_bytes),
                        grouped(row.wrong_transfers));
  }
  if (row.guard == Guard::verify) {
    text +=
        fmt::format(", though {} late READs hit reused buffers", grouped(row.late_reads_reused));
  }
  if (row.connections_lost > 0) {
    text += fmt::format(" and lost {} connections", grouped(row.connections_lost));
  }
  return text;
}

}  // namespace

Table::Table(std::vector<Guard> guards) : guards_(std::move(guards)) {
  winsize size{};
  live_ = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
          size.ws_col >= table_width();
  colour_ = live_ && std::getenv("NO_COLOR") == nullptr;
  fmt::print("{}", header());
  if (live_) redraw();
  std::fflush(stdout);
}

std::string Table::line(std::size_t i) const {
  if (i >= rows_.size()) return cell(kGuard, guard_name(guards_[i])) + cell(1, "-");
  const Row& row = rows_[i];
  const std::array<std::string, kColumns.size()> texts = {
      std::string(guard_name(row.guard)),
      grouped(row.calls),
      grouped(row.timed_out),
      grouped(row.late_reads),
      grouped(row.late_reads_reused),
      grouped(row.stale_refused),
      wrong_text(row.wrong_bytes),
      grouped(row.connections_lost),
      bytes_text(row.goodput_bytes_per_s()) + "/s",
      time_text(row.p50_ns),
      time_text(row.p99_ns),
      time_text(row.p999_ns)};
  std::string text;
  for (std::size_t c = 0; c < texts.size(); ++c) {
    const std::string one = cell(c, texts[c]);
    if (c == kWrong && colour_ && row.calls > 0) {
      text += fmt::format("\x1b[{}m{}\x1b[0m", row.wrong_bytes > 0 ? "31;1" : "32", one);
    } else {
      text += one;
    }
  }
  return text;
}

void Table::redraw() {
  if (drawn_) fmt::print("\x1b[{}A", guards_.size());
  for (std::size_t i = 0; i < guards_.size(); ++i) fmt::print("\r\x1b[2K{}\n", line(i));
  drawn_ = true;
  std::fflush(stdout);
}

void Table::show(const Row& row) {
  if (rows_.empty() || rows_.back().guard != row.guard) rows_.emplace_back();
  rows_.back() = row;
  if (live_) redraw();
}

void Table::complete(const Row& row) {
  show(row);
  if (live_) return;
  fmt::print("{}\n", line(rows_.size() - 1));
  std::fflush(stdout);
}

Verdict judge(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.guard == Guard::verify && row.wrong_bytes > 0) {
      return {false, fmt::format("FAILED: {} accepted {} wrong bytes in {} transfers: its promise "
                                 "is broken.",
                                 names(row.guard), grouped(row.wrong_bytes),
                                 grouped(row.wrong_transfers))};
    }
  }
  for (const Row& row : rows) {
    if (row.guard == Guard::verify && row.late_reads_reused < kReusedReadsMin) {
      return {false,
              fmt::format("FAILED: the run proved nothing: {} late READs hit reused buffers "
                          "under {} (at least {} are needed); give it more --seconds.",
                          grouped(row.late_reads_reused), names(row.guard), kReusedReadsMin)};
    }
    if (row.guard != Guard::none) continue;
    if (row.late_reads_reused < kReusedReadsMin || row.wrong_bytes == 0) {
      return {false, fmt::format("FAILED: the run proved nothing: without a guard {} late READs "
                                 "hit reused buffers (at least {} are needed) and {} wrong bytes "
                                 "were accepted (at least 1); give it more --seconds.",
                                 grouped(row.late_reads_reused), kReusedReadsMin,
                                 grouped(row.wrong_bytes))};
    }
  }
  std::string sentence = "passed: ";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sentence += (i == 0 ? "" : "; ") + account(rows[i]);
  }
  return {true, sentence + "."};
}

std::string to_json(const std::vector<Row>& rows, const Verdict& verdict, std::uint64_t seed) {
  JsonObject all;
  all.add("seed", seed).add("passed", verdict.passed).add("sentence", verdict.sentence);
  std::vector<std::string> list;
  for (const Row& row : rows) {
    JsonObject one;
    one.add("guard", guard_name(row.guard)).add("fabric", row.fabric);
    one.add("calls", row.calls).add("ok", row.ok).add("timed_out", row.timed_out);
    one.add("failed", row.failed).add("late_reads", row.late_reads);
    one.add("late_reads_reused", row.late_reads_reused).add("stale_refused", row.stale_refused);
    one.add("wrong_bytes", row.wrong_bytes).add("wrong_transfers", row.wrong_transfers);
    one.add("connections_lost", row.connections_lost);
    one.add("goodput_bytes_per_s", row.goodput_bytes_per_s());
    one.add("p50_us", static_cast<double>(row.p50_ns) / 1e3);
    one.add("p99_us", static_cast<double>(row.p99_ns) / 1e3);
    one.add("p999_us", static_cast<double>(row.p999_ns) / 1e3);
    one.add("seconds", row.seconds);
    list.push_back(one.text());
  }
  all.add_list("rows", list);
  return all.text() + "\n";
}

}  // namespace pawl::tools
