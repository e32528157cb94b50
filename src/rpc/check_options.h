// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pawl/channel.h"
#include "pawl/node.h"

namespace pawl::rpc {

/// Why nothing can ever work with these options: invalid_argument that names the first wrong one,
/// its value and its bound. A node's pool and fabric look after their own.
Status misuse_of(const NodeOptions& options);
Status misuse_of(const ChannelOptions& options);

}  // namespace pawl::rpc
