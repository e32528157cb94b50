// SPDX-License-Identifier: Apache-2.0
// The tests, and the processes that they start: `test_kit --actor ROLE GUARD ADDRESS PID`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "kit/actor.h"
#include "kit/storm_server.h"

int main(int argc, char** argv) {
  if (argc == 6 && std::string_view(argv[1]) == "--actor") {
    if (std::string_view(argv[2]) == "storm") {
      return pawl::kit::run_storm_server(argv[4], std::atoi(argv[5]));
    }
    pawl::kit::ActorOptions options;
    options.server = std::string_view(argv[2]) == "server";
    options.guard = pawl::guard_from_name(argv[3]).value_or(pawl::Guard::verify);
    options.address = argv[4];
    options.parent = std::atoi(argv[5]);
    return pawl::kit::run_actor(options);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
