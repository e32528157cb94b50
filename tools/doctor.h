// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/verbs/verbs_fabric.h"

namespace pawl::tools {

/// What one check found, the evidence for it, and the command that mends it.
struct Finding {
  enum class Level : std::uint8_t { ok, warning, failure };

  std::string check;
  Level level = Level::ok;
  std::string evidence;
  std::string mend;  ///< empty if there is nothing to mend
};
using Findings = std::vector<Finding>;

/// The machine as the checks see it: files below `root` (as /proc and /sys have them), RDMA ports,
/// limits of this process.
struct Machine {
  std::string root = "/";
  bool verbs_built_in = false;
  fabric::verbs::PortList ports;
  std::uint64_t memlock_bytes = RLIM_INFINITY;
  std::uint64_t open_files = RLIM_INFINITY;
  bool may_lock = false;  ///< has CAP_IPC_LOCK: the limit on locked memory is not for it

  /// This one.
  static Machine here();
  /// The first line of a file; nothing if there is none.
  [[nodiscard]] std::optional<std::string> line(const std::string& path) const;
  /// The names in a folder, sorted.
  [[nodiscard]] std::vector<std::string> names(const std::string& path) const;
};

/// CAP_IPC_LOCK is in force, by what /proc/<pid>/status says of a process.
bool may_lock_memory(const std::string& status);

/// Everything that can be said without moving a byte. Where there is no RDMA one line says so, and
/// what concerns RDMA alone is left out.
Findings look_at(const Machine& machine);

/// Two nodes of this process call each other over `fabric`: uploads and downloads around every
/// boundary size, contents compared.
Finding loop_back(const std::string& fabric);

/// Aligned text, in colour if `colour`.
std::string text_of(const Findings& findings, bool colour);
std::string json_of(const Findings& findings);

/// `pawl doctor`: exit 0 if nothing failed (warnings are fine), 1 else.
int run_doctor(bool json);

}  // namespace pawl::tools
