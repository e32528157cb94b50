// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "pawl/bulk.h"
#include "pawl/call.h"
#include "pawl/operation.h"
#include "pawl/payload.h"
#include "pawl/service.h"

namespace pawl {

namespace detail {
class ChannelCore;  // src/rpc/channel_core.h
}

/// Values that can never work are refused by name at every call of the channel.
struct ChannelOptions {
  /// Of calls that give none.
  Duration default_deadline = std::chrono::seconds(30);
  /// The guard for what this end lends. Empty: `verify`, the one that every fabric can do. A call
  /// that lends under one which the two ends cannot do is refused before anything is sent.
  std::optional<Guard> guard;
  /// After a call's timeout, cancel or loss, what the call lent (an upload) stays in quarantine
  /// until the peer acknowledged the cancel, or the endpoints of the connection are closed: no byte
  /// of a next use reaches the peer's memory, not even to be discarded there. Until then
  /// `Block::unique` refuses, `Region::reuse` answers unavailable, and `Outcome::lent_back` waits.
  /// A peer that does not acknowledge loses the connection (NodeOptions::quarantine_timeout). Not
  /// covered: what a server lends with its answers (downloads), since a reader does not tell the
  /// owner when the READs of a call that it gave up are over.
  bool hold_until_ack = false;
  /// Reconnect attempts are spaced by a jittered delay that doubles up to this.
  Duration reconnect_backoff_first = std::chrono::milliseconds(10);
  Duration reconnect_backoff_max = std::chrono::seconds(1);
  Duration connect_timeout = std::chrono::seconds(3);
  /// A peer of which nothing was heard for this long (pings included), or that left a message
  /// unacknowledged for as long, is given up.
  Duration liveness = std::chrono::seconds(10);
  /// Calls that wait or are under way at the same time, per poller; more are refused
  /// (resource_exhausted).
  std::uint32_t calls_max = 16384;
};

/// The way to a peer: connects when the first call needs it, reconnects by itself, and keeps one
/// connection per poller that uses it. A handle: copies share the connections; any thread. The
/// connections end when the last copy is gone and the last call over; what was handed over by
/// `send` still goes out.
class Channel {
 public:
  Channel() = default;
  explicit Channel(std::shared_ptr<detail::ChannelCore> core) : core_(std::move(core)) {}

  /// Untyped call. The request is taken over; `lend` or `into` as the method's direction says
  /// (else invalid_argument); an upload method without `lend`, or with empty Blocks only, lends
  /// nothing: its handler sees no segment. Memory is that of the channel's node (else
  /// failed_precondition). Lazy: starts when awaited, started or blocked on; dropping it
  /// cancels: the peer's data mover is told, lent bytes are taken back at once.
  Operation<Outcome<Payload>> call(const Method& method, Payload request,
                                   const CallOptions& options = {}) const;
  Operation<Outcome<Payload>> call(const Method& method, Payload request, Lend lend,
                                   const CallOptions& options = {}) const;
  Operation<Outcome<Pulled<Payload>>> call(const Method& method, Payload request, Into into,
                                           const CallOptions& options = {}) const;

  /// Sends the request of a one-way method; completes when it was handed to the fabric.
  Operation<Status> send(const Method& method, Payload request,
                         const CallOptions& options = {}) const;

  /// Connects now instead of at the first call; completes when connected, or with the reason.
  Operation<Status> connect(Duration deadline = std::chrono::seconds(3)) const;

  [[nodiscard]] std::string_view target() const;
  explicit operator bool() const { return static_cast<bool>(core_); }

 private:
  std::shared_ptr<detail::ChannelCore> core_;
};

}  // namespace pawl
