// SPDX-License-Identifier: Apache-2.0
#include "demo_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "fabric/verbs/verbs_fabric.h"
#include "rpc/system_fabric.h"

namespace pawl::tools {

namespace {

using fabric::verbs::PortInfo;

bool is_ipv4(const PortInfo& port) { return port.address.find('.') != std::string::npos; }

std::string name_of(const PortInfo& port) {
  return fmt::format("verbs:{}/{}", port.device, port.port);
}

}  // namespace

Result<DemoPlaces> choose_places(std::string_view fabric) {
  const Result<std::unique_ptr<detail::FabricSource>> source = rpc::make_system_source(fabric);
  if (!source.ok()) return source.status();
  DemoPlaces places;
  places.listen = "127.0.0.1:0";
  places.text = (*source)->name();
  if (places.text != "verbs") {
    places.server_fabric = places.client_fabric = places.text;
    return places;
  }
  if (fabric != "verbs") {  // a device that the user chose, for both
    places.server_fabric = places.client_fabric = places.text = fabric;
    return places;
  }
  const std::vector<PortInfo> ports = fabric::verbs::list_ports().usable;
  if (ports.empty()) return Status(Code::not_found, "the RDMA port went away");
  const PortInfo& server = ports.front();
  const auto other = std::find_if(ports.begin(), ports.end(), [&](const PortInfo& port) {
    return port.device != server.device && port.ethernet == server.ethernet &&
           is_ipv4(port) == is_ipv4(server);
  });
  const PortInfo& client = other == ports.end() ? server : *other;
  places.server_fabric = name_of(server);
  places.client_fabric = name_of(client);
  if (is_ipv4(server)) places.listen = server.address + ":0";
  places.text = fmt::format("verbs (server on {}, {}; client on {}, {})", server.device,
                            server.address, client.device, client.address);
  return places;
}

}  // namespace pawl::tools
