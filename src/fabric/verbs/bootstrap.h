// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/verbs/greeting.h"
#include "pawl/status.h"

namespace pawl::fabric::verbs {

/// The bootstrap connection of one endpoint: a stream socket that carries greetings, and stays open
/// so that its end tells of the other end's. Never blocks; holds at most one greeting of the
/// peer's. Poller only.
class Bootstrap {
 public:
  /// Takes a socket; what was read or waited to be sent is forgotten.
  void attach(UniqueFd fd);
  /// Closes it. What was said and not sent is lost.
  void drop() { attach({}); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  void say(const Greeting& greeting, std::span<const std::byte> hello);
  /// Sends what the socket takes. A broken one shows when it is read.
  void send();
  [[nodiscard]] bool wants_to_send() const { return fd_ && sent_ != out_.size(); }

  enum class Heard : std::uint8_t { nothing, greeting, gone, nonsense };
  /// The next whole greeting, if there is one. gone: the peer closed or the connection broke, after
  /// all that it said; nonsense: the peer broke the protocol. `why` is a sentence for both.
  Heard hear(Greeting& greeting, std::vector<std::byte>& hello, std::string& why);

 private:
  UniqueFd fd_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  std::array<std::byte, kGreetingBytes> head_{};
  std::size_t have_ = 0;  // bytes of the head, then of the hello
  bool whole_head_ = false;
  Greeting greeting_;
  std::vector<std::byte> hello_;
};

}  // namespace pawl::fabric::verbs
