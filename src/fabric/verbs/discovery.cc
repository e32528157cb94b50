// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/discovery.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/verbs/call_error.h"

namespace pawl::fabric::verbs {
namespace {

constexpr std::size_t kGidsMax = 256;  // looked at, of one port

Gid mapped(const in_addr& v4) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], &v4, 4);
  return gid;
}

Gid bytes_of(const ibv_gid& raw) {
  Gid gid;
  std::memcpy(gid.data(), raw.raw, gid.size());
  return gid;
}

bool is_zero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
}

const char* state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "it is down: is the cable in, is the interface up?";
    case IBV_PORT_INIT:
      return "it waits for a subnet manager: is opensm running?";
    case IBV_PORT_ARMED:
      return "it is armed, not active";
    default:
      return "it is not active";
  }
}

/// The usable entries of an Ethernet port, the best first.
std::vector<GidEntry> ethernet_gids(const Calls& calls, ibv_context* context, std::uint32_t port,
                                    const ibv_port_attr& attributes, const VerbsOptions& options,
                                    const std::vector<LocalAddress>& addresses) {
  std::vector<GidEntry> found;
  const auto count = std::min<std::size_t>(
      kGidsMax, static_cast<std::size_t>(std::max(attributes.gid_tbl_len, 0)));
  for (std::uint32_t i = 0; i < count; ++i) {
    if (options.gid_index >= 0 && i != static_cast<std::uint32_t>(options.gid_index)) continue;
    ibv_gid_entry raw{};
    if (calls.query_gid(context, port, i, &raw) != 0) continue;
    if (raw.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    GidEntry entry{.gid = bytes_of(raw.gid), .index = static_cast<int>(i)};
    entry.family = family_of(entry.gid);
    if (is_zero(entry.gid)) continue;
    const auto here = std::find_if(addresses.begin(), addresses.end(),
                                   [&](const LocalAddress& each) { return each.gid == entry.gid; });
    if (here != addresses.end()) entry.netdev = here->netdev;
    if (here == addresses.end() && options.gid_index < 0) continue;  // of another name space
    found.push_back(std::move(entry));
  }
  std::sort(found.begin(), found.end(), [](const GidEntry& a, const GidEntry& b) {
    return a.family != b.family ? a.family < b.family : a.index < b.index;
  });
  return found;
}

std::vector<GidEntry> infiniband_gids(const Calls& calls, ibv_context* context, std::uint32_t port,
                                      const VerbsOptions& options) {
  ibv_gid_entry raw{};
  GidEntry entry{.index = std::max(options.gid_index, 0), .family = Family::infiniband};
  if (calls.query_gid(context, port, static_cast<std::uint32_t>(entry.index), &raw) != 0) return {};
  entry.gid = bytes_of(raw.gid);
  return {std::move(entry)};
}

void look_at_device(const Calls& calls, ibv_device* device, const VerbsOptions& options,
                    const std::vector<LocalAddress>& addresses, Discovery& out) {
  const std::string name = calls.get_device_name(device);
  if (!options.device.empty() && options.device != name) return;
  ibv_context* const context = calls.open_device(device);
  if (context == nullptr) {
    out.refused.emplace_back(call_error(Call::open_device, errno, name).what());
    return;
  }
  ibv_device_attr attributes{};
  if (const int error = calls.query_device(context, &attributes); error != 0) {
    out.refused.emplace_back(call_error(Call::query_device, error, name).what());
  }
  for (std::uint32_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    if (options.port != 0 && options.port != number) continue;
    Port port;
    port.device = name;
    port.number = number;
    const std::string wrong = look_at_port(calls, context, options, addresses, port);
    if (wrong.empty()) {
      out.usable.push_back(std::move(port));
    } else {
      out.refused.push_back(name + " port " + std::to_string(number) + ": " + wrong);
    }
  }
  static_cast<void>(calls.close_device(context));
}

/// The order stays as it is otherwise.
void link_local_last(std::vector<Port>& ports) {
  std::vector<Port> last;
  std::vector<Port> first;
  for (Port& port : ports) {
    const bool link_local = port.gids.front().family == Family::link_local;
    (link_local ? last : first).push_back(std::move(port));
  }
  for (Port& port : last) first.push_back(std::move(port));
  ports = std::move(first);
}

}  // namespace

std::string look_at_port(const Calls& calls, ibv_context* context, const VerbsOptions& options,
                         const std::vector<LocalAddress>& addresses, Port& port) {
  ibv_port_attr attributes{};
  if (const int error =
          calls.query_port(context, static_cast<std::uint8_t>(port.number), &attributes);
      error != 0) {
    return std::string(call_error(Call::query_port, error, "the port").what());
  }
  if (attributes.state != IBV_PORT_ACTIVE) return state_text(attributes.state);
  port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.grh_required = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  port.lid = attributes.lid;
  port.mtu = attributes.active_mtu;
  port.message_bytes_max = attributes.max_msg_sz;
  if (!port.ethernet) {
    port.gids = infiniband_gids(calls, context, port.number, options);
    return port.gids.empty() ? "its GID cannot be read" : "";
  }
  port.gids = ethernet_gids(calls, context, port.number, attributes, options, addresses);
  if (!port.gids.empty()) return {};
  return options.gid_index >= 0
             ? "entry " + std::to_string(options.gid_index) + " of its GID table is not RoCE v2"
             : "no RoCE v2 address of it belongs to an interface that is visible here: ip addr add";
}

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    LocalAddress address;
    address.netdev = at->ifa_name;
    if (at->ifa_addr->sa_family == AF_INET) {
      sockaddr_in v4{};
      std::memcpy(&v4, at->ifa_addr, sizeof v4);
      address.gid = mapped(v4.sin_addr);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 v6{};
      std::memcpy(&v6, at->ifa_addr, sizeof v6);
      std::memcpy(address.gid.data(), &v6.sin6_addr, address.gid.size());
    } else {
      continue;
    }
    found.push_back(std::move(address));
  }
  freeifaddrs(list);
  return found;
}

Family family_of(const Gid& gid) {
  in6_addr address{};
  std::memcpy(&address, gid.data(), gid.size());
  if (IN6_IS_ADDR_V4MAPPED(&address)) return Family::ipv4;
  return IN6_IS_ADDR_LINKLOCAL(&address) ? Family::link_local : Family::ipv6;
}

std::string gid_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (family_of(gid) == Family::ipv4) {
    inet_ntop(AF_INET, &gid[12], text, sizeof text);
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

Discovery discover(const Calls& calls, const VerbsOptions& options,
                   const std::vector<LocalAddress>& addresses) {
  Discovery out;
  int count = 0;
  ibv_device** const list = calls.get_device_list(&count);
  if (list == nullptr) {
    out.status = call_error(Call::get_device_list, errno, "the devices of this machine");
    out.refused.emplace_back(out.status.what());
    return out;
  }
  for (int i = 0; i < count; ++i) look_at_device(calls, list[i], options, addresses, out);
  calls.free_device_list(list);
  if (out.usable.empty() && out.refused.empty()) {
    out.refused.push_back(options.device.empty()
                              ? "there is no RDMA device: load its driver, or for soft-RoCE: rdma "
                                "link add rxe0 type rxe netdev <interface>"
                              : "there is no RDMA device " + options.device +
                                    ", or no such port of it: ibv_devices lists them");
  }
  link_local_last(out.usable);
  return out;
}

const GidEntry* entry_for_peer(const Port& port, const Gid& peer) {
  if (!port.ethernet) return &port.gids.front();
  const Family family = family_of(peer);
  for (const GidEntry& entry : port.gids) {
    if (entry.family == family) return &entry;
  }
  return nullptr;
}

ibv_context* open_by_name(const Calls& calls, std::string_view name) {
  int count = 0;
  ibv_device** const list = calls.get_device_list(&count);
  if (list == nullptr) return nullptr;
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (name != calls.get_device_name(list[i])) continue;
    context = calls.open_device(list[i]);
    error = errno;
  }
  calls.free_device_list(list);
  errno = error;
  return context;
}

std::uint32_t mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

}  // namespace pawl::fabric::verbs
