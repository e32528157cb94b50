// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "conformance/world.h"
#include "fabric/verbs/verbs_fabric.h"

namespace pawl::fabric::conformance {
namespace {

// The suite's verbs cases exist only where there is a device: here it shows whether they did.
TEST(VerbsConformance, RunsOverRealDevices) {
  const verbs::PortList ports = verbs::list_ports();
  if (ports.usable.empty()) {
    std::string why;
    for (const std::string& each : ports.refused) why += (why.empty() ? "" : "; ") + each;
    GTEST_SKIP() << "no RDMA port: " << why << "; scripts/rdma-guest has soft-RoCE ones";
  }
  EXPECT_TRUE(std::any_of(kinds().begin(), kinds().end(),
                          [](const Kind& kind) { return std::string_view(kind.name) == "verbs"; }));
}

}  // namespace
}  // namespace pawl::fabric::conformance
