// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "demo_row.h"
#include "pawl/guard.h"

namespace pawl::tools {

/// Which columns of the table are shown, and their lines.
class Layout {
 public:
  static constexpr std::size_t kHeaderLines = 3;

  /// All columns.
  static Layout whole();
  /// All columns where they fit in `columns` characters, else what matters most of them: guard,
  /// calls, reused buffers, stale, wrong bytes, connections lost, goodput, as many as fit.
  static Layout for_terminal(std::size_t columns);
  /// What `for_terminal` leaves out, beside the guard, in as many tables as it takes.
  static std::vector<Layout> rest_for_terminal(std::size_t columns);

  /// In characters; no line is longer.
  [[nodiscard]] std::size_t width() const;
  /// kHeaderLines lines, each with a line end.
  [[nodiscard]] std::string header() const;
  /// Without a line end. With `colour` the wrong bytes are red or green.
  [[nodiscard]] std::string line(const Row& row, bool colour) const;
  /// Of a guard whose row has not begun.
  [[nodiscard]] std::string line(Guard guard) const;

 private:
  explicit Layout(std::vector<std::size_t> columns) : columns_(std::move(columns)) {}

  std::vector<std::size_t> columns_;  // indices, from left to right
};

/// The least width of a terminal for a live table: all up to the connections lost fits.
inline constexpr std::size_t kLiveColumnsMin = 60;

}  // namespace pawl::tools
