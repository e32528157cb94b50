// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/histogram.h"
#include "bench_board.h"
#include "pawl/time.h"

namespace pawl::tools {

/// One closed loop: says how many calls are to be made and takes their times. One thread.
class Meter {
 public:
  /// The measured part: settings.calls, or settings.run.
  static Meter measured(const SampleSettings& settings);
  /// Before it: a fifth of that, with every byte compared.
  static Meter warm_up(const SampleSettings& settings);

  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  /// True: one more call begins, at `now`.
  bool begin(TimePoint now) {
    if (calls_ > 0 ? begun_ >= calls_ : begun_ >= calls_min_ && now - start_ >= run_) return false;
    ++begun_;
    return true;
  }
  /// A call is over.
  void end(TimePoint began, TimePoint now, std::uint64_t wrong_bytes) {
    times_.add(now - began);
    wrong_bytes_ += wrong_bytes;
    last_ = now;
  }

  /// Calls that began: the next one's number.
  [[nodiscard]] std::uint64_t begun() const { return begun_; }
  [[nodiscard]] std::uint64_t wrong_bytes() const { return wrong_bytes_; }
  /// Every byte of a block is to be compared, not some of them.
  [[nodiscard]] bool thorough() const { return thorough_; }
  /// All that there is in a result but CPU time and counts.
  void write(std::uint64_t size, SampleResult& result) const;

 private:
  Meter(std::uint64_t calls, std::uint64_t calls_min, Duration run, bool thorough);

  SteadyClock clock_;
  std::uint64_t calls_;
  std::uint64_t calls_min_;
  Duration run_;
  bool thorough_;
  TimePoint start_;
  TimePoint last_;
  std::uint64_t begun_ = 0;
  std::uint64_t wrong_bytes_ = 0;
  Histogram times_;
};

/// CPU time of this process and of the server's, all threads, from its construction.
class CpuTimes {
 public:
  explicit CpuTimes(pid_t server);
  void write(SampleResult& result) const;

 private:
  clockid_t server_clock_{};
  Duration client_before_;
  Duration server_before_;
};

}  // namespace pawl::tools
