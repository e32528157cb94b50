// SPDX-License-Identifier: Apache-2.0
// `pawl bench` as its users start it, with few calls: nothing here looks at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/temporary_folder.h"

namespace pawl::tools {
namespace {

using testing::Command;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

class BenchCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Command::path().empty()) GTEST_SKIP() << "there is no pawl command in PAWL_BIN_DIR";
  }
  /// Exit code; the rows of its JSON file are in `rows_`.
  int run(const std::string& arguments) {
    Command command("bench " + arguments + " --json " + file_);
    const int status = command.wait();
    output_ = command.output();
    std::ifstream file(file_, std::ios::binary);
    json_ = {std::istreambuf_iterator<char>(file), {}};
    rows_.clear();
    const std::string start = "{\"system\": ";
    for (std::size_t at = json_.find(start); at != std::string::npos;) {
      const std::size_t next = json_.find(start, at + 1);
      rows_.push_back(json_.substr(at, next - at));
      at = next;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static std::string value(const std::string& row, const std::string& key) {
    const std::string start = "\"" + key + "\": ";
    const std::size_t at = row.find(start);
    if (at == std::string::npos) return "";
    const std::size_t begin = at + start.size();
    return row.substr(begin, row.find_first_of(",}", begin) - begin);
  }
  static void expect_keys(const std::string& row, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) EXPECT_NE(value(row, key), "") << key << " of " << row;
  }

  TemporaryFolder folder_;
  const std::string file_ = folder_.path("result.json");
  std::string output_;
  std::string json_;
  std::vector<std::string> rows_;
};

TEST_F(BenchCommand, EchoInEveryMode) {
  ASSERT_EQ(run("echo --calls 25 --pairs 2 --outstanding 1,4"), 0) << output_;
  for (const char* part : {"{\"bench\": \"echo\"", "\"fabric\": \"tcp\"", "\"machine\": {",
                           "\"pinning\": ", "\"busy\": ", "\"error\": \"\""}) {
    EXPECT_THAT(json_, HasSubstr(part));
  }
  ASSERT_EQ(rows_.size(), 8u) << json_;  // of pawl and raw, spinning and not, 1 and 4 outstanding
  for (const std::string& row : rows_) {
    EXPECT_EQ(value(row, "calls"), "50") << row;
    EXPECT_EQ(value(row, "wrong_bytes"), "0");
    EXPECT_EQ(value(row, "size"), "64");
    expect_keys(row,
                {"mode", "direction", "outstanding", "p50_us", "p50_us_min", "p50_us_max", "p99_us",
                 "p999_us", "calls_per_s", "client_cpu_ns_per_call", "server_cpu_ns_per_call"});
  }
  EXPECT_EQ(value(rows_[0], "system"), "\"pawl\"");
  EXPECT_EQ(value(rows_[0], "mode"), "\"spin\"");
  EXPECT_EQ(value(rows_[7], "system"), "\"raw\"");
  EXPECT_EQ(value(rows_[7], "mode"), "\"block\"");
  EXPECT_EQ(value(rows_[0], "connections_lost"), "0");
  expect_keys(rows_[0], {"guard", "timed_out", "stale_refused", "queue_pairs_lost", "p50_to_raw",
                         "p50_to_raw_min", "p50_to_raw_max", "calls_to_raw"});
}

TEST_F(BenchCommand, BulkInBothDirections) {
  ASSERT_EQ(run("bulk --calls 6 --pairs 1 --size 4K,300K --outstanding 3 --against raw"), 0)
      << output_;
  ASSERT_EQ(rows_.size(), 8u) << json_;
  for (const std::string& row : rows_) {
    EXPECT_EQ(value(row, "calls"), "6") << row;
    EXPECT_EQ(value(row, "wrong_bytes"), "0");
    expect_keys(row, {"goodput_bytes_per_s", "cpu_ns_per_byte", "direction"});
  }
  EXPECT_EQ(value(rows_[0], "direction"), "\"download\"");
  EXPECT_EQ(value(rows_[2], "direction"), "\"upload\"");
  expect_keys(rows_[0], {"goodput_ratio", "goodput_to_raw_min", "cpu_to_raw"});
  expect_keys(rows_[1], {"socket_buffer_bytes"});
}

TEST_F(BenchCommand, IperfIsARowInAnyCase) {
  ASSERT_EQ(run("bulk --calls 4 --pairs 1 --seconds 0.1 --size 1M --outstanding 1"), 0) << output_;
  ASSERT_EQ(rows_.size(), 6u) << json_;
  EXPECT_EQ(value(rows_[2], "system"), "\"iperf3\"");
  EXPECT_NE(value(rows_[2], "missing") + value(rows_[2], "goodput_bytes_per_s"), "");
}

TEST_F(BenchCommand, GuardsAndWhatTheyCost) {
  ASSERT_EQ(run("guards --calls 40 --pairs 1 --size 4K --guard none,verify,verify_read,window"), 0)
      << output_;
  ASSERT_EQ(rows_.size(), 10u) << json_;
  const std::string& call = rows_[0];
  EXPECT_EQ(value(call, "direction"), "\"call\"");
  EXPECT_EQ(value(call, "messages_per_call").substr(0, 2), "2.");
  EXPECT_EQ(value(call, "round_trips_per_call"), "1.000");
  for (const std::size_t first : {0u, 5u}) {
    EXPECT_EQ(value(rows_[first + 1], "guard"), "\"none\"");
    EXPECT_EQ(value(rows_[first + 1], "round_trips_per_call"), "2.000");
    EXPECT_EQ(value(rows_[first + 2], "guard"), "\"verify\"");
    EXPECT_EQ(value(rows_[first + 2], "round_trips_per_call"), "3.000");
    expect_keys(rows_[first + 2], {"p50_to_call", "p50_to_verify", "work_requests_per_call"});
    EXPECT_THAT(value(rows_[first + 3], "missing"), HasSubstr("verify_read"));
    EXPECT_EQ(value(rows_[first + 4], "guard"), "\"window\"");
    EXPECT_EQ(value(rows_[first + 4], "round_trips_per_call"), "2.000");
  }
}

TEST_F(BenchCommand, AStormUnderEachGuard) {
  ASSERT_EQ(run("storm --calls 400 --pairs 1 --size 16K --held 20 --modes block"), 0) << output_;
  ASSERT_EQ(rows_.size(), 10u) << json_;  // five guards, two directions
  for (const std::string& row : rows_) {
    EXPECT_EQ(value(row, "calls"), "400") << row;
    EXPECT_EQ(value(row, "held_percent"), "20");
    EXPECT_NE(value(row, "held_calls"), "0");
    expect_keys(row, {"goodput_ratio", "late_reads", "stale_refused", "wrong_bytes",
                      "connections_lost", "queue_pairs_lost", "timed_out", "failed", "calm_failed",
                      "p50_us", "p99_us", "p999_us", "calm_p50_us", "calm_p99_us", "p99_to_calm",
                      "deadline_us", "offered_calls_per_s"});
  }
  for (const std::size_t first : {0u, 5u}) {
    EXPECT_EQ(value(rows_[first], "direction"), first == 0 ? "\"download\"" : "\"upload\"");
    EXPECT_EQ(value(rows_[first], "guard"), "\"none\"");
    EXPECT_EQ(value(rows_[first + 1], "guard"), "\"disconnect\"");
    if (value(rows_[first], "wrong_bytes") == "0") {
      EXPECT_THAT(output_, HasSubstr("the run proved nothing"));
    }
    for (const std::size_t guarded : {first + 2, first + 3, first + 4}) {
      EXPECT_EQ(value(rows_[guarded], "wrong_bytes"), "0");
      EXPECT_EQ(value(rows_[guarded], "connections_lost"), "0");
    }
    EXPECT_NE(value(rows_[first + 2], "timed_out"), "0") << rows_[first + 2];
    EXPECT_EQ(value(rows_[first + 2], "guard"), "\"verify\"");
    EXPECT_NE(value(rows_[first + 2], "late_reads"), "0");
  }
  EXPECT_THAT(output_, HasSubstr("verify, download, 20 % held: goodput_ratio is "));
  EXPECT_THAT(json_, HasSubstr("\"targets\": [{\"guard\": \"verify\""));
}

TEST_F(BenchCommand, AStormSaysWhyAGuardIsNotThere) {
  ASSERT_EQ(run("storm --calls 20 --pairs 1 --size 4K --held 5 --modes block --direction download "
                "--guard verify_read"),
            0)
      << output_;
  ASSERT_EQ(rows_.size(), 1u) << json_;
  EXPECT_THAT(value(rows_[0], "missing"), HasSubstr("verify_read"));
}

TEST_F(BenchCommand, ConnectionsThatDoNothing) {
  ASSERT_EQ(run("conns --connections 5,70 --calls 10 --seconds 0.05 --pairs 1"), 0) << output_;
  ASSERT_EQ(rows_.size(), 3u) << json_;
  EXPECT_EQ(value(rows_[0], "connections"), "0");
  EXPECT_EQ(value(rows_[2], "connections"), "70");
  EXPECT_EQ(value(rows_[2], "calls"), "10");
  EXPECT_EQ(value(rows_[2], "server_files_per_connection"), "1.000");
  expect_keys(rows_[2], {"p50_to_none", "connects_per_s", "server_bytes_per_connection",
                         "receive_bytes_per_connection", "server_idle_cpu_percent"});
}

TEST_F(BenchCommand, GrpcIsARowInAnyCase) {
  ASSERT_EQ(run("echo --calls 10 --pairs 1 --modes block --outstanding 2 --against grpc"), 0)
      << output_;
  ASSERT_EQ(rows_.size(), 2u) << json_;
  EXPECT_EQ(value(rows_[1], "system"), "\"grpc\"");
  EXPECT_NE(value(rows_[1], "missing") + value(rows_[1], "calls_per_s"), "");
}

TEST_F(BenchCommand, ByTime) {
  ASSERT_EQ(run("echo --seconds 0.05 --pairs 1 --modes block --outstanding 2"), 0) << output_;
  ASSERT_EQ(rows_.size(), 2u);
  for (const std::string& row : rows_) EXPECT_NE(value(row, "calls"), "0");
}

TEST_F(BenchCommand, WrongUsageIsSaidByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "subcommand"},
      {"echo --modes fast", "--modes: \"fast\""},
      {"echo --size 0", "--size: \"0\""},
      {"echo --size 1M", "--size: \"1M\""},
      {"bulk --size 65M", "--size: \"65M\""},
      {"bulk --guard lock", "--guard: \"lock\""},
      {"bulk --against grpc", "--against: \"grpc\""},
      {"echo --outstanding 1,1", "--outstanding: 1 is named twice"},
      {"echo --pairs 0", "--pairs"},
      {"echo --calls 0", "--calls"},
      {"echo --fabric nowhere", "--fabric: there is no fabric \"nowhere\""},
      {"guards --modes spin,block", "--modes: the guards"},
      {"conns --connections 0", "--connections: \"0\""},
      {"guards --against raw", "--against"},
      {"storm --held 0", "--held: \"0\" will not do: a percentage from 1 to 90"},
      {"storm --held 1,100", "--held: \"100\""},
      {"storm --held 5%", "--held: \"5%\""},
      {"storm --guard lock", "--guard: \"lock\""},
      {"storm --size 0", "--size: \"0\""},
      {"storm --direction up", "--direction: \"up\" will not do: download or upload"},
      {"storm --modes spin,block", "--modes: a storm has one"},
      {"storm --outstanding 1,2", "--outstanding: a storm has one"}};
  for (const auto& [arguments, sentence] : cases) {
    Command command(std::string("bench ") + arguments);
    const int status = command.wait();
    EXPECT_EQ(WEXITSTATUS(status), 64) << arguments;
    EXPECT_THAT(command.output(), HasSubstr(sentence));
  }
}

TEST_F(BenchCommand, AProcessThatIsKilledEndsTheRunAndIsNamed) {
  Command command("bench echo --seconds 3600 --modes block --json " + file_);
  const pid_t server = command.child("server");
  ASSERT_GT(command.child("client"), 0) << command.output();
  ::kill(server, SIGKILL);
  const int status = command.wait();
  EXPECT_EQ(WEXITSTATUS(status), 1) << command.output();
  EXPECT_THAT(command.output(), HasSubstr("client process (pawl)"));
}

}  // namespace
}  // namespace pawl::tools
