// SPDX-License-Identifier: Apache-2.0
#include "fabric/socket/listen_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "fabric/socket/socket.h"

namespace pawl::fabric {
namespace {

Status listen_error(std::string_view address, const char* call, int error) {
  std::string text =
      "cannot listen on " + std::string(address) + ": " + call + ": " + errno_text(error);
  Code code = Code::unavailable;
  switch (error) {
    case EADDRINUSE:
      code = Code::already_exists;
      text += "; another listener is there, or take port 0";
      break;
    case EADDRNOTAVAIL:
      code = Code::invalid_argument;
      text += "; no interface of this machine has the address";
      break;
    case EACCES:
      code = Code::permission_denied;
      text += "; take a port above 1023 or a folder that may be written";
      break;
    case EMFILE:
    case ENFILE:
      code = Code::resource_exhausted;
      text += "; raise nofile";
      break;
    default:
      break;
  }
  return Status::with_detail(code, std::move(text), Ran::no, error);
}

std::uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

/// True if a socket file is there whose listener is not.
bool is_stale(const SocketAddress& address, const std::string& path) {
  if (inode_of(path) == 0) return false;
  const UniqueFd probe = stream_socket(AF_UNIX);
  return probe && ::connect(probe.get(), address.get(), address.length) != 0 &&
         errno == ECONNREFUSED;
}

SocketAddress wildcard_v4(std::uint16_t port) {
  SocketAddress address = parse_target("0.0.0.0:0")->addresses.front();
  set_port(address, port);
  return address;
}

int bind_socket(int fd, const SocketAddress& address) {
  const int one = 1;
  const int zero = 0;
  if (address.family() != AF_UNIX) {
    static_cast<void>(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
  }
  if (address.family() == AF_INET6) {  // [::] takes IPv4 as well
    static_cast<void>(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero));
  }
  if (::bind(fd, address.get(), address.length) == 0) return 0;
  const int error = errno;
  const std::string path = unix_path(address);
  if (error != EADDRINUSE || path.empty() || !is_stale(address, path)) return error;
  static_cast<void>(::unlink(path.c_str()));  // left behind by a process that died
  return ::bind(fd, address.get(), address.length) == 0 ? 0 : errno;
}

}  // namespace

Result<ListenSocket> ListenSocket::open(std::string_view text) {
  Result<Target> target = parse_target(text);
  if (!target.ok()) return target.status();
  if (target->addresses.empty()) {
    return Status::with_detail(Code::invalid_argument,
                               "cannot listen on the name " + target->host +
                                   "; write an address of this machine, or 0.0.0.0 or [::]");
  }
  SocketAddress address = target->addresses.front();
  ListenSocket made;
  made.fd_ = stream_socket(address.family());
  if (!made.fd_ && address.family() == AF_INET6 && is_wildcard(address)) {
    address = wildcard_v4(target->port);  // the half of [::] that this kernel has
    made.fd_ = stream_socket(address.family());
  }
  if (!made.fd_) return listen_error(text, "socket", errno);
  const int fd = made.fd_.get();
  if (const int error = bind_socket(fd, address); error != 0) {
    return listen_error(text, "bind", error);
  }
  made.path_ = unix_path(address);
  if (!made.path_.empty()) made.inode_ = inode_of(made.path_);
  if (::listen(fd, kListenBacklog) != 0) return listen_error(text, "listen", errno);
  if (address.family() != AF_UNIX) {
    address.length = sizeof address.storage;
    if (getsockname(fd, address.get(), &address.length) != 0) {
      return listen_error(text, "getsockname", errno);
    }
  }
  made.address_ = format_address(reachable_address(address));
  return made;
}

ListenSocket& ListenSocket::operator=(ListenSocket&& other) noexcept {
  if (this == &other) return *this;
  remove_file();
  fd_ = std::move(other.fd_);
  address_ = std::move(other.address_);
  path_ = std::exchange(other.path_, {});
  inode_ = std::exchange(other.inode_, 0);
  return *this;
}

void ListenSocket::remove_file() {
  // Another process may have taken the path meanwhile: only our own file is removed.
  if (!path_.empty() && inode_ != 0 && inode_of(path_) == inode_) {
    static_cast<void>(::unlink(path_.c_str()));
  }
  path_.clear();
}

std::string peer_text(int fd, const SocketAddress& address, const std::string& listener) {
  if (address.family() != AF_UNIX) return format_address(address);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return listener;
  return listener + " (process " + std::to_string(peer.pid) + ", user " + std::to_string(peer.uid) +
         ")";
}

}  // namespace pawl::fabric
