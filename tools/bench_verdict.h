// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench_row.h"

namespace pawl::tools {

/// What a row of `pawl bench storm` is to reach, and whether it did.
struct StormTarget {
  const BenchRow* row;
  const char* figure;  ///< its key in the row
  double value;
  double limit;
  bool at_least;  ///< else at most
  [[nodiscard]] bool met() const { return at_least ? value >= limit : value <= limit; }
};

/// Of the rows that have figures; they outlive what this gives.
std::vector<StormTarget> storm_targets(const std::vector<BenchRow>& rows);
/// "verify, download, 5 % held: goodput_ratio is 0.998 (at least 0.95): met"
std::string sentence_of(const StormTarget& target);
std::string json_of(const StormTarget& target);

/// Of each row without a guard that accepted no wrong byte: nothing was seen that a guard keeps
/// away.
std::vector<std::string> proved_nothing(const std::vector<BenchRow>& rows);

}  // namespace pawl::tools
