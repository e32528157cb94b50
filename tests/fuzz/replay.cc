// SPDX-License-Identifier: Apache-2.0
// test_fuzz TARGET FOLDER_OR_FILE...: every file once through the target, without libFuzzer.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"

namespace pawl::fuzz {
namespace {

struct Target {
  std::string_view name;
  void (*run)(Input);
};
constexpr Target kTargets[] = {
    {"handshake", handshake}, {"frames", frames},   {"descriptors", descriptors},
    {"metadata", metadata},   {"tickets", tickets}, {"proto", proto},
    {"tcp_wire", tcp_wire},   {"address", address}, {"connection", connection},
};

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int replay(const Target& target, int count, char** paths) {
  std::size_t files = 0;
  for (int i = 0; i < count; ++i) {
    for (const std::filesystem::path& path : files_of(paths[i])) {
      std::ifstream in(path, std::ios::binary);
      if (!in) {
        std::fprintf(stderr, "%s cannot be read\n", path.c_str());
        return 1;
      }
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      std::fprintf(stderr, "%s\n", path.c_str());  // the last line names what ended the process
      target.run(std::as_bytes(std::span(bytes)));
      ++files;
    }
  }
  std::printf("%s: %zu inputs\n", std::string(target.name).c_str(), files);
  return files > 0 ? 0 : 1;
}

}  // namespace
}  // namespace pawl::fuzz

int main(int count, char** arguments) {
  for (const auto& target : pawl::fuzz::kTargets) {
    if (count > 2 && target.name == arguments[1]) {
      return pawl::fuzz::replay(target, count - 2, arguments + 2);
    }
  }
  std::fprintf(stderr, "usage: test_fuzz TARGET FOLDER_OR_FILE...; targets:");
  for (const auto& target : pawl::fuzz::kTargets) {
    std::fprintf(stderr, " %s", std::string(target.name).c_str());
  }
  std::fprintf(stderr, "\n");
  return 64;
}
