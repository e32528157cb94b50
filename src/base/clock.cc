// SPDX-License-Identifier: Apache-2.0
#include <ctime>

#include "base/check.h"
#include "pawl/time.h"

namespace pawl {

TimePoint SteadyClock::now() const {
  timespec time{};
  PAWL_CHECK(::clock_gettime(CLOCK_MONOTONIC, &time) == 0, "CLOCK_MONOTONIC cannot be read");
  return TimePoint{std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

Duration SteadyClock::thread_ran() const {
  timespec time{};
  PAWL_CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0,
             "CLOCK_THREAD_CPUTIME_ID cannot be read");
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

}  // namespace pawl
