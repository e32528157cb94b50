// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/verbs/calls.h"
#include "fabric/verbs/discovery.h"
#include "fabric/verbs/verbs_fabric.h"
#include "pawl/result.h"

namespace pawl::fabric::verbs {

/// make_verbs_fabric and list_ports of verbs_fabric.h, for any device and any interfaces: `calls`
/// must outlive the fabric.
Result<std::unique_ptr<Fabric>> make_fabric(const Calls& calls, const VerbsOptions& options,
                                            const AddressSource& addresses);
PortList list_ports(const Calls& calls, const VerbsOptions& options,
                    const std::vector<LocalAddress>& addresses);

}  // namespace pawl::fabric::verbs
