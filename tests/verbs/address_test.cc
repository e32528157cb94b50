// SPDX-License-Identifier: Apache-2.0
// A port's addresses while the fabric runs: a queue pair names one by its place in the port's
// table, and places change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs/pair.h"

namespace pawl::fabric::verbs {
namespace {

using ::testing::HasSubstr;

class AddressTest : public VerbsPair {
 protected:
  void SetUp() override {
    start();
    connect();
    ASSERT_EQ(place_of_a(), 0);
  }
  std::vector<FakeGid>& gids() { return fake_.devices.front().ports.front().gids; }
  int place_of_a() { return qp_a().rtr.ah_attr.grh.sgid_index; }
  void say_so() {
    fake_.report(IBV_EVENT_GID_CHANGE);
    ASSERT_TRUE(run_until([&] { return a_->count(EventKind::device) == 1; }));
    EXPECT_THAT(std::string(a_->event(EventKind::device)->status.what()),
                HasSubstr("fake0 port 1 has other addresses"));
  }
  Status connect_in_vain() {
    const Result<EndpointId> endpoint = fabric_a_->connect(
        address_, {.group = {1}, .send_depth = 8, .receive_depth = 4}, {}, clock_.now() + 100s);
    if (!endpoint.ok()) return endpoint.status();
    EXPECT_TRUE(run_until([&] {
      for (const Event* asked : b_->events(EventKind::connect_request)) {
        (void)fabric_b_->accept(asked->endpoint, {.group = {1}}, {});
      }
      return a_->event(EventKind::connect_failed, *endpoint) != nullptr;
    }));
    return a_->event(EventKind::connect_failed, *endpoint)->status;
  }
};

TEST_F(AddressTest, OneThatCameBackAtAnotherPlaceIsFound) {
  gids() = {{}, {}, {.gid = ipv4_gid(10, 0, 0, 1)}};
  say_so();
  connect();
  EXPECT_EQ(place_of_a(), 2);
}

TEST_F(AddressTest, AnotherOneIsTaken) {
  gids() = {{.gid = ipv4_gid(10, 0, 0, 9)}};
  addresses_.front().gid = ipv4_gid(10, 0, 0, 9);
  say_so();
  connect();
  EXPECT_EQ(qp_b().rtr.ah_attr.grh.dgid.raw[15], 9);
}

TEST_F(AddressTest, WithoutOneConnectSaysSoUntilOneIsThere) {
  gids() = {{}};
  say_so();
  EXPECT_THAT(std::string(connect_in_vain().what()),
              HasSubstr("no connection from fake0 port 1: no RoCE v2 address"));
  gids() = {{}, {.gid = ipv4_gid(10, 0, 0, 1)}};
  connect();
  EXPECT_EQ(place_of_a(), 1);
}

TEST_F(AddressTest, WhereTheDeviceSaysNothingItCostsOneConnection) {
  gids() = {{}, {.gid = ipv4_gid(10, 0, 0, 1)}};
  EXPECT_THAT(std::string(connect_in_vain().what()), HasSubstr("to RTR"));
  connect();
  EXPECT_EQ(place_of_a(), 1);
}

}  // namespace
}  // namespace pawl::fabric::verbs
