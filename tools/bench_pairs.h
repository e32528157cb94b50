// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench_row.h"
#include "pawl/result.h"

namespace pawl::tools {

/// One of the systems that are compared.
struct Contender {
  std::string system;
  SampleSettings settings{};
  std::string missing;          ///< why it is not there; empty if it is
  bool may_be_refused = false;  ///< if its first sample fails, it is missing, for that reason
  std::function<Result<SampleResult>(const SampleSettings&)> sample;
};

/// `pairs` samples of each, taken in turn; who comes first changes with every turn. Rows in the
/// order of the contenders.
Result<std::vector<BenchRow>> run_pairs(std::vector<Contender> contenders, std::uint32_t pairs);

}  // namespace pawl::tools
