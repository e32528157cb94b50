// SPDX-License-Identifier: Apache-2.0
// The pawl command as its users run it: a short demo that must show what it is for, and what it
// answers to wrong usage.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

namespace pawl {
namespace {

struct Ran {
  int code = -1;
  std::string output;
};

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* bin = std::getenv("PAWL_BIN_DIR");
    if (bin == nullptr || ::access((std::string(bin) + "/pawl").c_str(), X_OK) != 0) {
      GTEST_SKIP() << "there is no pawl command in PAWL_BIN_DIR";
    }
    command_ = std::string(bin) + "/pawl ";
  }

  Ran run(const std::string& arguments) const {
    Ran ran;
    std::FILE* pipe = ::popen((command_ + arguments + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return ran;
    char buffer[4096];
    while (const std::size_t bytes = std::fread(buffer, 1, sizeof buffer, pipe)) {
      ran.output.append(buffer, bytes);
    }
    const int status = ::pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
  }

  /// A demo and the JSON that it wrote.
  std::pair<Ran, std::string> demo(const std::string& arguments) const {
    const std::string file =
        ::testing::TempDir() + "/pawl_demo_" + std::to_string(::getpid()) + ".json";
    Ran ran = run("demo --json " + file + " " + arguments);
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    ::unlink(file.c_str());
    return {std::move(ran), text.str()};
  }

  std::string command_;
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
  Ran ran;
  std::string json;
  // On a very busy machine a short run may prove nothing, and says so.
  for (const char* seconds : {"6", "24"}) {
    std::tie(ran, json) = demo(std::string("--guards none,verify --seconds ") + seconds);
    if (ran.output.find("proved nothing") == std::string::npos) break;
  }
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

TEST_F(CommandTest, WrongUsageIsExitCode64AndASentence) {
  for (const char* arguments :
       {"", "nothing", "demo --guards window", "demo --guards none,none", "demo --fabric carrier",
        "demo --seconds 0", "demo --seconds 1", "demo --seconds many", "demo --dir /nowhere/at/all",
        "demo --what", "info --what"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 64) << arguments << ": " << ran.output;
    EXPECT_FALSE(ran.output.empty()) << arguments;
  }
}

TEST_F(CommandTest, InfoTellsVersionFabricsAndLimits) {
  const Ran ran = run("info --json");
  EXPECT_EQ(ran.code, 0);
  for (const char* key : {"\"version\"", "\"fabrics\": [", "\"tcp\"", "\"nofile\"",
                          "\"memlock_bytes\"", "\"huge_pages\""}) {
    EXPECT_NE(ran.output.find(key), std::string::npos) << key << " in " << ran.output;
  }
  EXPECT_EQ(run("info").code, 0);
  EXPECT_EQ(run("--help").code, 0);
}

}  // namespace
}  // namespace pawl
