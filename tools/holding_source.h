// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/faulty/fault_plan.h"
#include "fabric/faulty/faulty_fabric.h"
#include "fabric/faulty/reuse_oracle.h"
#include "rpc/fabric_source.h"

namespace pawl::tools {

/// The system's fabric, with READs held inside it: after they were posted, below every check of a
/// deadline or cancel. Outlives its node.
class HoldingSource final : public detail::FabricSource {
 public:
  /// `fabric` is a name for NodeOptions::fabric; the oracle, if there is one, is borrowed.
  HoldingSource(std::string_view fabric, fabric::FaultPlan plan,
                fabric::ReuseOracle* oracle = nullptr);
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t poller) override;
  [[nodiscard]] const char* name() const override { return "held"; }
  [[nodiscard]] const char* reason() const override { return "READs are held"; }

  /// READs that were held and then executed. On the poller of its node, which has one.
  [[nodiscard]] std::uint64_t late_reads() const;

 private:
  const std::string fabric_;
  const fabric::FaultPlan plan_;
  fabric::ReuseOracle* const oracle_;
  std::unique_ptr<detail::FabricSource> system_;
  std::vector<std::unique_ptr<fabric::Fabric>> inner_;  // outlive the node's fabrics, as this does
  std::vector<const fabric::FaultyFabric*> made_;       // the node's
};

}  // namespace pawl::tools
