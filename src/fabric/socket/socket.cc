// SPDX-License-Identifier: Apache-2.0
#include "fabric/socket/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace pawl::fabric {
namespace {

void set_option(int fd, int level, int option, int value) {
  // An option that the kernel does not know costs a feature, not the connection.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

int whole_seconds(Duration d) {
  const auto n = std::chrono::duration_cast<std::chrono::seconds>(d).count();
  return n < 1 ? 1 : static_cast<int>(n);
}

bool is_inet(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return false;
  return domain == AF_INET || domain == AF_INET6;
}

}  // namespace

std::string errno_text(int error) {
  const char* const text = strerrordesc_np(error);
  const char* const name = strerrorname_np(error);
  if (text == nullptr || name == nullptr) return "error " + std::to_string(error);
  return std::string(text) + " (" + name + ")";
}

UniqueFd stream_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void tune_connection(int fd, const KeepAlive& keep_alive) {
  if (!is_inet(fd)) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, whole_seconds(keep_alive.idle));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, whole_seconds(keep_alive.interval));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, keep_alive.probes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, whole_seconds(keep_alive.unacked) * 1000);
}

void limit_unsent(int fd, int bytes) {
  if (is_inet(fd)) set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
}

int take_socket_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

bool connected_to_itself(int fd) {
  SocketAddress here;
  SocketAddress there;
  here.length = sizeof here.storage;
  there.length = sizeof there.storage;
  if (getsockname(fd, here.get(), &here.length) != 0) return false;
  if (getpeername(fd, there.get(), &there.length) != 0) return false;
  if (here.family() == AF_UNIX || here.length != there.length) return false;
  return std::memcmp(&here.storage, &there.storage, here.length) == 0;
}

ssize_t send_message(int fd, const msghdr& message) {
  ssize_t n = 0;
  do {
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

// The one place where the bytes of a lent region leave. A lease may have ended while its key is
// still good (guards verify and verify_read), so the next user of the buffer may be storing to it
// while the kernel copies from it: that race is intended, because the reader's check refuses the
// bytes. As a plain call ThreadSanitizer would report it, and rightly so for any other memory; it
// does not intercept the raw system call. Nothing else in the library reads lent memory for a
// peer. The copy must be finished on return: no MSG_ZEROCOPY, no splice, no asynchronous send,
// since these carry what is stored later.
ssize_t send_lent(int fd, const msghdr& message) {
  ssize_t n = 0;
  do {
    n = ::syscall(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace pawl::fabric
