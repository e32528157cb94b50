// SPDX-License-Identifier: Apache-2.0
// Arbitrary text as the address of a peer.
#include <sys/un.h>

#include <string>

#include "fabric/socket/address.h"
#include "fuzz/input.h"

namespace pawl::fuzz {

void address(Input input) {
  const Exact exact(input);
  const Result<fabric::Target> got = fabric::parse_target(exact.text());
  if (!got.ok()) {
    require(got.status().code() == Code::invalid_argument, "a bad address is invalid_argument");
    const std::string_view why = got.status().what();
    require(why.starts_with("address '") && why.size() < 512, "a bad address is told why, shortly");
    return;
  }
  require(got->addresses.empty() != got->host.empty(),
          "a target is a list of addresses or a host to look up");
  require(got->host.size() <= fabric::kHostBytesMax, "a host's name is within its limit");
  for (const fabric::SocketAddress& each : got->addresses) {
    require(each.length <= sizeof(each.storage), "an address fits into its storage");
    const std::string text = fabric::format_address(each);
    const Result<fabric::Target> again = fabric::parse_target(text);
    require(again.ok() && again->addresses.size() == 1, "what an address is written as is one");
    require(fabric::format_address(again->addresses[0]) == text,
            "an address is written in one way");
    require(fabric::unix_path(each).size() < sizeof(sockaddr_un::sun_path),
            "a path is within limits");
    if (each.family() != again->addresses[0].family()) continue;  // IPv4 mapped into IPv6
    require(each.length == again->addresses[0].length &&
                std::memcmp(&each.storage, &again->addresses[0].storage, each.length) == 0,
            "an address is the same after it was written and read");
  }
}

}  // namespace pawl::fuzz
