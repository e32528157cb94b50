// SPDX-License-Identifier: Apache-2.0
// The pawl command as its users run it: a short demo that must show what it is for, and what it
// answers to wrong usage.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "tools/command.h"
#include "tools/temporary_folder.h"

namespace pawl {
namespace {

using testing::Command;
using testing::TemporaryFolder;

struct Ran {
  int code = -1;
  std::string output;
};

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Command::path().empty()) GTEST_SKIP() << "there is no pawl command in PAWL_BIN_DIR";
  }

  static Ran run(const std::string& arguments) {
    Command command(arguments);
    const int status = command.wait();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, command.output()};
  }

  /// A demo and the JSON that it wrote. On a very busy machine a short run may prove nothing, and
  /// says so: then a longer one.
  static std::pair<Ran, std::string> demo(const std::string& arguments,
                                          const std::string& seconds_first = "6") {
    const TemporaryFolder folder;
    const std::string file = folder.path("result.json");
    Ran ran;
    std::string json;
    for (const std::string& seconds : {seconds_first, std::string("24")}) {
      ran = run("demo --json " + file + " --seconds " + seconds + " " + arguments);
      std::stringstream text;
      text << std::ifstream(file).rdbuf();
      json = text.str();
      if (ran.output.find("proved nothing") == std::string::npos) break;
    }
    return {std::move(ran), std::move(json)};
  }
};

/// A number in the row of a guard; -1 if there is none.
double number(const std::string& json, const std::string& guard, const std::string& key) {
  const std::size_t row = json.find("\"guard\": \"" + guard + "\"");
  if (row == std::string::npos) return -1;
  const std::string row_text = json.substr(row, json.find('}', row) - row);
  const std::string name = "\"" + key + "\": ";
  const std::size_t at = row_text.find(name);
  return at == std::string::npos ? -1 : std::strtod(row_text.c_str() + at + name.size(), nullptr);
}

TEST_F(CommandTest, AShortDemoShowsCorruptionWithoutAGuardAndNoneWithVerify) {
  const auto [ran, json] = demo("--guards none,verify");
  SCOPED_TRACE(ran.output + json);
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(number(json, "verify", "wrong_bytes"), 0);
  EXPECT_GT(number(json, "verify", "late_reads_reused"), 0);
  EXPECT_GT(number(json, "verify", "goodput_bytes_per_s"), 0);
  EXPECT_EQ(number(json, "verify", "connections_lost"), 0);
  EXPECT_GT(number(json, "none", "wrong_bytes"), 0);
  EXPECT_GE(number(json, "none", "late_reads_reused"), 100);
  for (const char* key : {"calls", "timed_out", "late_reads", "stale_refused", "p50_us", "p99_us",
                          "p999_us", "seconds"}) {
    EXPECT_GE(number(json, "verify", key), 0) << key;
  }
}

TEST_F(CommandTest, TheUsualRemedyLosesConnections) {
  const auto [ran, json] = demo("--guards disconnect", "2");
  SCOPED_TRACE(ran.output + json);
  EXPECT_EQ(ran.code, 0);
  EXPECT_GT(number(json, "disconnect", "connections_lost"), 0);
  EXPECT_GT(number(json, "disconnect", "ok"), 0);
  EXPECT_NE(ran.output.find(" connections, and "), std::string::npos);
  EXPECT_NE(ran.output.find(" calls failed."), std::string::npos) << "what that cost";
}

TEST_F(CommandTest, AFewSmallFilesAreEnough) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "sub/b", "c"}) folder.write(name, 3000);
  const auto [ran, json] = demo("--guards none,verify --dir " + folder.path(), "3");
  SCOPED_TRACE(ran.output + json);
  EXPECT_EQ(ran.code, 0);
  EXPECT_GT(number(json, "none", "wrong_bytes"), 0);
  EXPECT_GE(number(json, "verify", "late_reads_reused"), 100);
}

/// Whole READs of 64 KiB: none is held because it happens to be the short end of a file.
TEST_F(CommandTest, LargeFilesAloneHaveLateReadsToo) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) folder.write(name, 1 << 20);
  const auto [ran, json] = demo("--guards none,verify --dir " + folder.path());
  SCOPED_TRACE(ran.output + json);
  EXPECT_EQ(ran.code, 0);
  EXPECT_GT(number(json, "none", "wrong_bytes"), 0);
  EXPECT_GE(number(json, "none", "late_reads_reused"), 100);
  EXPECT_GE(number(json, "verify", "late_reads_reused"), 100);
}

TEST_F(CommandTest, WhatIsNotATerminalGetsTheWholeTableOnce) {
  const Ran ran = run("demo --guards verify --seconds 1");
  SCOPED_TRACE(ran.output);
  EXPECT_EQ(ran.output.find('\x1b'), std::string::npos);
  const std::string titles =
      "guard           calls     out executed   buffer  refused  accepted    lost    goodput      "
      "p50      p99    p99.9\n";
  const std::size_t header = ran.output.find(titles);
  ASSERT_NE(header, std::string::npos);
  EXPECT_EQ(ran.output.find("verify ", header), header + titles.size());
  EXPECT_EQ(ran.output.find("\nverify ", header + titles.size()), std::string::npos);
}

TEST_F(CommandTest, WrongUsageIsExitCode64AndASentence) {
  for (const char* arguments :
       {"", "nothing", "demo --guards window", "demo --guards none,none", "demo --fabric carrier",
        "demo --seed -1", "demo --seed many", "demo --seconds 0", "demo --seconds 1",
        "demo --seconds many", "demo --dir /nowhere/at/all", "demo --what", "info --what"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 64) << arguments << ": " << ran.output;
    EXPECT_FALSE(ran.output.empty()) << arguments;
  }
}

TEST_F(CommandTest, AGuardWithoutARowIsNotAnUnknownGuard) {
  EXPECT_EQ(run("demo --guards none,window").output,
            "pawl: --guards: the demo has no row for \"window\" yet; none, disconnect, verify\n");
  EXPECT_EQ(run("demo --guards curtain").output,
            "pawl: --guards: there is no guard \"curtain\"; none, disconnect, verify\n");
}

TEST_F(CommandTest, InfoTellsVersionFabricsAndLimits) {
  const Ran ran = run("info --json");
  EXPECT_EQ(ran.code, 0);
  for (const char* key : {"\"version\"", "\"fabrics\": [", "\"tcp\"", "\"rdma_ports\": {",
                          "\"nofile\"", "\"memlock_bytes\"", "\"huge_pages\""}) {
    EXPECT_NE(ran.output.find(key), std::string::npos) << key << " in " << ran.output;
  }
  EXPECT_EQ(run("info").code, 0);
  EXPECT_EQ(run("--help").code, 0);
}

}  // namespace
}  // namespace pawl
