// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "fabric/socket/address.h"
#include "pawl/result.h"

namespace pawl::fabric {

inline constexpr int kListenBacklog = 1024;  ///< connections, in the kernel

/// A socket that listens, close-on-exec and non-blocking. Removes its own socket file at the end.
/// One thread.
class ListenSocket {
 public:
  ListenSocket() = default;
  ListenSocket(ListenSocket&& other) noexcept { *this = std::move(other); }
  ListenSocket& operator=(ListenSocket&& other) noexcept;
  ~ListenSocket() { remove_file(); }

  /// Listens at an address as parse_target reads it; a name is refused. [::] takes IPv4 as well,
  /// and IPv4 alone on a kernel without IPv6. Takes the place of a socket file whose process died.
  /// Errors name the address and the remedy.
  static Result<ListenSocket> open(std::string_view text);

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// With the port that the system chose, as another node would connect to it.
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  void remove_file();

  UniqueFd fd_;
  std::string address_;
  std::string path_;  // of a Unix socket in the file system
  std::uint64_t inode_ = 0;
};

/// Who is at the other end of an accepted socket, for messages; `listener` names Unix peers.
std::string peer_text(int fd, const SocketAddress& address, const std::string& listener);

}  // namespace pawl::fabric
