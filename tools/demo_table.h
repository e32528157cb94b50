// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "demo_row.h"

namespace pawl::tools {

/// The table on stdout. On a terminal that is wide enough all rows are drawn again in place; else
/// each row is printed once, when it is complete. With NO_COLOR nothing is coloured.
class Table {
 public:
  explicit Table(std::vector<Guard> guards);

  /// The row of this guard so far.
  void show(const Row& row);
  void complete(const Row& row);

 private:
  [[nodiscard]] std::string line(std::size_t i) const;
  void redraw();

  const std::vector<Guard> guards_;
  std::vector<Row> rows_;  // those that began
  bool live_ = false;
  bool colour_ = false;
  bool drawn_ = false;
};

/// Whether the run shows what it is to show, and that in one sentence.
struct Verdict {
  bool passed = false;
  std::string sentence;
};
Verdict judge(const std::vector<Row>& rows);

/// {"seed": …, "passed": …, "sentence": …, "rows": [{"guard": …, …}, …]}
std::string to_json(const std::vector<Row>& rows, const Verdict& verdict, std::uint64_t seed);

}  // namespace pawl::tools
