// SPDX-License-Identifier: Apache-2.0
// The file of `pawl demo --json`, also when the run fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "tools/command.h"
#include "tools/demo_json.h"
#include "tools/temporary_folder.h"

namespace pawl::tools {
namespace {

using testing::Command;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What the descriptors of a process are of.
std::vector<std::string> open_files(pid_t pid) {
  std::vector<std::string> files;
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code closed;
    files.push_back(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  return files;
}

std::size_t memories(const std::vector<std::string>& files) {
  std::size_t count = 0;
  for (const std::string& file : files) count += file.rfind("/memfd:pawl-", 0) == 0 ? 1 : 0;
  return count;
}

class JsonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Command::path().empty()) GTEST_SKIP() << "there is no pawl command in PAWL_BIN_DIR";
    for (const char* name : {"files/a", "files/b"}) folder_.write(name, 3000);
  }
  /// Without a trial run before the first row.
  std::string endless() const {
    return "demo --guards none --seconds 3600 --deadline-ms 50 --dir " + folder_.path("files") +
           " --json " + file_;
  }

  TemporaryFolder folder_;
  const std::string file_ = folder_.path("result.json");
};

TEST_F(JsonTest, ItsDescriptorIsNotInheritedAndAnInterruptedRunSaysSo) {
  Command demo(endless());
  for (const char* role : {"server", "client"}) {
    const pid_t child = demo.child(role);
    ASSERT_GT(child, 0) << demo.output();
    EXPECT_TRUE(std::filesystem::exists(file_));
    const std::vector<std::string> files = open_files(child);
    EXPECT_GT(memories(files), 0u) << "these are inherited";
    const std::string path = std::filesystem::canonical(file_).string();
    EXPECT_THAT(files, ::testing::Not(::testing::Contains(path)));
  }
  demo.signal(SIGINT);
  const int status = demo.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_EQ(content(file_), R"({"seed": 1, "passed": false, "sentence": "FAILED: interrupted.", )"
                            "\"rows\": []}\n");
}

TEST_F(JsonTest, ARunWhoseProcessIsKilledSaysWhich) {
  Command demo(endless());
  const pid_t client = demo.child("client");
  ASSERT_GT(client, 0) << demo.output();
  ::kill(client, SIGKILL);
  const int status = demo.wait();
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1) << demo.output();
  const std::string json = content(file_);
  EXPECT_EQ(json.find(R"({"seed": 1, "passed": false, "sentence": "FAILED: )"), 0u) << json;
  EXPECT_THAT(json, HasSubstr("client process (guard none) was ended by signal 9"));
  EXPECT_THAT(json, EndsWith("\"rows\": []}\n"));
}

TEST_F(JsonTest, AFolderThatWillNotDoIsSaidInTheFileToo) {
  const TemporaryFolder empty;
  Command demo("demo --dir " + empty.path() + " --json " + file_);
  const int status = demo.wait();
  EXPECT_EQ(WEXITSTATUS(status), 64) << demo.output();
  EXPECT_THAT(content(file_), HasSubstr("\"passed\": false"));
  EXPECT_THAT(content(file_), HasSubstr("add files"));
}

TEST_F(JsonTest, AFileThatCannotBeOpenedEndsTheRunBeforeItBegins) {
  Command demo("demo --seconds 3600 --json " + folder_.path("none/result.json"));
  const int status = demo.wait();
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(demo.output(), HasSubstr("cannot write"));
}

TEST(JsonFileTest, AFullFileSystemIsAnError) {
  Result<JsonFile> full = JsonFile::open("/dev/full");
  ASSERT_TRUE(full.ok());
  const Status status = full->write("{}");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.what()), HasSubstr("cannot write /dev/full: No space left"));
}

TEST(JsonFileTest, WhatWasThereIsReplaced) {
  const TemporaryFolder folder;
  folder.write("result.json", 10000);
  Result<JsonFile> file = JsonFile::open(folder.path("result.json"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->write("{}\n").ok());
  EXPECT_EQ(content(folder.path("result.json")), "{}\n");
}

}  // namespace
}  // namespace pawl::tools
