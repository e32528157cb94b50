// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "pawl/log.h"

namespace pawl::tools {

/// Only errors are worth a line, where warnings are part of what is shown: connections that break
/// (one guard of the demo), turns that are long because the machine is busy.
class ErrorSink final : public LogSink {
 public:
  void write(Severity severity, std::string_view line) noexcept override {
    if (severity >= Severity::error) stderr_.write(severity, line);
  }

 private:
  StderrSink stderr_;
};

}  // namespace pawl::tools
