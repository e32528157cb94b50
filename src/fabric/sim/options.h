// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fabric/fabric.h"
#include "fabric/random_delay.h"
#include "pawl/time.h"

namespace pawl::fabric {

inline constexpr Capabilities kSimCapabilities{
    .message_bytes_max = 64 * 1024,
    .inline_bytes_max = 256,
    .send_segments_max = 8,
    .receive_segments_max = 8,
    .read_segments_max = 8,
    .read_bytes_max = 1 << 30,
    .read_depth_max = 16,
    .send_depth_max = 4096,
    .receive_depth_max = 4096,
    .windows = WindowSupport::exact,
};

/// What a simulated network does. The defaults are a quiet, fast network without faults; a test
/// may change them at any time through SimNetwork::options(), capabilities excepted.
struct SimOptions {
  // The wire. A node sends and receives at most bytes_per_second, each way.
  Duration latency = 2us;  ///< one way, without serialisation
  Duration jitter = 500ns;
  double bytes_per_second = 12.5e9;
  /// The answer of a READ is sampled from the owner's memory in pieces of this size, each when
  /// the wire is free for it, so that a write in the middle gives a mixture.
  std::uint32_t packet_bytes = 4096;

  // The device. Durations with _max are drawn from 0 to it.
  Duration post_delay_max = 300ns;        ///< from post to the start of the work
  Duration completion_delay_max = 500ns;  ///< from the last byte or ACK to the completion
  /// From ERR to the flushed completions. Answers of READs under way still land in between.
  Duration flush_delay_max = 2us;
  Duration window_time_max = 1us;           ///< a bind or invalidate
  Duration receiver_not_ready_delay = 1us;  ///< from the missing receive's post to the retry
  Duration receiver_not_ready_timeout = Duration::max();  ///< then the send fails
  Duration retry_timeout = 500ms;   ///< without any answer, a requester gives up after this
  Duration handshake_timeout = 1s;  ///< accept to the peer's confirmation
  /// False: an endpoint in ERR tells the peer nothing, as on verbs; the peer learns by its own
  /// retry_timeout, and only if it has work under way.
  bool announce_errors = true;

  // Faults, drawn per case.
  double connect_refused = 0;    ///< per connect
  RandomDelay stall;             ///< per message or READ request; holds back all behind it
  RandomDelay read_delay;        ///< per READ, at the owner, before it is executed: a late READ
  RandomDelay packet_stall;      ///< per packet of a READ's answer, before it is sampled
  RandomDelay slow_node;         ///< drawn once per node, added to each of its packets
  RandomDelay completion_stall;  ///< per completion of a send or READ
  double endpoint_loss = 0;      ///< per request started: this endpoint goes to ERR
  double connection_loss = 0;    ///< per request started: all endpoints of its group do
  /// Per READ whose window is revoked in the middle: it completes with success although the rest
  /// of its bytes never arrived, then both ends go to ERR (seen on soft-RoCE).
  double inexact_revocation = 0;

  Capabilities capabilities = kSimCapabilities;
};

}  // namespace pawl::fabric
