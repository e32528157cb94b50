// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pawl/guard.h"

namespace pawl::kit {

struct ActorOptions {
  bool server = false;
  Guard guard = Guard::verify;
  std::string address;  ///< where the server listens, or the client connects to
  int parent = 0;       ///< ends with this process
};

/// A node in a process of its own that does what the lines on its standard input say and reports on
/// its standard output. Returns the exit code.
int run_actor(const ActorOptions& options);

}  // namespace pawl::kit
