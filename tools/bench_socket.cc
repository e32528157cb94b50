// SPDX-License-Identifier: Apache-2.0
#include "bench_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace pawl::tools {

namespace {

Status failed(const char* what) { return Status(Code::unavailable, what, Ran::no, errno); }

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// The buffers must be set before the handshake, which chooses the window's scale.
Result<UniqueFd> make_socket(std::uint32_t buffer_bytes) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return failed("no socket");
  if (buffer_bytes > 0) {
    const int bytes = static_cast<int>(buffer_bytes);
    for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
      ::setsockopt(fd.get(), SOL_SOCKET, option, &bytes, sizeof(bytes));
    }
  }
  return fd;
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool again(int error, bool spin) { return error == EINTR || (spin && error == EAGAIN); }

}  // namespace

Result<RawSocket> RawSocket::connect(const std::string& address, bool spin,
                                     std::uint32_t buffer_bytes) {
  Result<UniqueFd> fd = make_socket(buffer_bytes);
  if (!fd.ok()) return fd.status();
  const std::string port = address.substr(address.rfind(':') + 1);
  const sockaddr_in to =
      loopback(static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 10)));
  if (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    return failed("the raw server cannot be reached");
  }
  set_no_delay(fd->get());
  return RawSocket(*std::move(fd), spin);
}

Status RawSocket::send(std::span<iovec> parts) {
  const int flags = MSG_NOSIGNAL | (spin_ ? MSG_DONTWAIT : 0);
  while (!parts.empty()) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, flags);
    if (sent < 0) {
      if (again(errno, spin_)) continue;
      return failed("send failed");
    }
    std::size_t left = static_cast<std::size_t>(sent);
    while (!parts.empty() && left >= parts[0].iov_len) {
      left -= parts[0].iov_len;
      parts = parts.subspan(1);
    }
    if (parts.empty()) break;
    parts[0].iov_base = static_cast<std::byte*>(parts[0].iov_base) + left;
    parts[0].iov_len -= left;
  }
  return {};
}

Status RawSocket::send(std::span<const std::byte> bytes) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return send(std::span(&part, 1));
}

Result<std::size_t> RawSocket::receive_some(std::span<std::byte> out) {
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), out.data(), out.size(), spin_ ? MSG_DONTWAIT : 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (!again(errno, spin_)) return failed("recv failed");
  }
}

Status RawSocket::receive(std::span<std::byte> out) {
  while (!out.empty()) {
    const Result<std::size_t> got = receive_some(out);
    if (!got.ok()) return got.status();
    if (*got == 0) return Status(Code::unavailable, "the stream ended");
    out = out.subspan(*got);
  }
  return {};
}

Result<RawListener> RawListener::listen(std::uint32_t buffer_bytes) {
  Result<UniqueFd> fd = make_socket(buffer_bytes);
  if (!fd.ok()) return fd.status();
  const sockaddr_in any = loopback(0);
  if (::bind(fd->get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
      ::listen(fd->get(), 1) != 0) {
    return failed("cannot listen on loopback");
  }
  return RawListener(*std::move(fd));
}

std::string RawListener::address() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

Result<RawSocket> RawListener::accept(bool spin) {
  UniqueFd fd;
  do {
    fd.reset(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  } while (!fd && errno == EINTR);
  if (!fd) return failed("accept failed");
  set_no_delay(fd.get());
  return RawSocket(std::move(fd), spin);
}

}  // namespace pawl::tools
