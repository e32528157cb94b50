// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/discovery.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "fabric/verbs/make.h"
#include "verbs/fake_verbs.h"

namespace pawl::fabric::verbs {
namespace {

constexpr Gid kGlobal = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

class DiscoveryTest : public ::testing::Test {
 protected:
  Discovery find(const VerbsOptions& options = {}) {
    Discovery found = discover(FakeVerbs::calls(), options, addresses_);
    EXPECT_EQ(fake_.objects, 0u) << "a device is left open";
    return found;
  }
  static std::string refused(const Discovery& found) {
    std::string all;
    for (const std::string& each : found.refused) all += each + "\n";
    return all;
  }

  FakeVerbs fake_;
  std::vector<LocalAddress> addresses_ = {{.gid = ipv4_gid(10, 0, 0, 1), .netdev = "eth0"},
                                          {.gid = kGlobal, .netdev = "eth0"},
                                          {.gid = kLinkLocal, .netdev = "eth0"}};
};

TEST_F(DiscoveryTest, NoDeviceIsSaidWithWhatToDo) {
  const Discovery found = find();
  EXPECT_TRUE(found.usable.empty());
  EXPECT_NE(refused(found).find("rdma link add"), std::string::npos) << refused(found);
}

TEST_F(DiscoveryTest, AKernelWithoutRdmaIsSaid) {
  fake_.failing["get_device_list"] = ENOSYS;
  const Discovery found = find();
  EXPECT_EQ(found.status.code(), Code::unimplemented);
  EXPECT_NE(refused(found).find("ibv_get_device_list"), std::string::npos);
  EXPECT_NE(refused(found).find("modprobe ib_uverbs"), std::string::npos);
}

TEST_F(DiscoveryTest, Ipv4IsPreferredThenIpv6ThenLinkLocal) {
  FakePort& port = fake_.add_device("fake0", kLinkLocal).ports[0];
  port.gids.push_back({.gid = kGlobal});
  port.gids.push_back({.gid = ipv4_gid(10, 0, 0, 1)});
  const Discovery found = find();
  ASSERT_EQ(found.usable.size(), 1u) << refused(found);
  const std::vector<GidEntry>& gids = found.usable[0].gids;
  ASSERT_EQ(gids.size(), 3u);
  EXPECT_EQ(gids[0].index, 2);
  EXPECT_EQ(gids[0].netdev, "eth0");
  EXPECT_EQ(gids[1].index, 1);
  EXPECT_EQ(gids[2].index, 0);
  EXPECT_EQ(gid_text(gids[0].gid), "10.0.0.1");
  EXPECT_EQ(gid_text(gids[1].gid), "2001:db8::1");
  EXPECT_EQ(gid_text(gids[2].gid), "fe80::1");
}

TEST_F(DiscoveryTest, ThePeersFamilyChoosesAmongOurs) {
  FakePort& port = fake_.add_device("fake0", ipv4_gid(10, 0, 0, 1)).ports[0];
  port.gids.push_back({.gid = kGlobal});
  const Discovery found = find();
  ASSERT_EQ(found.usable.size(), 1u);
  EXPECT_EQ(entry_for_peer(found.usable[0], ipv4_gid(10, 0, 0, 9))->index, 0);
  EXPECT_EQ(entry_for_peer(found.usable[0], kGlobal)->index, 1);
  EXPECT_EQ(entry_for_peer(found.usable[0], kLinkLocal), nullptr);
}

TEST_F(DiscoveryTest, RoceV1AndAddressesOfOtherNameSpacesAreNotTaken) {
  FakePort& port = fake_.add_device("fake0", ipv4_gid(10, 9, 9, 9)).ports[0];
  port.gids.push_back({.gid = ipv4_gid(10, 0, 0, 1), .type = IBV_GID_TYPE_ROCE_V1});
  port.gids.push_back({});
  const Discovery found = find();
  EXPECT_TRUE(found.usable.empty());
  EXPECT_NE(refused(found).find("fake0 port 1: no RoCE v2 address"), std::string::npos)
      << refused(found);
}

TEST_F(DiscoveryTest, AnExplicitGidIndexIsTakenAsItIs) {
  FakePort& port = fake_.add_device("fake0", ipv4_gid(10, 0, 0, 1)).ports[0];
  port.gids.push_back({.gid = ipv4_gid(10, 9, 9, 9)});
  port.gids.push_back({.gid = kGlobal, .type = IBV_GID_TYPE_ROCE_V1});
  const Discovery found = find({.gid_index = 1});
  ASSERT_EQ(found.usable.size(), 1u) << refused(found);
  EXPECT_EQ(found.usable[0].gids[0].index, 1);
  EXPECT_NE(refused(find({.gid_index = 2})).find("entry 2"), std::string::npos);
}

TEST_F(DiscoveryTest, InfinibandGoesByLid) {
  FakePort& port = fake_.add_device("fake0", kLinkLocal).ports[0];
  port.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  port.attributes.lid = 7;
  port.gids[0].type = IBV_GID_TYPE_IB;
  const PortList list = list_ports(FakeVerbs::calls(), {}, {});
  ASSERT_EQ(list.usable.size(), 1u);
  EXPECT_FALSE(list.usable[0].ethernet);
  EXPECT_EQ(list.usable[0].address, "lid 7");
  EXPECT_EQ(list.usable[0].mtu_bytes, 4096u);
}

TEST_F(DiscoveryTest, OneBadDeviceHidesNoGoodOne) {
  fake_.add_device("locked", ipv4_gid(10, 0, 0, 1));
  fake_.add_device("down", ipv4_gid(10, 0, 0, 1)).ports[0].attributes.state = IBV_PORT_DOWN;
  fake_.add_device("waiting", ipv4_gid(10, 0, 0, 1)).ports[0].attributes.state = IBV_PORT_INIT;
  fake_.add_device("good", ipv4_gid(10, 0, 0, 1));
  fake_.failing["open_device locked"] = EACCES;
  const Discovery found = find();
  ASSERT_EQ(found.usable.size(), 1u);
  EXPECT_EQ(found.usable[0].device, "good");
  EXPECT_NE(refused(found).find("ibv_open_device: Permission denied (EACCES): locked"),
            std::string::npos)
      << refused(found);
  EXPECT_NE(refused(found).find("down port 1: it is down"), std::string::npos);
  EXPECT_NE(refused(found).find("waiting port 1: it waits for a subnet manager"),
            std::string::npos);
}

TEST_F(DiscoveryTest, SeveralPortsAndTheFilters) {
  fake_.add_device("fake0", kLinkLocal);
  FakeDevice& second = fake_.add_device("fake1", ipv4_gid(10, 0, 0, 1));
  second.attributes.phys_port_cnt = 2;
  second.ports.push_back(second.ports[0]);
  const Discovery all = find();
  ASSERT_EQ(all.usable.size(), 3u);
  EXPECT_EQ(all.usable[0].device, "fake1") << "a link-local address comes last";
  EXPECT_EQ(all.usable[2].device, "fake0");
  EXPECT_EQ(find({.device = "fake1"}).usable.size(), 2u);
  const Discovery one = find({.device = "fake1", .port = 2});
  ASSERT_EQ(one.usable.size(), 1u);
  EXPECT_EQ(one.usable[0].number, 2u);
  const Discovery none = find({.device = "fake7"});
  EXPECT_TRUE(none.usable.empty());
  EXPECT_NE(refused(none).find("fake7"), std::string::npos);
}

}  // namespace
}  // namespace pawl::fabric::verbs
