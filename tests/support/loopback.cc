// SPDX-License-Identifier: Apache-2.0
#include "support/loopback.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"

namespace pawl::testing {
namespace {

bool ipv6_works() {
  const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

const char* ipv6_missing() {
  static const bool works = ipv6_works();
  return works ? nullptr : "this machine has no IPv6 loopback ([::1])";
}

// A filter of system calls: socket(AF_INET6, …) answers EAFNOSUPPORT.
const char* forbid_ipv6() {
  constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t kEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
  std::array<sock_filter, 6> filter{{
      {kLoad, 0, 0, offsetof(seccomp_data, nr)},
      {kEqual, 0, 3, SYS_socket},
      {kLoad, 0, 0, offsetof(seccomp_data, args)},
      {kEqual, 0, 1, AF_INET6},
      {kReturn, 0, 0, SECCOMP_RET_ERRNO | EAFNOSUPPORT},
      {kReturn, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return "this kernel filters no system calls (seccomp)";
  }
  return nullptr;
}

}  // namespace pawl::testing
