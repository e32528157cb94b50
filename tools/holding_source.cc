// SPDX-License-Identifier: Apache-2.0
#include "holding_source.h"

#include <utility>

#include "rpc/system_fabric.h"

namespace pawl::tools {

HoldingSource::HoldingSource(std::string_view fabric, fabric::FaultPlan plan,
                             fabric::ReuseOracle* oracle)
    : fabric_(fabric), plan_(std::move(plan)), oracle_(oracle) {}

Result<std::unique_ptr<fabric::Fabric>> HoldingSource::make_fabric(std::size_t poller) {
  if (!system_) {
    Result<std::unique_ptr<detail::FabricSource>> made = rpc::make_system_source(fabric_);
    if (!made.ok()) return made.status();
    system_ = *std::move(made);
  }
  Result<std::unique_ptr<fabric::Fabric>> inner = system_->make_fabric(poller);
  if (!inner.ok()) return inner;
  inner_.push_back(*std::move(inner));
  auto holding = std::make_unique<fabric::FaultyFabric>(*inner_.back(), plan_, oracle_);
  made_.push_back(holding.get());
  return std::unique_ptr<fabric::Fabric>(std::move(holding));
}

std::uint64_t HoldingSource::late_reads() const {
  std::uint64_t reads = 0;
  for (const fabric::FaultyFabric* each : made_) reads += each->counters().reads_executed;
  return reads;
}

}  // namespace pawl::tools
