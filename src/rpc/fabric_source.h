// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "fabric/fabric.h"
#include "pawl/result.h"

namespace pawl::detail {

/// Where a node's fabrics come from, one for each poller. Borrowed by the node.
class FabricSource {
 public:
  virtual ~FabricSource() = default;
  virtual Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t poller) = 0;
  /// Literals, for outcomes and stats.
  [[nodiscard]] virtual const char* name() const = 0;
  [[nodiscard]] virtual const char* reason() const { return "chosen by the program"; }
};

}  // namespace pawl::detail
