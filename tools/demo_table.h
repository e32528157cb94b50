// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "demo_layout.h"
#include "demo_row.h"

namespace pawl::tools {

/// Characters of a line of the terminal on stdout; 0 if there is none, or it does not say.
std::size_t terminal_columns();

/// The table on stdout. On a terminal of kLiveColumnsMin characters and more all rows are drawn
/// again in place, with the columns that fit, and `end` shows the others; else each row is printed
/// once, whole, when it is complete. With NO_COLOR nothing is coloured.
class Table {
 public:
  explicit Table(std::vector<Guard> guards);

  /// The row of this guard so far.
  void show(const Row& row);
  void complete(const Row& row);
  /// After the last row.
  void end() const;

 private:
  void redraw();
  void print_rows(const Layout& layout, std::string_view before) const;

  const std::vector<Guard> guards_;
  std::vector<Row> rows_;  // those that began
  bool live_ = false;
  bool colour_ = false;
  bool drawn_ = false;
};

}  // namespace pawl::tools
