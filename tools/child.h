// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::tools {

/// A process of this program's own. It is killed when this object goes, and by the system when this
/// process ends in any way, if it asks for that (`end_with_parent`). Move-only.
class Child {
 public:
  /// Runs this program again with other arguments. `name` is for sentences: "server process".
  /// Ctrl+C at the terminal does not reach it.
  static Result<Child> start(std::string name, const std::vector<std::string>& arguments);
  /// Another program, looked for in PATH, without its output. Ctrl+C reaches it.
  static Result<Child> start_program(std::string name, const std::string& program,
                                     const std::vector<std::string>& arguments);

  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Once it ended: ok for exit code 0, else how, in a sentence.
  [[nodiscard]] std::optional<Status> ended();
  /// The same, waiting for at most `limit`; nothing if it still runs.
  [[nodiscard]] std::optional<Status> wait(Duration limit);
  void kill();

 private:
  static Result<Child> spawn(std::string name, const char* path, std::vector<std::string> words,
                             bool own);
  Child(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {}

  std::string name_;
  pid_t pid_ = -1;  // -1: it was waited for
  std::optional<Status> status_;
};

/// In a child: ends with its parent, which is the process `parent`.
void end_with_parent(pid_t parent);

/// Sleeps; a signal ends it early.
void pause_for(Duration duration);

}  // namespace pawl::tools
