// SPDX-License-Identifier: Apache-2.0
#include "demo_json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pawl::tools {

Result<JsonFile> JsonFile::open(const std::string& path) {
  JsonFile file(path, UniqueFd());
  if (path.empty()) return file;
  file.fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.fd_) return file.failed(errno);
  return file;
}

Status JsonFile::write(std::string_view text) {
  if (!fd_) return {};
  while (!text.empty()) {
    const ssize_t written = ::write(fd_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // A full or remote file system may say so only now.
  if (::close(fd_.release()) != 0 && errno != EINTR) return failed(errno);
  return {};
}

Status JsonFile::failed(int error) const {
  return Status::with_detail(Code::internal,
                             fmt::format("cannot write {}: {}", path_, std::strerror(error)));
}

}  // namespace pawl::tools
