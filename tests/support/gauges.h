// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "pawl/stats.h"

namespace pawl::testing {

/// Every gauge of a node that is zero when nothing is under way, by name.
inline auto gauges(const NodeStats& stats) {
  using Gauge = std::pair<std::string_view, std::uint64_t>;
  return std::array{
      Gauge{"calls_live", stats.calls_live},
      Gauge{"served_live", stats.served_live},
      Gauge{"transfers_live", stats.transfers_live},
      Gauge{"reads outstanding", stats.reads_posted - stats.reads_completed - stats.reads_failed},
      Gauge{"leases_live", stats.pool.leases_live},
      Gauge{"bytes_in_use", stats.pool.bytes_in_use},
      Gauge{"bytes_landing", stats.pool.bytes_landing},
      Gauge{"bytes_quarantined", stats.pool.bytes_quarantined},
      Gauge{"buffers_quarantined", stats.pool.buffers_quarantined},
      Gauge{"waiting", stats.pool.waiting},
      Gauge{"windows_bound", stats.windows_bound},
  };
}

/// Those that are not zero: "calls_live 2, bytes_in_use 65536"; empty if all are.
inline std::string what_is_left(const NodeStats& stats) {
  std::string text;
  for (const auto& [name, value] : gauges(stats)) {
    if (value == 0) continue;
    if (!text.empty()) text += ", ";
    text += name;
    text += " " + std::to_string(value);
  }
  return text;
}

}  // namespace pawl::testing
