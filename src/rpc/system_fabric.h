// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "pawl/result.h"
#include "rpc/fabric_source.h"

namespace pawl::rpc {

/// The fabrics of this machine by name:
///   "tcp"
///   "verbs"         RDMA on the first usable port
///   "verbs:rxe0"    on the first usable port of that device; "verbs:rxe0/2" on its port 2
///   "auto"          what the environment variable PAWL_FABRIC names, else tcp: a node has one
///                   fabric, so RDMA is chosen where its peers are known to have it too
/// Errors: invalid_argument names what there is; not_found says of each RDMA port why it cannot be
/// used; unimplemented for verbs in a build without libibverbs.
Result<std::unique_ptr<detail::FabricSource>> make_system_source(std::string_view name);

}  // namespace pawl::rpc
