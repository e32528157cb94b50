// SPDX-License-Identifier: Apache-2.0
#include "demo_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "demo_text.h"

namespace pawl::tools {

namespace {

struct Column {
  std::size_t width;
  std::array<std::string_view, Layout::kHeaderLines> title;
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
constexpr std::size_t kGuard = 0;
constexpr std::size_t kWrong = 6;
constexpr std::size_t kLost = 7;

// What the demo is about comes first, where there is no room for all.
constexpr std::array<std::size_t, 12> kByWeight = {kGuard, 1, 4, 5, kWrong, kLost,
                                                   8,      2, 3, 9, 10,     11};
constexpr std::size_t kNarrowColumns = 7;

constexpr std::size_t width_of(std::span<const std::size_t> columns) {
  std::size_t width = 0;
  for (const std::size_t column : columns) width += kColumns[column].width;
  return width;
}
static_assert(width_of(std::span(kByWeight).first(kNarrowColumns - 1)) <= kLiveColumnsMin,
              "the connections lost are the last that the narrowest terminal shows");

/// How many of these fit in so many characters, from the left.
std::size_t fitting(std::span<const std::size_t> columns, std::size_t width) {
  std::size_t count = columns.size();
  while (count > 1 && width_of(columns.first(count)) > width) --count;
  return count;
}

std::span<const std::size_t> narrow(std::size_t width) {
  const std::span<const std::size_t> columns = std::span(kByWeight).first(kNarrowColumns);
  return columns.first(fitting(columns, width));
}

/// The first is on the left of its column, the others on the right.
std::string cell(std::size_t column, std::string_view text) {
  const std::size_t width = kColumns[column].width;
  return column == kGuard ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

std::string text_of(const Row& row, std::size_t column) {
  const auto count = [column](std::uint64_t n) {
    return count_text(n, kColumns[column].width - 1);
  };
  switch (column) {
    case kGuard:
      return std::string(guard_name(row.guard));
    case 1:
      return count(row.calls);
    case 2:
      return count(row.timed_out);
    case 3:
      return count(row.late_reads);
    case 4:
      return count(row.late_reads_reused);
    case 5:
      return count(row.stale_refused);
    case kWrong:
      return row.wrong_bytes == 0 ? "0" : bytes_text(static_cast<double>(row.wrong_bytes));
    case 7:
      return count(row.connections_lost);
    case 8:
      return bytes_text(row.goodput_bytes_per_s()) + "/s";
    case 9:
      return time_text(row.p50_ns);
    case 10:
      return time_text(row.p99_ns);
    default:
      return time_text(row.p999_ns);
  }
}

}  // namespace

Layout Layout::whole() {
  std::vector<std::size_t> all(kColumns.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return Layout(std::move(all));
}

Layout Layout::for_terminal(std::size_t columns) {
  if (width_of(kByWeight) <= columns) return whole();
  const std::span<const std::size_t> shown = narrow(columns);
  return Layout({shown.begin(), shown.end()});
}

std::vector<Layout> Layout::rest_for_terminal(std::size_t columns) {
  std::vector<Layout> tables;
  if (width_of(kByWeight) <= columns) return tables;
  std::span<const std::size_t> left = std::span(kByWeight).subspan(narrow(columns).size());
  while (!left.empty()) {
    const std::size_t room = columns - std::min(columns, kColumns[kGuard].width);
    const std::span<const std::size_t> next = left.first(fitting(left, room));
    std::vector<std::size_t> shown{kGuard};
    shown.insert(shown.end(), next.begin(), next.end());
    tables.push_back(Layout(std::move(shown)));
    left = left.subspan(next.size());
  }
  return tables;
}

std::size_t Layout::width() const { return width_of(columns_); }

std::string Layout::header() const {
  std::string text;
  for (std::size_t i = 0; i < kHeaderLines; ++i) {
    for (const std::size_t c : columns_) text += cell(c, kColumns[c].title[i]);
    text += '\n';
  }
  return text;
}

std::string Layout::line(const Row& row, bool colour) const {
  std::string text;
  for (const std::size_t c : columns_) {
    const std::string one = cell(c, text_of(row, c));
    if (c == kWrong && colour && row.calls > 0) {
      text += fmt::format("\x1b[{}m{}\x1b[0m", row.wrong_bytes > 0 ? "31;1" : "32", one);
    } else {
      text += one;
    }
  }
  return text;
}

std::string Layout::line(Guard guard) const {
  std::string text = cell(kGuard, guard_name(guard));
  return columns_.size() > 1 ? text + cell(columns_[1], "-") : text;
}

}  // namespace pawl::tools
