// SPDX-License-Identifier: Apache-2.0
#include "fabric/socket/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

namespace pawl::fabric {
namespace {

template <class T>
T* as(SocketAddress& address) {
  return reinterpret_cast<T*>(&address.storage);
}
template <class T>
const T* as(const SocketAddress& address) {
  return reinterpret_cast<const T*>(&address.storage);
}

Status bad(std::string_view text, std::string_view why) {
  std::string shown(text.substr(0, 128));
  return Status::with_detail(Code::invalid_argument,
                             "address '" + shown + "': " + std::string(why) +
                                 "; write host:port, [ipv6]:port or unix:/path");
}

SocketAddress make_v4(std::uint32_t network_order) {
  SocketAddress out;
  auto* const v4 = as<sockaddr_in>(out);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = network_order;
  out.length = sizeof(sockaddr_in);
  return out;
}

SocketAddress make_v6(const in6_addr& bytes, std::uint32_t scope) {
  SocketAddress out;
  auto* const v6 = as<sockaddr_in6>(out);
  v6->sin6_family = AF_INET6;
  v6->sin6_addr = bytes;
  v6->sin6_scope_id = scope;
  out.length = sizeof(sockaddr_in6);
  return out;
}

Result<Target> parse_unix(std::string_view text, std::string_view path) {
  SocketAddress out;
  auto* const local = as<sockaddr_un>(out);
  local->sun_family = AF_UNIX;
  if (path.empty() || path == "@") return bad(text, "the path is empty");
  if (path.size() >= sizeof local->sun_path) return bad(text, "a Unix path has at most 107 bytes");
  if (path.find('\0') != std::string_view::npos) return bad(text, "the path has a zero byte");
  std::memcpy(local->sun_path, path.data(), path.size());
  std::size_t length = offsetof(sockaddr_un, sun_path) + path.size();
  if (path.front() == '@') {
    local->sun_path[0] = '\0';
  } else {
    ++length;  // the zero that ends the path
  }
  out.length = static_cast<socklen_t>(length);
  Target target;
  target.addresses.push_back(out);
  return target;
}

bool parse_port(std::string_view text, std::uint16_t& port) {
  if (text.empty() || text.size() > 5) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

/// The scope of "%eth0" or "%3"; 0 if there is no such interface.
std::uint32_t parse_zone(std::string_view zone) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(zone.data(), zone.data() + zone.size(), number);
  if (error == std::errc() && end == zone.data() + zone.size()) return number;
  if (zone.empty() || zone.size() >= IF_NAMESIZE) return 0;
  return if_nametoindex(std::string(zone).c_str());
}

Result<Target> parse_bracketed(std::string_view text) {
  const std::size_t close = text.find(']');
  if (close == std::string_view::npos) return bad(text, "']' is missing");
  std::string_view host = text.substr(1, close - 1);
  const std::string_view rest = text.substr(close + 1);
  Target target;
  if (rest.empty() || rest.front() != ':' || !parse_port(rest.substr(1), target.port)) {
    return bad(text, "':' and a port of 0 to 65535 must follow ']'");
  }
  std::uint32_t scope = 0;
  if (const std::size_t percent = host.find('%'); percent != std::string_view::npos) {
    scope = parse_zone(host.substr(percent + 1));
    if (scope == 0) return bad(text, "there is no interface of the zone's name");
    host = host.substr(0, percent);
  }
  in6_addr bytes{};
  if (inet_pton(AF_INET6, std::string(host).c_str(), &bytes) != 1) {
    return bad(text, "what stands in brackets is no IPv6 address");
  }
  if (IN6_IS_ADDR_LINKLOCAL(&bytes) && scope == 0) {
    return bad(text, "a link-local address needs its zone, as in [fe80::1%eth0]:7000");
  }
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) {  // a socket of IPv6 may be barred from IPv4
    std::uint32_t v4 = 0;
    std::memcpy(&v4, &bytes.s6_addr[12], sizeof v4);
    target.addresses.push_back(make_v4(v4));
  } else {
    target.addresses.push_back(make_v6(bytes, scope));
  }
  set_port(target.addresses.back(), target.port);
  return target;
}

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text, text.substr(5));
  if (text.starts_with('[')) return parse_bracketed(text);
  if (text.find("://") != std::string_view::npos) {
    return bad(text, "an address has no scheme with '://'");
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad(text, "the port is missing");
  const std::string_view host = text.substr(0, colon);
  Target target;
  if (!parse_port(text.substr(colon + 1), target.port)) {
    return bad(text, "the port must be a number of 0 to 65535");
  }
  if (host.empty()) return bad(text, "the host is missing");
  if (host.find(':') != std::string_view::npos) return bad(text, "an IPv6 address needs brackets");
  if (host.size() > kHostBytesMax) return bad(text, "a host name has at most 253 bytes");
  in_addr v4{};
  if (inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1) {
    target.addresses.push_back(make_v4(v4.s_addr));
  } else if (host == "localhost") {
    target.addresses.push_back(make_v4(htonl(INADDR_LOOPBACK)));
    target.addresses.push_back(make_v6(in6addr_loopback, 0));
  } else if (!std::all_of(host.begin(), host.end(), name_character)) {
    return bad(text, "the host has characters that no name has");
  } else {
    target.host = host;
  }
  for (SocketAddress& address : target.addresses) set_port(address, target.port);
  return target;
}

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.family() == AF_INET) as<sockaddr_in>(address)->sin_port = htons(port);
  if (address.family() == AF_INET6) as<sockaddr_in6>(address)->sin6_port = htons(port);
}

std::string unix_path(const SocketAddress& address) {
  constexpr std::size_t kStart = offsetof(sockaddr_un, sun_path);
  if (address.family() != AF_UNIX || address.length <= kStart) return {};
  const char* const path = as<sockaddr_un>(address)->sun_path;
  if (path[0] == '\0') return {};
  return {path, strnlen(path, address.length - kStart)};
}

Result<Target> parse_peer(std::string_view text) {
  Result<Target> target = parse_target(text);
  if (!target.ok() || target->port != 0) return target;
  if (!target->addresses.empty() && target->addresses.front().family() == AF_UNIX) return target;
  return Status::with_detail(Code::invalid_argument,
                             "address '" + std::string(text) +
                                 "': nothing listens at port 0; connect to the port that the "
                                 "server was given, Server::address");
}

std::string format_address(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.family() == AF_INET) {
    const auto* const v4 = as<sockaddr_in>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  if (address.family() == AF_INET6) {
    const auto* const v6 = as<sockaddr_in6>(address);
    const std::string port = std::to_string(ntohs(v6->sin6_port));
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
      inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
      return std::string(text) + ":" + port;
    }
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    std::string zone;
    if (v6->sin6_scope_id != 0) {
      char name[IF_NAMESIZE] = {};
      zone = if_indextoname(v6->sin6_scope_id, name) != nullptr
                 ? "%" + std::string(name)
                 : "%" + std::to_string(v6->sin6_scope_id);
    }
    return "[" + std::string(text) + zone + "]:" + port;
  }
  if (address.family() == AF_UNIX) {
    constexpr std::size_t kStart = offsetof(sockaddr_un, sun_path);
    if (address.length <= kStart) return "unix:";
    const char* const path = as<sockaddr_un>(address)->sun_path;
    if (path[0] != '\0') return "unix:" + unix_path(address);
    return "unix:@" + std::string(path + 1, address.length - kStart - 1);
  }
  return "unknown";
}

bool is_wildcard(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    return as<sockaddr_in>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return address.family() == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&as<sockaddr_in6>(address)->sin6_addr);
}

namespace {

/// The first address of the family that peers elsewhere could reach: of an interface that is up,
/// no loopback and not link-local. `loopback`: whether that one would do. False: there is none.
bool first_address(int family, bool loopback, SocketAddress& out) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* at = list; at != nullptr && !found; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
    if ((at->ifa_flags & IFF_UP) == 0) continue;
    if (((at->ifa_flags & IFF_LOOPBACK) != 0) != loopback) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, at->ifa_addr, address.length);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as<sockaddr_in6>(address)->sin6_addr)) {
      continue;
    }
    out = address;
    found = true;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

SocketAddress reachable_address(SocketAddress address) {
  if (!is_wildcard(address)) return address;
  const bool v4 = address.family() == AF_INET;
  const std::uint16_t port =
      ntohs(v4 ? as<sockaddr_in>(address)->sin_port : as<sockaddr_in6>(address)->sin6_port);
  SocketAddress best = make_v4(htonl(INADDR_LOOPBACK));
  // That of IPv6 takes IPv4 as well.
  const bool found = (!v4 && first_address(AF_INET6, false, best)) ||
                     first_address(AF_INET, false, best) ||
                     (!v4 && first_address(AF_INET6, true, best));
  static_cast<void>(found);  // else the loopback of IPv4
  set_port(best, port);
  return best;
}

}  // namespace pawl::fabric
