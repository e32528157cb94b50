// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sim/network.h"
#include "pawl/time.h"

namespace pawl::fabric {

/// Drives pollers in virtual time: every participant takes turns, in an order drawn from the
/// network's seed, until none makes progress; then the clock moves to whatever is due next, in
/// the network or with a participant. One thread.
class SimLoop {
 public:
  /// One turn at the present time; true if it did anything.
  using Turn = std::function<bool()>;
  /// When the participant has something to do by itself; never() if only events can wake it.
  using NextDeadline = std::function<TimePoint()>;

  explicit SimLoop(SimNetwork& network) : network_(network), random_(network.seed() ^ 0x5eed) {}

  /// Returns a number for `remove`, for nodes that crash.
  std::uint64_t add(Turn turn, NextDeadline next_deadline);
  void remove(std::uint64_t participant);

  /// Turns without moving the clock, until nobody makes progress.
  void settle();
  /// Until `done` (asked after each round of turns), or until `limit`; returns what `done` says.
  bool run_until(const std::function<bool()>& done, TimePoint limit);
  bool run_until(const std::function<bool()>& done, Duration limit = 10s) {
    return run_until(done, network_.now() + limit);
  }
  void run_for(Duration duration);

  /// Rounds of turns at one instant; more is a livelock and ends the process.
  static constexpr std::uint64_t kRoundsPerInstantMax = 1'000'000;

 private:
  struct Participant {
    std::uint64_t number = 0;
    Turn turn;
    NextDeadline next_deadline;
  };

  bool round();
  [[nodiscard]] TimePoint next_time() const;

  SimNetwork& network_;
  Random random_;
  std::uint64_t next_number_ = 1;
  std::vector<Participant> participants_;
};

}  // namespace pawl::fabric
