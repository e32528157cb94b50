// SPDX-License-Identifier: Apache-2.0
// What the doctor says of machines that the tests make up, and of this one.

#include "tools/doctor.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tools/command.h"
#include "tools/temporary_folder.h"

namespace pawl::tools {
namespace {

using testing::Command;
using testing::TemporaryFolder;
using Level = Finding::Level;

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    machine_.root = folder_.path();
    machine_.verbs_built_in = true;
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  }
  void write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = folder_.path(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << "\n";
  }
  /// A device that programs can open, with a port on eth0.
  void add_device(const std::string& name, std::uint32_t mtu_bytes = 4096) {
    write("sys/class/infiniband/" + name + "/device/numa_node", "-1");
    write("sys/class/infiniband_verbs/uverbs0/dev", "231:192");
    write("dev/infiniband/uverbs0", "");
    fabric::verbs::PortInfo port;
    port.device = name;
    port.port = 1;
    port.ethernet = true;
    port.address = "10.0.0.1";
    port.netdev = "eth0";
    port.mtu_bytes = mtu_bytes;
    machine_.ports.usable.push_back(port);
  }
  /// The only finding of a check.
  Finding finding(const std::string& check) const {
    Finding found;
    int count = 0;
    for (const Finding& each : look_at(machine_)) {
      if (each.check != check) continue;
      found = each;
      ++count;
    }
    EXPECT_EQ(count, 1) << check;
    return found;
  }
  [[nodiscard]] bool says_nothing_of(const std::string& check) const {
    for (const Finding& each : look_at(machine_)) {
      if (each.check == check) return false;
    }
    return true;
  }
  [[nodiscard]] Level worst() const {
    Level worst = Level::ok;
    for (const Finding& each : look_at(machine_)) worst = std::max(worst, each.level);
    return worst;
  }

  TemporaryFolder folder_;
  Machine machine_;
};

TEST_F(DoctorTest, WithoutRdmaOneLineSaysSoAndNothingElseOfIt) {
  machine_.memlock_bytes = 65536;
  const Finding rdma = finding("rdma");
  EXPECT_EQ(rdma.level, Level::ok);
  EXPECT_NE(rdma.evidence.find("tcp is used"), std::string::npos);
  EXPECT_NE(rdma.evidence.find("ib_uverbs"), std::string::npos) << "what would be needed";
  for (const char* check : {"memlock", "port", "mtu", "driver"}) {
    EXPECT_TRUE(says_nothing_of(check)) << check;
  }
  EXPECT_EQ(worst(), Level::ok);
}

TEST_F(DoctorTest, AWorkingDeviceIsNamedWithItsPort) {
  add_device("mlx5_0");
  EXPECT_EQ(finding("rdma").evidence, "mlx5_0");
  EXPECT_NE(finding("port").evidence.find("RoCE v2, 10.0.0.1 of eth0"), std::string::npos);
  EXPECT_TRUE(says_nothing_of("mtu"));
  EXPECT_EQ(worst(), Level::ok);
}

TEST_F(DoctorTest, WhatKeepsProgramsFromADeviceIsAFailureWithItsRemedy) {
  write("sys/class/infiniband/mlx5_0/node_guid", "1");
  EXPECT_EQ(finding("rdma").mend, "modprobe ib_uverbs");
  write("sys/class/infiniband_verbs/uverbs0/dev", "231:192");
  EXPECT_NE(finding("rdma").mend.find("--device /dev/infiniband"), std::string::npos);
  EXPECT_EQ(finding("rdma").level, Level::failure);
  machine_.verbs_built_in = false;
  EXPECT_NE(finding("rdma").mend.find("libibverbs-dev"), std::string::npos);
}

TEST_F(DoctorTest, PortsThatCannotBeUsedFailOnlyIfNoneCan) {
  add_device("mlx5_0");
  machine_.ports.refused.emplace_back("mlx5_1 port 1 is down");
  EXPECT_EQ(worst(), Level::warning);
  machine_.ports.usable.clear();
  EXPECT_EQ(worst(), Level::failure);
  EXPECT_NE(finding("port").evidence.find("mlx5_1 port 1 is down"), std::string::npos);
}

TEST_F(DoctorTest, ErdmaNeedsItsCompatMode) {
  add_device("erdma_0");
  EXPECT_EQ(finding("driver").level, Level::failure);
  write("sys/module/erdma/parameters/compat_mode", "N");
  EXPECT_EQ(finding("driver").level, Level::failure);
  EXPECT_NE(finding("driver").mend.find("compat_mode=Y"), std::string::npos);
  write("sys/module/erdma/parameters/compat_mode", "Y");
  EXPECT_EQ(finding("driver").level, Level::ok);
}

TEST_F(DoctorTest, SmallPacketsAreTheInterfacesMtu) {
  add_device("rxe0", 1024);
  write("sys/class/net/eth0/mtu", "1500");
  EXPECT_EQ(finding("mtu").level, Level::warning);
  EXPECT_EQ(finding("mtu").mend, "ip link set dev eth0 mtu 4200, at every hop");
  write("sys/class/net/eth0/mtu", "9000");
  EXPECT_NE(finding("mtu").mend.find("down"), std::string::npos)
      << "taken up when the port comes up";
}

TEST(DoctorMachine, WhoMayLockMemoryIsACapabilityNotAUser) {
  EXPECT_TRUE(may_lock_memory("Uid:\t1000\nCapEff:\t0000000000004000\nCapBnd:\t0\n"));
  EXPECT_TRUE(may_lock_memory("Uid:\t0\nCapEff:\t000001ffffffffff\n"));
  EXPECT_FALSE(may_lock_memory("Uid:\t0\nCapEff:\t00000000a80425fb\n")) << "of a container";
  EXPECT_FALSE(may_lock_memory("Uid:\t0\n"));
}

TEST_F(DoctorTest, LockedMemoryIsLimitedForWhoMayNotLock) {
  add_device("mlx5_0");
  machine_.memlock_bytes = 8 << 20;
  EXPECT_EQ(finding("memlock").level, Level::failure);
  EXPECT_NE(finding("memlock").mend.find("ulimit -l unlimited"), std::string::npos);
  machine_.may_lock = true;
  EXPECT_EQ(finding("memlock").level, Level::ok);
}

TEST_F(DoctorTest, LimitsThatAreLowAreWarnings) {
  machine_.open_files = 1024;
  EXPECT_NE(finding("open files").mend.find("ulimit -n"), std::string::npos);
  write("proc/sys/vm/max_map_count", "1000");
  EXPECT_EQ(finding("mappings").mend, "sysctl vm.max_map_count=65530");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  EXPECT_EQ(finding("huge pages").level, Level::warning);
  write("proc/sys/vm/nr_hugepages", "512");
  EXPECT_EQ(finding("huge pages").level, Level::ok);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave");
  EXPECT_EQ(finding("cpu").level, Level::warning);
  EXPECT_EQ(worst(), Level::warning);
}

TEST_F(DoctorTest, ThePollersPlaceIsSaidWhereThereAreSeveralNodes) {
  add_device("mlx5_0");
  EXPECT_TRUE(says_nothing_of("numa"));
  write("sys/class/infiniband/mlx5_0/device/numa_node", "1");
  write("sys/devices/system/node/node0/cpulist", "0-15");
  write("sys/devices/system/node/node1/cpulist", "16-31");
  EXPECT_NE(finding("numa").evidence.find("CPUs 16-31"), std::string::npos);
}

TEST(DoctorText, ShowsTheRemedyUnderTheFindingAndCounts) {
  const Findings findings = {{"one", Level::ok, "fine", ""},
                             {"two", Level::failure, "broken", "mend it"}};
  EXPECT_EQ(text_of(findings, false),
            "ok       one         fine\n"
            "FAILURE  two         broken\n"
            "                     mend: mend it\n"
            "1 ok, 0 warnings, 1 failures\n");
  EXPECT_NE(text_of(findings, true).find("\033[31mFAILURE"), std::string::npos);
  const std::string json = json_of(findings);
  EXPECT_NE(json.find("\"level\": \"failure\", \"evidence\": \"broken\", \"mend\": \"mend it\""),
            std::string::npos)
      << json;
  EXPECT_NE(json.find("\"failures\": 1"), std::string::npos);
}

TEST(DoctorLoopBack, MovesBytesOverSocketsAndNamesWhatIsMissing) {
  const Finding tcp = loop_back("tcp");
  EXPECT_EQ(tcp.level, Level::ok) << tcp.evidence;
  EXPECT_NE(tcp.evidence.find("both directions"), std::string::npos);
  const Finding none = loop_back("verbs:nosuch/1");
  EXPECT_EQ(none.level, Level::failure);
  EXPECT_FALSE(none.evidence.empty());
}

TEST(DoctorCommand, TriesTheFabricThatTheEnvironmentNames) {
  if (Command::path().empty()) GTEST_SKIP() << "this build has no pawl command";
  ::setenv("PAWL_FABRIC", "nosuch", 1);
  Command text("doctor");
  ::unsetenv("PAWL_FABRIC");
  EXPECT_EQ(text.wait(), 1 << 8);
  EXPECT_NE(text.output().find("nosuch"), std::string::npos) << text.output();
}

TEST(DoctorCommand, EndsWithZeroHere) {
  if (Command::path().empty()) GTEST_SKIP() << "this build has no pawl command";
  Command text("doctor"), json("doctor --json");
  const int status = text.wait();
  EXPECT_EQ(status, json.wait());
  EXPECT_NE(text.output().find("loop-back"), std::string::npos) << text.output();
  EXPECT_NE(json.output().find("\"check\": \"loop-back\""), std::string::npos) << json.output();
  const bool failed = text.output().find("FAILURE") != std::string::npos;
  EXPECT_EQ(status, failed ? 1 << 8 : 0) << text.output();
}

}  // namespace
}  // namespace pawl::tools
