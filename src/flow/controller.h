// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pawl/priority.h"
#include "pawl/time.h"

namespace pawl::flow {

/// The other end of bulk traffic: one remote NIC. Chosen by the caller, never 0.
struct PeerId {
  std::uint64_t value = 0;
  friend auto operator<=>(PeerId, PeerId) = default;
};

/// A transfer as its caller names it; slot and generation, so that late events are harmless.
struct TransferId {
  std::uint64_t value = 0;
  friend auto operator<=>(TransferId, TransferId) = default;
};

/// What a controller needs to know of a transfer.
struct Transfer {
  TransferId id;
  PeerId peer;
  std::uint64_t bytes = 0;  ///< not 0
  TimePoint deadline = TimePoint::never();
  Priority priority = Priority::interactive;
  std::uint32_t tenant = 0;
};

/// A READ that may be posted now: the next `bytes` bytes of a transfer, from `offset`.
struct Grant {
  TransferId transfer;
  PeerId peer;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

/// Decides when bytes move (docs/flow.md): the receiver of all bulk traffic of one NIC and poller.
/// No I/O and no clock: events and `now` in, READs to post and the next timer out. One thread. No
/// allocation in steady state.
class Controller {
 public:
  virtual ~Controller() = default;

  /// A transfer whose bytes are to be pulled. False when `transfers_max` are in hand: the caller
  /// fails it with resource_exhausted.
  virtual bool submit(const Transfer& transfer, TimePoint now) = 0;
  /// The rest of the transfer will not be asked for; grants that were taken still complete.
  virtual void cancel(TransferId transfer, TimePoint now) = 0;
  /// A grant that was taken is over: its READ completed, failed, or was never posted.
  /// `latency`: from posting to completion; 0 = no sample.
  virtual void on_complete(const Grant& grant, bool ok, Duration latency, TimePoint now) = 0;
  /// The 8 hint bytes of a message from a peer.
  virtual void on_hint(PeerId peer, std::uint64_t hint, TimePoint now) = 0;
  virtual void on_timer(TimePoint now) = 0;
  /// What to send as hint to a peer.
  [[nodiscard]] virtual std::uint64_t hint_for(PeerId peer) const = 0;
  /// Takes up to out.size() grants.
  virtual std::size_t take(std::span<Grant> out, TimePoint now) = 0;
  [[nodiscard]] virtual TimePoint next_timer() const = 0;
  /// Bytes granted and not complete.
  [[nodiscard]] virtual std::uint64_t bytes_in_flight() const = 0;
};

}  // namespace pawl::flow
