// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/socket/resolver.h"
#include "fabric/socket/socket.h"
#include "pawl/result.h"

namespace pawl::fabric::tcp {

struct TcpOptions {
  KeepAlive keep_alive;
  /// For tests of what depends on windows; the software NIC itself does them exactly.
  WindowSupport windows = WindowSupport::exact;
  /// How the resolver's threads look host names up.
  LookUp look_up = look_up_by_system;
};

/// A software NIC over sockets: the semantics of a queue pair, one socket each (docs/wire-tcp.md).
/// Addresses: "127.0.0.1:0", "[::1]:7000", "host:7000", "unix:/run/x", "unix:@abstract".
/// Errors: the system has no descriptor left for the fabric's own needs.
Result<std::unique_ptr<Fabric>> make_tcp_fabric(const TcpOptions& options = {});

}  // namespace pawl::fabric::tcp
