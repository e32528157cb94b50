// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "fabric/fabric.h"
#include "fabric/verbs/device.h"
#include "fabric/verbs/greeting.h"
#include "pawl/result.h"

namespace pawl::fabric::verbs {

/// One RC queue pair, whose peer may READ and nothing else. Poller only. The owner reserves the
/// completion queue's entries, and destroys it when no window is bound through it.
class QueuePair {
 public:
  QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// A new one in INIT, which takes receives. `user` comes back in asynchronous events.
  Status create(const Device& device, ibv_cq* cq, const EndpointOptions& options,
                std::uint64_t user);
  /// To RTS, by what both ends said. Errors name the peer.
  Status connect(const Device& device, const EndpointOptions& options, const Greeting& own,
                 const Greeting& peer, const GidEntry& source, const std::string& peer_text);
  /// Nothing new is executed from now on, and what is posted is flushed.
  void to_error(const Device& device);
  /// 0, or an errno, and it still exists. On success the device has let go of all memory.
  int destroy(const Device& device);

  [[nodiscard]] ibv_qp* get() const { return qp_; }
  [[nodiscard]] bool exists() const { return qp_ != nullptr; }

 private:
  ibv_qp* qp_ = nullptr;
};

/// What this end says of a queue pair of its own, with a random packet sequence number; `attempt`
/// and `kind` are the caller's.
Greeting describe(const Device& device, const QueuePair& qp, const EndpointOptions& options,
                  const GidEntry& source);

/// The options with what the device can do as their limits.
EndpointOptions clamp_options(const Device& device, const EndpointOptions& options);

/// Entries that a queue pair of these sizes may have in its completion queue.
std::uint32_t completion_entries(const EndpointOptions& options);

}  // namespace pawl::fabric::verbs
