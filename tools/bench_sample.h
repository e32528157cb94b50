// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench_board.h"
#include "pawl/result.h"

namespace pawl::tools {

/// One sample: a server process, then a client process, both gone when it returns. Not ok: one of
/// them failed, or what they counted does not add up.
Result<SampleResult> run_sample(const SampleSettings& settings);

/// The program of gRPC's two processes, beside this one, and why it cannot be used; empty if it
/// can.
std::string grpc_program();
std::string grpc_missing();

}  // namespace pawl::tools
