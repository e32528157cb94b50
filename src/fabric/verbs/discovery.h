// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/verbs/calls.h"
#include "fabric/verbs/verbs_fabric.h"
#include "pawl/result.h"

namespace pawl::fabric::verbs {

using Gid = std::array<std::uint8_t, 16>;

/// An address of an interface that this process sees, in the form of a GID: IPv4 as ::ffff:a.b.c.d.
struct LocalAddress {
  Gid gid{};
  std::string netdev;
};

/// Those of the system. One system call or two; off the hot path.
std::vector<LocalAddress> local_addresses();
using AddressSource = std::function<std::vector<LocalAddress>()>;

/// How good an address is for peers to reach; the lower the better.
enum class Family : std::uint8_t { ipv4, ipv6, link_local, infiniband };
Family family_of(const Gid& gid);
/// "10.77.0.1", "fe80::1".
std::string gid_text(const Gid& gid);

/// One entry of a port's table of addresses that may be used.
struct GidEntry {
  Gid gid{};
  int index = 0;
  Family family = Family::ipv4;
  std::string netdev;
};

/// A port that is up, with all addresses that may be used, the best first (at least one).
struct Port {
  std::string device;
  std::uint32_t number = 1;
  bool ethernet = false;
  bool grh_required = false;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint32_t message_bytes_max = 0;
  std::vector<GidEntry> gids;
};

struct Discovery {
  std::vector<Port> usable;  ///< the best first: by the family of the best address, then as listed
  std::vector<std::string> refused;
  Status status;  ///< libibverbs gave no list at all
};

/// Looks at every device and port; opens each device and closes it again. Of Ethernet ports only
/// RoCE v2 entries are taken whose address an interface of `addresses` has; `options` narrow it
/// down (an explicit gid_index is taken as it is).
Discovery discover(const Calls& calls, const VerbsOptions& options,
                   const std::vector<LocalAddress>& addresses);

/// What `port.number` of an open device is like now; a sentence that says why it cannot be used, or
/// none. Some system calls for each entry of its table of addresses.
std::string look_at_port(const Calls& calls, ibv_context* context, const VerbsOptions& options,
                         const std::vector<LocalAddress>& addresses, Port& port);

/// The address of ours from which `peer` is reached: the first of its family, else none.
const GidEntry* entry_for_peer(const Port& port, const Gid& peer);

/// Opens the device of that name; nullptr and errno.
ibv_context* open_by_name(const Calls& calls, std::string_view name);

std::uint32_t mtu_bytes(ibv_mtu mtu);

}  // namespace pawl::fabric::verbs
