// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pawl/result.h"

namespace pawl::fabric {

inline constexpr std::size_t kHostBytesMax = 253;  ///< a name in the DNS

/// A socket address: IPv4, IPv6 or Unix.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// What a text names: addresses, or a host whose addresses must be looked up first.
struct Target {
  std::vector<SocketAddress> addresses;  ///< in the order to try; empty: look `host` up
  std::string host;
  std::uint16_t port = 0;
};

/// Reads "127.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:7000", "localhost:7000", "host:7000",
/// "unix:/run/x" and "unix:@abstract". Looks nothing up but the index of an interface.
Result<Target> parse_target(std::string_view text);
/// The same for who connects: port 0, at which nothing listens, is invalid_argument.
Result<Target> parse_peer(std::string_view text);

/// The other way: "127.0.0.1:7000", "[fe80::1%eth0]:7000", "unix:/run/x". IPv4 addresses mapped
/// into IPv6 are written as IPv4.
std::string format_address(const SocketAddress& address);

/// The path of a Unix address in the file system; empty if it is abstract or of another family.
std::string unix_path(const SocketAddress& address);

/// 0.0.0.0 or [::].
bool is_wildcard(const SocketAddress& address);

/// A wildcard address made into one that another node could connect to: the first address of an
/// interface that is up and no loopback, else the loopback. For [::] one of IPv6, if there is one,
/// else of IPv4.
SocketAddress reachable_address(SocketAddress address);

void set_port(SocketAddress& address, std::uint16_t port);

}  // namespace pawl::fabric
