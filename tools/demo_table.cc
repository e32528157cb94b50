// SPDX-License-Identifier: Apache-2.0
#include "demo_table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace pawl::tools {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[2K";

/// `text`, which ends with a line end, with `before` at the start of each line.
void print_lines(std::string_view text, std::string_view before) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n') + 1;
    fmt::print("{}{}", before, text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

std::size_t terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

Table::Table(std::vector<Guard> guards)
    : guards_(std::move(guards)), live_(terminal_columns() >= kLiveColumnsMin) {
  colour_ = live_ && std::getenv("NO_COLOR") == nullptr;
  if (live_) {
    redraw();
  } else {
    fmt::print("{}", Layout::whole().header());
    std::fflush(stdout);
  }
}

void Table::print_rows(const Layout& layout, std::string_view before) const {
  print_lines(layout.header(), before);
  for (std::size_t i = 0; i < guards_.size(); ++i) {
    const std::string line =
        i < rows_.size() ? layout.line(rows_[i], colour_) : layout.line(guards_[i]);
    print_lines(line + "\n", before);
  }
}

/// The terminal may have another size by now.
void Table::redraw() {
  if (drawn_) fmt::print("\x1b[{}A", Layout::kHeaderLines + guards_.size());
  print_rows(Layout::for_terminal(terminal_columns()), kClearLine);
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
  fmt::print("{}\n", Layout::whole().line(row, colour_));
  std::fflush(stdout);
}

void Table::end() const {
  if (!live_) return;
  for (const Layout& layout : Layout::rest_for_terminal(terminal_columns())) {
    fmt::print("\n");
    print_rows(layout, "");
  }
}

}  // namespace pawl::tools
