// SPDX-License-Identifier: Apache-2.0
#include "support/own_network.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace pawl::testing {

namespace {
UniqueFd network_of_thread() {
  return UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}
}  // namespace

OwnNetwork::OwnNetwork() : before_(network_of_thread()) {
  if (std::system("ip -V >/dev/null 2>&1") != 0) {
    missing_ = "there is no command ip (Debian: iproute2)";
  } else if (!before_ || ::unshare(CLONE_NEWNET) != 0) {
    missing_ = "the test has no right to make a network namespace";
    before_.reset();
  } else if (!ip("link set lo up")) {
    missing_ = "the loopback interface of a new network namespace does not come up";
  }
  own_ = network_of_thread();
}

OwnNetwork::~OwnNetwork() {
  if (before_ && ::setns(before_.get(), CLONE_NEWNET) != 0) std::abort();
}

void OwnNetwork::enter() const {
  if (::setns(own_.get(), CLONE_NEWNET) != 0) std::abort();
}

std::string OwnNetwork::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(own_.get());
}

bool OwnNetwork::ip(const std::string& arguments) const {
  return std::system(("ip " + arguments).c_str()) == 0;
}

bool OwnNetwork::set_ipv6(const std::string& name, int value) const {
  std::ofstream file("/proc/sys/net/ipv6/" + name);
  file << value << std::flush;
  return file.good();
}

}  // namespace pawl::testing
