// SPDX-License-Identifier: Apache-2.0
#include "pawl/version.h"

#include <gtest/gtest.h>

#include <string>

namespace pawl {
namespace {

TEST(Version, TextIsMadeOfTheThreeNumbers) {
  const std::string expected = std::to_string(PAWL_VERSION_MAJOR) + "." +
                               std::to_string(PAWL_VERSION_MINOR) + "." +
                               std::to_string(PAWL_VERSION_PATCH);
  EXPECT_EQ(expected, kVersion);
}

}  // namespace
}  // namespace pawl
