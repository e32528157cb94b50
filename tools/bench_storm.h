// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "bench_board.h"
#include "fabric/faulty/fault_plan.h"
#include "fabric/random_delay.h"
#include "fabric/work.h"
#include "pawl/log.h"
#include "pawl/node.h"
#include "pawl/time.h"

// What both processes of `pawl bench storm` have in common.
namespace pawl::tools {

/// The reader of a call chooses where its bytes land, and says here how long its READs are held:
/// so they are those of this call and of no other. On the poller of its node.
class HoldBook {
 public:
  /// For the READs that land here, until this is said again. 0: they are not held.
  void set(std::span<const std::byte> landing, Duration hold);
  [[nodiscard]] fabric::RandomDelay hold_of(const fabric::WorkRequest& read) const;
  /// Borrows this.
  [[nodiscard]] fabric::FaultPlan plan() const;

 private:
  struct Landing {
    std::size_t bytes = 0;
    Duration hold{0};
  };
  std::map<const std::byte*, Landing> landings_;
};

/// A block in a download is lent for a part of its call's deadline: the server has other use for
/// its memory, and takes it back.
inline constexpr std::int64_t kLendParts = 2;

/// When READs that are held are executed: after the use of their buffer is over. In a download it
/// may be over before the caller's deadline is.
struct HoldRange {
  Duration min;
  Duration max;
};
HoldRange hold_range(Shape shape, Duration deadline);

/// Places for what lands while READs are held, for each call that is outstanding in the calm.
inline constexpr std::uint64_t kStormPlaces = 32;

/// Like those of the other benches, but no READ is given up because it is late.
NodeOptions storm_node_options(const SampleSettings& settings, const char* name, LogSink& log,
                               const char* fabric);

}  // namespace pawl::tools
