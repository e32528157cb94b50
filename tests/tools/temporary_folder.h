// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/random.h"

namespace pawl::testing {

/// A folder that is removed with its content when this goes.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "pawl_tools_XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no folder " << path_;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

  /// A file of random bytes, different for each name. Folders in the name are made.
  void write(const std::string& name, std::size_t bytes) const {
    const std::filesystem::path file(path(name));
    std::filesystem::create_directories(file.parent_path());
    Random random(std::hash<std::string>()(name));
    std::string content(bytes, '\0');
    for (char& c : content) c = static_cast<char>(random.next());
    std::ofstream(file, std::ios::binary) << content;
  }
  /// A file of zeros that takes no room.
  void write_sparse(const std::string& name, std::size_t bytes) const {
    std::ofstream(path(name)).put('s');
    std::filesystem::resize_file(path(name), bytes);
  }

 private:
  std::string path_;
};

}  // namespace pawl::testing
