// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pawl/result.h"

namespace pawl::tools {

/// What `--dir` offers: the regular files below a folder that can be opened and have content, in
/// the order of their paths. Links to files count as files, links to folders are not followed.
/// Folders that may not be entered are left out.
struct Folder {
  static constexpr std::uint64_t kFileBytesMax = std::uint64_t{64}
                                                 << 20;  ///< of one: its beginning
  static constexpr std::uint64_t kTotalBytesMax = std::uint64_t{1} << 30;
  static constexpr std::size_t kFilesMax = 65536;

  struct File {
    std::string path;
    std::uint64_t bytes;  ///< used of it: 1 to kFileBytesMax
  };

  std::string dir;
  std::vector<File> files;
  std::size_t cut = 0;         ///< of `files`: those that are longer
  std::size_t empty = 0;       ///< left out
  std::size_t unreadable = 0;  ///< left out
  std::size_t beyond = 0;      ///< left out: from the first that exceeded a limit of the whole

  /// not_found if `dir` cannot be read, or if fewer than two files are left. `go_on` is asked for
  /// each entry; cancelled once it says no.
  static Result<Folder> scan(const std::string& dir, const std::function<bool()>& go_on);
  /// What was left out, as a sentence; empty if nothing.
  [[nodiscard]] std::string remarks() const;
};

}  // namespace pawl::tools
