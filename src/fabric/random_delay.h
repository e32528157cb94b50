// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.h"
#include "pawl/time.h"

namespace pawl::fabric {

/// A delay that happens with `probability`, drawn uniformly from [min, max].
struct RandomDelay {
  double probability = 0;
  Duration min{0};
  Duration max{0};
};

inline Duration draw(Random& random, const RandomDelay& delay) {
  if (delay.probability <= 0 || !random.chance(delay.probability)) return Duration{0};
  return Duration(random.between(delay.min.count(), delay.max.count()));
}

/// Uniform in [0, max].
inline Duration draw_up_to(Random& random, Duration max) {
  return Duration(random.between(0, max.count()));
}

}  // namespace pawl::fabric
