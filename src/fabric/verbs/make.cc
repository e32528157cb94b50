// SPDX-License-Identifier: Apache-2.0
// The functions of verbs_fabric.h, and the same over any table of calls.
#include "fabric/verbs/make.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "fabric/socket/socket.h"
#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {

Result<std::unique_ptr<Fabric>> make_fabric(const Calls& calls, const VerbsOptions& options,
                                            const AddressSource& addresses) {
  Discovery found = discover(calls, options, addresses());
  if (found.usable.empty()) {
    std::string text = "no RDMA port can be used";
    for (const std::string& why : found.refused) text += "; " + why;
    const Code code = found.status.ok() ? Code::not_found : found.status.code();
    return Status::with_detail(code, std::move(text), Ran::no, found.status.native());
  }
  Result<std::unique_ptr<Device>> device =
      Device::open(calls, options, std::move(found.usable.front()), addresses);
  if (!device.ok()) return device.status();
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) {
    return Status::with_detail(
        Code::resource_exhausted,
        "the verbs fabric needs two descriptors: " + errno_text(errno) + "; raise nofile", Ran::no,
        errno);
  }
  auto fabric =
      std::make_unique<VerbsFabric>(*std::move(device), std::move(epoll), std::move(wake));
  if (Status started = fabric->start(); !started.ok()) return started;
  return std::unique_ptr<Fabric>(std::move(fabric));
}

PortList list_ports(const Calls& calls, const VerbsOptions& options,
                    const std::vector<LocalAddress>& addresses) {
  Discovery found = discover(calls, options, addresses);
  PortList out;
  out.refused = std::move(found.refused);
  for (const Port& port : found.usable) {
    const GidEntry& best = port.gids.front();
    PortInfo info;
    info.device = port.device;
    info.port = port.number;
    info.ethernet = port.ethernet;
    info.address = port.ethernet ? gid_text(best.gid) : "lid " + std::to_string(port.lid);
    info.netdev = best.netdev;
    info.gid_index = best.index;
    info.mtu_bytes = mtu_bytes(port.mtu);
    out.usable.push_back(std::move(info));
  }
  return out;
}

bool built_in() { return true; }

PortList list_ports(const VerbsOptions& options) {
  return list_ports(system_calls(), options, local_addresses());
}

Result<std::unique_ptr<Fabric>> make_verbs_fabric(const VerbsOptions& options) {
  return make_fabric(system_calls(), options, &local_addresses);
}

}  // namespace pawl::fabric::verbs
