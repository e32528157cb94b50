// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "pawl/guard.h"

namespace pawl::kit {

/// A loopback address of this process alone: nobody else takes a port of it while its server is
/// gone.
std::string own_host();

/// An actor process and the two pipes to it. Whatever is waited for has a generous limit; an
/// expectation that is not met fails the test that runs and gives an empty line.
class Process {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }

  /// Starts one, after the end of the one before. A server listens at `address`; its fabric is what
  /// the environment's PAWL_KIT_SERVER_FABRIC names, if it does, the client's what PAWL_FABRIC
  /// does.
  void start(std::string_view role, Guard guard, const std::string& address);
  /// Where the server listens, once started.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] bool running() const { return pid_ > 0; }

  void say(const std::string& line);
  /// The next line whose first word is this one, without that word; others keep waiting.
  std::string expect(std::string_view word);
  std::string ask(const std::string& line, std::string_view word) {
    say(line);
    return expect(word);
  }
  /// Whether such a line has come; does not wait.
  bool came(std::string_view word);

  void wait_until_stopped();  ///< by the SIGSTOP that it sent itself
  void stop();                ///< SIGSTOP; it does nothing more afterwards
  void resume();              ///< SIGCONT
  void kill();                ///< SIGKILL; it is gone afterwards

 private:
  bool take(std::string_view word, std::string& rest);
  /// False: the time is up or the process is gone.
  bool read_some(int timeout_ms);

  std::string name_;
  std::string address_;
  pid_t pid_ = -1;
  UniqueFd in_;   // its standard input
  UniqueFd out_;  // its standard output
  std::string input_;
  std::deque<std::string> lines_;
};

}  // namespace pawl::kit
