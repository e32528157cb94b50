// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "pawl/time.h"

namespace pawl::rpc {

/// How long to wait before the next attempt to connect: twice as long each time up to a bound, and
/// from the start again after a connection that stood for at least the delay before it. One that
/// is accepted and lost at once is no success.
class Backoff {
 public:
  Backoff(Duration first, Duration longest) : first_(first), longest_(longest) {}

  void connected(TimePoint now) { stands_since_ = now; }

  /// The attempt failed, or the connection ended. Between half the delay and all of it, so that
  /// those who lost the same peer do not come back together.
  Duration next(TimePoint now, Random& random) {
    if (stands_since_ && now - *stands_since_ >= delay_) delay_ = Duration{0};
    stands_since_.reset();
    delay_ = delay_.count() == 0 ? first_ : std::min(delay_ * 2, longest_);
    const auto half = static_cast<std::uint64_t>(delay_.count() / 2);
    return Duration(static_cast<std::int64_t>(half + random.below(half + 1)));
  }

 private:
  const Duration first_, longest_;
  Duration delay_{0};
  std::optional<TimePoint> stands_since_;
};

}  // namespace pawl::rpc
