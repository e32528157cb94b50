// SPDX-License-Identifier: Apache-2.0
// What a build without libibverbs has instead of the verbs fabric.
#include "fabric/verbs/verbs_fabric.h"

namespace pawl::fabric::verbs {

namespace {
constexpr const char* kNotBuilt =
    "this build has no libibverbs: install it (Debian: libibverbs-dev), configure and build again";
}

bool built_in() { return false; }

PortList list_ports(const VerbsOptions&) { return {.usable = {}, .refused = {kNotBuilt}}; }

Result<std::unique_ptr<Fabric>> make_verbs_fabric(const VerbsOptions&) {
  return Status(Code::unimplemented, kNotBuilt);
}

}  // namespace pawl::fabric::verbs
