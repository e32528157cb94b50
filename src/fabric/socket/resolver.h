// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/socket/address.h"
#include "pawl/result.h"

namespace pawl::fabric {

inline constexpr std::size_t kResolverThreadsMax = 4;
inline constexpr std::size_t kResolverQueueMax = 256;  ///< names
inline constexpr std::size_t kAddressesMax = 16;       ///< kept of one name

/// What a host name means: addresses without a port, or why there are none.
struct HostAddresses {
  std::vector<SocketAddress> addresses;  // empty: `error`
  std::string error;
};

/// Looks one name up. May block; called on the resolver's threads, several at a time.
using LookUp = std::function<HostAddresses(const std::string& host)>;

/// getaddrinfo.
HostAddresses look_up_by_system(const std::string& host);

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

  explicit Resolver(LookUp look_up);
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

}  // namespace pawl::fabric
