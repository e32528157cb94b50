// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "demo_places.h"
#include "pawl/guard.h"
#include "pawl/time.h"

namespace pawl::tools {

struct DemoOptions {
  double seconds = 30;  ///< over all guards
  std::string dir;      ///< empty: a seeded corpus
  DemoPlaces places;    ///< the fabrics of the two processes
  std::vector<Guard> guards{Guard::none, Guard::disconnect, Guard::verify};
  std::string json;  ///< where to write the rows; empty: nowhere
  std::uint64_t seed = 1;
  Duration deadline{0};  ///< of a small call; 0: by what a call takes on this machine
};

/// `pawl demo`; gives the exit code.
int run_demo(const DemoOptions& options);

}  // namespace pawl::tools
