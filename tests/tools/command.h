// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace pawl::testing {

/// The pawl command as a process of its own, with what it says on stdout and stderr. Killed, and
/// its children with it, when this goes.
class Command {
 public:
  /// Where the command is; empty if this build has none.
  static std::string path();

  /// Starts it with these arguments, separated by blanks. `columns` > 0: on a terminal that wide.
  explicit Command(const std::string& arguments, unsigned short columns = 0);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Reads until the output is enough; false if it ended, or a long time passed, before that.
  bool read_until(const std::function<bool(const std::string&)>& enough);
  [[nodiscard]] const std::string& output() const { return output_; }

  /// The process that it started with this argument, once it runs with it; -1 if it never does.
  [[nodiscard]] pid_t child(const std::string& argument) const;
  void signal(int number) const;
  /// Reads to the end. The status of wait(2); -1 if it had to be killed.
  int wait();

 private:
  pid_t pid_ = -1;
  UniqueFd output_fd_;
  std::string output_;
};

}  // namespace pawl::testing
