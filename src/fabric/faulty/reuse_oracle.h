// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/work.h"

namespace pawl::fabric {

enum class ReadVerdict : std::uint8_t {
  unknown,  ///< nothing is known about this buffer
  same,     ///< the buffer was not exposed again between post and execution
  reused,   ///< it was: the READ gets bytes of another use, unless a guard stops it
};

/// Knows whether a buffer was lent anew while a READ of it was held: for demonstrations, which
/// count how many late READs hit a reused buffer. Called by FaultyFabric on its poller's thread;
/// owner and reader may be different processes.
class ReuseOracle {
 public:
  virtual ~ReuseOracle() = default;

  /// Owner: a buffer at `base` is exposed (again), under this remote address.
  virtual void on_expose(PeerGroup group, RemoteAddress remote, const std::byte* base) = 0;
  /// Reader: a READ from this address was posted and is held. The result comes back below.
  virtual std::uint64_t on_read_posted(RemoteAddress remote) = 0;
  /// Reader: the READ is about to be executed.
  virtual ReadVerdict on_read_executed(RemoteAddress remote, std::uint64_t posted) = 0;
};

}  // namespace pawl::fabric
