// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pawl/call.h"
#include "pawl/operation.h"
#include "pawl/payload.h"
#include "pawl/result.h"

namespace pawl {

/// Whether a method moves bulk data, and which way.
enum class BulkDirection : std::uint8_t { none, upload, download };

/// The name of a method as it travels: the first 64 bits (FNV-1a) of "package.Service/Method".
/// Registration refuses collisions.
constexpr std::uint64_t method_hash(std::string_view full_name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : full_name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

/// What both ends know of a method at compile time. `name` is a literal: "demo.Blocks/Get".
struct Method {
  const char* name = "";
  std::uint64_t hash = 0;
  BulkDirection bulk = BulkDirection::none;
  bool idempotent = false;
  bool one_way = false;
};

constexpr Method make_method(const char* name, BulkDirection direction = BulkDirection::none,
                             bool is_idempotent = false, bool is_one_way = false) {
  return Method{name, method_hash(name), direction, is_idempotent, is_one_way};
}

/// A set of methods with their handlers. Handlers run on the poller of the connection and share it
/// with everything else there. One that blocks its thread, or computes for long, holds up its
/// server: other handlers, accepts, READs and checks of what is lent, cancels and timers, until a
/// peer that hears nothing for ChannelOptions::liveness gives the connection up. Not held up: the
/// deadlines of callers, which are kept at their end, the node's other pollers, and Node::stats
/// (as of the last turn). Such a turn is named in the log (NodeOptions::long_turn). What blocks
/// belongs on threads of its own: `co_await run_on(workers, fn)` (pawl/workers.h), where `block` is
/// allowed too and nothing waits for it but the handler. How many workers there are is independent
/// of the number of pollers.
///
/// Generated services derive from it, and so may code without protobuf. One object serves any
/// number of nodes and threads. Dropping a Server does not wait for handlers that run, so a service
/// outlives the Node, or the end of Server::drain: declare it before the node.
class Service {
 public:
  virtual ~Service() = default;

  [[nodiscard]] virtual std::span<const Method> methods() const = 0;

  /// Handles method `index` of methods(). The operation is begun at once on the connection's
  /// poller; when the caller is gone Call::cancelled tells, and the handler ends by itself.
  /// `request` is valid until the operation completed. `in` is empty unless the method uploads,
  /// `out` is used only if it downloads.
  virtual Operation<Result<Payload>> handle(std::size_t index, Call& call,
                                            std::span<const std::byte> request, Upload& in,
                                            Download& out) = 0;
};

}  // namespace pawl
