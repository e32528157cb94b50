// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/tcp/address.h"
#include "pawl/result.h"

namespace pawl::fabric::tcp {

/// Looks host names up on helper threads (at most kResolverThreadsMax, started when needed), since
/// the system's resolver blocks. One thread uses the object; a lookup that is still blocked when
/// it is destroyed finishes on its own and touches nothing of it.
class Resolver {
 public:
  struct Answer {
    std::uint64_t id = 0;
    std::vector<SocketAddress> addresses;  // empty: `error`
    std::string error;
  };

  Resolver();
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  /// Readable when an answer is there; -1 if the system gave no descriptor.
  [[nodiscard]] int event_fd() const;
  /// Errors: the queue is full, or no thread could be started.
  Status ask(std::uint64_t id, const std::string& host, std::uint16_t port);
  /// Nobody waits for this answer any more.
  void forget(std::uint64_t id);
  /// Takes an answer; false if there is none. Clears the readable state first.
  bool take(Answer& out);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace pawl::fabric::tcp
