// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "demo_row.h"

namespace pawl::tools {

/// Fewer late READs that hit a reused buffer prove nothing.
inline constexpr std::uint64_t kReusedReadsMin = 100;

/// Whether the run shows what it is to show, and that in one sentence.
struct Verdict {
  bool passed = false;
  std::string sentence;
};

/// Fails if `verify` accepted a wrong byte. Else, having proved nothing, if under any guard no call
/// was ok, `verify` met fewer than kReusedReadsMin late READs of reused buffers, `none` met fewer
/// or accepted no wrong byte, or `disconnect` lost no connection.
Verdict judge(const std::vector<Row>& rows);

/// {"seed": …, "passed": …, "sentence": …, "rows": [{"guard": …, …}, …]}
std::string to_json(const std::vector<Row>& rows, const Verdict& verdict, std::uint64_t seed);

}  // namespace pawl::tools
