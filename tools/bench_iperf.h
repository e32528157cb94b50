// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench_board.h"
#include "pawl/result.h"

namespace pawl::tools {

/// Why iperf3 cannot be used here; empty if it can.
std::string iperf_missing();

/// One stream of `iperf3 -l 1M` over loopback, as long as a sample, at least a second.
Result<SampleResult> run_iperf(const SampleSettings& settings);

/// What its client printed with -J.
Result<SampleResult> parse_iperf(const std::string& json);

}  // namespace pawl::tools
