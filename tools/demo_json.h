// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "pawl/result.h"

namespace pawl::tools {

/// The file of --json. It is opened before the run, so that a path that cannot be written is known
/// at once, and is not inherited by the processes of the run. Move-only.
class JsonFile {
 public:
  /// Makes or empties the file. An empty path is no file: `write` does nothing.
  static Result<JsonFile> open(const std::string& path);

  /// All there is to write, once. Not ok unless the system took every byte.
  Status write(std::string_view text);

 private:
  JsonFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  [[nodiscard]] Status failed(int error) const;

  std::string path_;
  UniqueFd fd_;
};

}  // namespace pawl::tools
