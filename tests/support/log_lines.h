// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "pawl/log.h"

namespace pawl::testing {

/// Keeps what is logged. One thread.
class LogLines final : public LogSink {
 public:
  void write(Severity severity, std::string_view line) noexcept override {
    lines.emplace_back(line);
    if (severity == Severity::error) ++errors;
  }
  /// Lines with this in them.
  [[nodiscard]] std::size_t count(std::string_view part) const {
    return static_cast<std::size_t>(std::count_if(
        lines.begin(), lines.end(),
        [part](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

  std::vector<std::string> lines;
  std::size_t errors = 0;  ///< lines of that severity
};

}  // namespace pawl::testing
