// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/faulty/faulty_fabric.h"
#include "kit/words.h"
#include "pawl/node.h"

namespace pawl::kit {

/// Holds the reader of the next transfer at a point, by what its fabric holds back. On the poller's
/// thread.
class Hold {
 public:
  Hold(Node& node, fabric::FaultyFabric& fabric) : node_(node), fabric_(fabric) {}

  /// `upload`: this process reads as a server. `whole_device`: inside the READ means that the
  /// device goes on, until the process stops, and then waits for it; else that it executes one READ
  /// of several.
  void arm(Point point, bool upload, bool whole_device);
  /// After each turn. True once, when the reader is there.
  bool reached();
  /// The handler of an upload accepted its bytes.
  void accepted();
  /// Lets everything go on.
  void let_go();
  [[nodiscard]] bool armed() const { return point_.has_value(); }

 private:
  [[nodiscard]] std::uint64_t reads_completed() const {
    return node_.stats().reads_completed - completed_before_;
  }
  bool begin();
  void execute_reads();

  Node& node_;
  fabric::FaultyFabric& fabric_;
  std::optional<Point> point_;
  bool upload_ = false;
  bool whole_device_ = false;
  bool begun_ = false;
  bool accepted_ = false;
  std::uint64_t completed_before_ = 0;
};

}  // namespace pawl::kit
