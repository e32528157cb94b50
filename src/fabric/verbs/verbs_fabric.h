// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "pawl/result.h"
#include "pawl/time.h"

/// RDMA by libibverbs: InfiniBand, RoCE v2, soft-RoCE. This header needs no verbs header; a build
/// without libibverbs has the functions too, and they say so.
namespace pawl::fabric::verbs {

struct VerbsOptions {
  std::string device;      ///< "mlx5_0"; empty: the first that is usable
  std::uint32_t port = 0;  ///< 1, 2, …; 0: the first that is usable
  int gid_index = -1;      ///< of the port's table; -1: chosen (see list_ports)
  std::uint16_t pkey_index = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  /// An acknowledgement is awaited for 4.096 µs · 2^ack_timeout, `retry_count` times (at most 6: 7
  /// is endless on some devices): by default 3.8 s. A busy machine is not a dead peer.
  std::uint8_t ack_timeout = 17;
  /// The same for endpoints that carry READs, by default 0.47 s: most devices have tried all their
  /// times before a READ's software timeout (NodeOptions::read_timeout, 1 s) ends the endpoint.
  std::uint8_t bulk_ack_timeout = 14;
  std::uint8_t retry_count = 6;
};

/// A port that can be used, with the address that peers see.
struct PortInfo {
  std::string device;
  std::uint32_t port = 0;
  bool ethernet = false;  ///< RoCE v2; else InfiniBand
  std::string address;    ///< "10.77.0.1", "fe80::1" or a LID: "lid 7"
  std::string netdev;     ///< of the address; empty on InfiniBand
  int gid_index = 0;
  std::uint32_t mtu_bytes = 0;
};

struct PortList {
  std::vector<PortInfo> usable;      ///< the best first
  std::vector<std::string> refused;  ///< one sentence each: what, and why not
};

/// True if this build has libibverbs.
bool built_in();

/// All devices, ports and addresses, whatever their state: those that are up and have an address
/// that peers can reach come in `usable`. Of several addresses of a port an IPv4 one is preferred,
/// then IPv6, a link-local one last. A device that cannot be opened hides no other.
PortList list_ports(const VerbsOptions& options = {});

/// A fabric on one port of one device. The rights it gives never include remote write. Addresses
/// are those of the bootstrap, which is TCP or a Unix socket: "127.0.0.1:0", "host:7000",
/// "unix:/run/x"; the data takes the device's way whatever they are.
/// Errors: no usable port (with the reason for each that there is); what libibverbs refused, with
/// the limit and the remedy.
Result<std::unique_ptr<Fabric>> make_verbs_fabric(const VerbsOptions& options = {});

}  // namespace pawl::fabric::verbs
