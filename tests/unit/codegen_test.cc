// SPDX-License-Identifier: Apache-2.0
// protoc-gen-pawl, run by protoc: what it writes, and what it refuses, in which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "pawl/service.h"
#include "sample.pawl.h"

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Codegen : public testing::Test {
 protected:
  void SetUp() override {
    source_ = environment("PAWL_SOURCE_DIR");
    plugin_ = fs::path(environment("PAWL_BIN_DIR")) / "protoc-gen-pawl";
    if (source_.empty() || !fs::exists(plugin_)) GTEST_SKIP() << "no protoc-gen-pawl to run";
    std::string pattern = (fs::temp_directory_path() / "pawl-codegen-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  /// Runs protoc on `proto` below `imports`; gives what it printed, and its exit code.
  std::string protoc(const fs::path& imports, const std::string& proto,
                     const std::string& parameter = "") {
    std::string command = "protoc --plugin=protoc-gen-pawl=" + plugin_.string() +
                          " --pawl_out=" + parameter + folder_.string() + " -I" + imports.string() +
                          " -I" + (source_ / "proto").string() + " " + proto + " 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return "popen failed";
    std::string output;
    std::array<char, 4096> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
    exit_code_ = pclose(pipe);
    return output;
  }

  /// What the plugin says to a service of this body, in package demo.
  std::string refusal(const std::string& service, const std::string& more = "") {
    std::ofstream(folder_ / "bad.proto") << R"(syntax = "proto3";
package demo;
import "pawl/options.proto";
import "google/protobuf/empty.proto";
message Empty {}
message Full { string text = 1; }
)" << more << "service Blocks {\n" << service
                                         << "\n}\n";
    const std::string output = protoc(folder_, "bad.proto");
    EXPECT_NE(exit_code_, 0) << "it was accepted";
    EXPECT_FALSE(fs::exists(folder_ / "bad.pawl.h"));
    return output;
  }

  fs::path source_;
  fs::path plugin_;
  fs::path folder_;
  int exit_code_ = -1;
};

TEST_F(Codegen, WritesTheGoldenText) {
  const std::string output = protoc(source_ / "tests/proto", "sample.proto");
  ASSERT_EQ(exit_code_, 0) << output;
  const fs::path golden = source_ / "tests/unit/golden/sample.pawl.txt";
  const std::string written = read_file(folder_ / "sample.pawl.h");
  if (!environment("PAWL_UPDATE_GOLDEN").empty()) std::ofstream(golden) << written;
  EXPECT_EQ(written, read_file(golden)) << "if that is meant: PAWL_UPDATE_GOLDEN=1";
}

TEST_F(Codegen, AFileWithoutServicesGetsNoHeader) {
  const std::string output = protoc(source_ / "tests/proto", "legacy.proto");
  EXPECT_EQ(exit_code_, 0) << output;
  EXPECT_FALSE(fs::exists(folder_ / "legacy.pawl.h"));
}

TEST_F(Codegen, AFileWithoutAPackageIsInTheGlobalNamespace) {
  std::ofstream(folder_ / "bare.proto") << "syntax = \"proto3\";\nmessage Empty {}\n"
                                           "service Bare { rpc Do2It(Empty) returns (Empty); }\n";
  const std::string output = protoc(folder_, "bare.proto");
  ASSERT_EQ(exit_code_, 0) << output;
  const std::string header = read_file(folder_ / "bare.pawl.h");
  EXPECT_THAT(header, HasSubstr("\"Bare/Do2It\""));
  EXPECT_THAT(header, HasSubstr("const ::Empty& request"));
  EXPECT_THAT(header, HasSubstr(" do2_it("));
  EXPECT_THAT(header, testing::Not(HasSubstr("namespace")));
}

TEST_F(Codegen, RefusesParameters) {
  const std::string output = protoc(source_ / "tests/proto", "sample.proto", "fast=1:");
  EXPECT_NE(exit_code_, 0);
  EXPECT_THAT(output, HasSubstr("takes no parameters, but got `fast=1`"));
}

TEST_F(Codegen, RefusesStreams) {
  for (const char* method :
       {"rpc Watch(Empty) returns (stream Full);", "rpc Watch(stream Full) returns (Empty);"}) {
    const std::string output = refusal(method);
    EXPECT_THAT(output, HasSubstr("bad.proto:8: demo.Blocks/Watch: Pawl has no streaming rpcs"));
    EXPECT_THAT(output, HasSubstr("option (pawl.bulk)"));
    EXPECT_THAT(output, HasSubstr("cursor"));
    EXPECT_THAT(output, HasSubstr("Call::caller"));
  }
}

TEST_F(Codegen, RefusesOneWayWithBulkOrWithAReply) {
  EXPECT_THAT(refusal("rpc Put(Full) returns (Empty) {\n"
                      "  option (pawl.one_way) = true;\n  option (pawl.bulk) = UPLOAD;\n}"),
              HasSubstr("demo.Blocks/Put: (pawl.one_way) and (pawl.bulk) exclude each other"));
  EXPECT_THAT(refusal("rpc Put(Full) returns (Full) { option (pawl.one_way) = true; }"),
              HasSubstr("nobody would see the fields of demo.Full: return google.protobuf.Empty"));
}

TEST_F(Codegen, BothDirectionsCannotBeSaid) {
  EXPECT_THAT(refusal("rpc Put(Full) returns (Full) {\n"
                      "  option (pawl.bulk) = UPLOAD;\n  option (pawl.bulk) = DOWNLOAD;\n}"),
              HasSubstr("already set"));
}

TEST_F(Codegen, RefusesNamesThatCppCannotHave) {
  EXPECT_THAT(refusal("rpc Delete(Empty) returns (Empty);"),
              HasSubstr("demo.Blocks/Delete: in C++ it would be called `delete`, which is a "
                        "keyword: rename the method"));
  EXPECT_THAT(refusal("rpc Handle(Empty) returns (Empty);"),
              HasSubstr("`handle`, which the generated classes use for themselves"));
  EXPECT_THAT(
      refusal("rpc GetBlock(Empty) returns (Empty);\nrpc get_block(Empty) returns (Empty);"),
      HasSubstr("demo.Blocks/get_block: in C++ it would be called `get_block`, like "
                "demo.Blocks/GetBlock"));
}

TEST_F(Codegen, RefusesNamesOfOthers) {
  EXPECT_THAT(refusal("", "message BlocksClient {}\n"),
              HasSubstr("demo.Blocks: its class `BlocksClient` would have the name of "
                        "demo.BlocksClient in bad.proto"));
  EXPECT_THAT(refusal("", "enum BlocksKind { BlocksService = 0; }\n"),
              HasSubstr("demo.BlocksService"));
  EXPECT_THAT(refusal("", "service BlocksService {}\n"),
              HasSubstr("its class would be called `BlocksService`, like that of demo.Blocks"));
}

TEST_F(Codegen, SaysAllThatIsWrongAtOnce) {
  const std::string output =
      refusal("rpc New(Empty) returns (Empty);\nrpc Watch(Empty) returns (stream Full);");
  EXPECT_THAT(output, HasSubstr("bad.proto:8: demo.Blocks/New"));
  EXPECT_THAT(output, HasSubstr("bad.proto:9: demo.Blocks/Watch"));
}

TEST(GeneratedMethods, CarryTheOptions) {
  using Methods = sample::v1::EverythingMethods;
  static_assert(Methods::kAll.size() == 4);
  EXPECT_STREQ(Methods::plain.name, "sample.v1.Everything/Plain");
  EXPECT_EQ(Methods::plain.hash, pawl::method_hash("sample.v1.Everything/Plain"));
  EXPECT_EQ(Methods::plain.bulk, pawl::BulkDirection::none);
  EXPECT_EQ(Methods::get_http_block2.bulk, pawl::BulkDirection::download);
  EXPECT_EQ(Methods::put_block.bulk, pawl::BulkDirection::upload);
  EXPECT_TRUE(Methods::get_http_block2.idempotent);
  EXPECT_FALSE(Methods::put_block.idempotent);
  EXPECT_TRUE(Methods::note.idempotent);
  EXPECT_TRUE(Methods::note.one_way);
}

}  // namespace
