// SPDX-License-Identifier: Apache-2.0
#include "demo_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"

namespace pawl::tools {

namespace {

namespace fs = std::filesystem;

/// Whether it can be opened: a mode does not say so for every user and file system.
bool opens(const std::string& path) {
  return static_cast<bool>(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
}

void take(const fs::directory_entry& entry, Folder& folder) {
  std::error_code error;
  if (!entry.is_regular_file(error)) return;  // also what went away
  const std::uintmax_t bytes = entry.file_size(error);
  if (error) return;
  if (bytes == 0) {
    ++folder.empty;
  } else if (!opens(entry.path().string())) {
    ++folder.unreadable;
  } else {
    folder.files.push_back({entry.path().string(), bytes});
  }
}

/// To the limits: of one file, of their number, of all their bytes.
void limit(Folder& folder) {
  std::uint64_t total = 0;
  std::size_t kept = 0;
  for (; kept < std::min(folder.files.size(), Folder::kFilesMax); ++kept) {
    Folder::File& file = folder.files[kept];
    const std::uint64_t bytes = std::min(file.bytes, Folder::kFileBytesMax);
    if (bytes > Folder::kTotalBytesMax - total) break;
    total += bytes;
    if (bytes < file.bytes) ++folder.cut;
    file.bytes = bytes;
  }
  folder.beyond = folder.files.size() - kept;
  folder.files.resize(kept);
}

}  // namespace

Result<Folder> Folder::scan(const std::string& dir, const std::function<bool()>& go_on) {
  Folder folder;
  folder.dir = dir;
  std::error_code error;
  for (fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied,
                                           error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (!go_on()) return Status(Code::cancelled, "interrupted");
    take(*it, folder);
  }
  if (error) {
    return Status::with_detail(Code::not_found,
                               fmt::format("cannot read {}: {}", dir, error.message()));
  }
  std::sort(folder.files.begin(), folder.files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  limit(folder);
  if (folder.files.size() < 2) {
    return Status::with_detail(
        Code::not_found,
        fmt::format("{} has fewer than two files with content that can be read ({} empty, {} not "
                    "readable): add files, at least two of similar size",
                    dir, folder.empty, folder.unreadable));
  }
  return folder;
}

std::string Folder::remarks() const {
  std::vector<std::string> parts;
  const auto add = [&parts](std::size_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(empty, "without content");
  add(unreadable, "that cannot be read");
  add(beyond, "beyond 65536 files or 1 GiB in all");
  std::string text;
  if (!parts.empty()) text = fmt::format("Files left out: {}. ", fmt::join(parts, ", "));
  if (cut > 0) text += fmt::format("Of {} only the first 64 MiB are used. ", cut);
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace pawl::tools
