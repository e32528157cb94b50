// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pawl/time.h"

namespace pawl::tools {

/// What /proc/stat counts, of all cores together: ticks since the start of the system.
struct CpuTicks {
  std::uint64_t programs = 0;  ///< user, nice and system
  std::uint64_t all = 0;       ///< these, interrupts, stolen and idle time
  /// Nothing if `text` does not begin with the line of all cores.
  static std::optional<CpuTicks> parse(const std::string& text);
};

/// The machine of a run: what it is, and what else it did.
class BenchMachine {
 public:
  /// Looks at the load for `look`.
  static BenchMachine look(Duration look);

  /// Two cores that the processes may run on, for the server and the client; empty if there is one.
  [[nodiscard]] const std::vector<int>& cores() const { return cores_; }
  [[nodiscard]] std::string pinning() const;
  [[nodiscard]] const std::string& model() const { return model_; }
  [[nodiscard]] const std::string& kernel() const { return kernel_; }
  [[nodiscard]] unsigned cpus() const { return cpus_; }
  /// Share of all cores that programs used before the run, in percent.
  [[nodiscard]] double busy_percent() const { return busy_percent_; }
  /// Share that programs other than this one and the children that it waited for have used since.
  [[nodiscard]] double others_percent() const;
  /// Either is too much for figures.
  [[nodiscard]] bool busy() const;

 private:
  std::vector<int> cores_;
  std::string model_;
  std::string kernel_;
  unsigned cpus_ = 0;
  double busy_percent_ = 0;
  CpuTicks ticks_at_start_;
  double own_seconds_at_start_ = 0;
};

}  // namespace pawl::tools
