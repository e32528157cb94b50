// SPDX-License-Identifier: Apache-2.0
// `pawl demo` as one sees it on a terminal that is too narrow for the whole table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/temporary_folder.h"

namespace pawl {
namespace {

using testing::Command;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// The lines that were drawn, one after the other, without what moves the cursor or colours.
std::vector<std::string> lines_of(const std::string& drawn) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < drawn.size(); ++at) {
    if (drawn[at] == '\x1b') {
      at = std::min(drawn.find_first_of("AKm", at), drawn.size());
    } else if (drawn[at] == '\n') {
      lines.emplace_back();
    } else if (drawn[at] != '\r') {
      lines.back() += drawn[at];
    }
  }
  return lines;
}

std::size_t longest(const std::vector<std::string>& lines) {
  std::size_t most = 0;
  for (const std::string& line : lines) most = std::max(most, line.size());
  return most;
}

/// What stood under "wrong bytes accepted" in the row of `none` while it ran, 0 aside: the column
/// ends where its title does.
std::set<std::string> wrong_bytes_seen(const std::string& drawn) {
  std::set<std::string> seen;
  std::size_t end = std::string::npos;
  for (const std::string& line : lines_of(drawn)) {
    const std::size_t title = line.find("accepted");
    if (title != std::string::npos) end = title + std::string("accepted").size();
    if (line.rfind("none ", 0) != 0 || end == std::string::npos || line.size() < end) continue;
    const std::string cell = line.substr(end - 9, 9);
    const std::string text = cell.substr(std::min(cell.find_first_not_of(' '), cell.size()));
    if (!text.empty() && text != "0") seen.insert(text);
  }
  return seen;
}

class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Command::path().empty()) GTEST_SKIP() << "there is no pawl command in PAWL_BIN_DIR";
    for (const char* name : {"a", "b", "c"}) folder_.write(name, 3000);
  }
  std::string demo() const { return "demo --guards none,verify --dir " + folder_.path(); }

  TemporaryFolder folder_;
};

TEST_F(TerminalTest, WrongBytesTickUpWhileTheRowOfNoneRunsOn80Columns) {
  Command command(demo() + " --seconds 3600", 80);
  EXPECT_TRUE(command.read_until([](const std::string& drawn) {
    return wrong_bytes_seen(drawn).size() >= 3;
  })) << command.output();
  command.signal(SIGINT);
  const int status = command.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_LE(longest(lines_of(command.output())), 80u) << command.output();
  EXPECT_THAT(command.output(), HasSubstr("goodput"));
}

TEST_F(TerminalTest, TheWholeRunFitsIn60ColumnsAndLeavesOutNoFigure) {
  Command command(demo() + " --seconds 2", 60);
  const int status = command.wait();
  SCOPED_TRACE(command.output());
  EXPECT_TRUE(WIFEXITED(status)) << status;
  const std::vector<std::string> lines = lines_of(command.output());
  EXPECT_LE(longest(lines), 60u);
  for (const char* word : {"wrong", "goodput", "timed", "executed", "p50", "p99", "p99.9"}) {
    EXPECT_THAT(command.output(), HasSubstr(word));
  }
  EXPECT_THAT(command.output(), HasSubstr("pawl demo "));  // the verdict
}

}  // namespace
}  // namespace pawl
