// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "pawl/result.h"
#include "rpc/fabric_source.h"

namespace pawl::rpc {

/// The fabrics of this machine by name: "tcp", or "auto", which is tcp as long as there is no
/// other. invalid_argument names what there is.
Result<std::unique_ptr<detail::FabricSource>> make_system_source(std::string_view name);

}  // namespace pawl::rpc
