// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pawl/time.h"

/// Every bound of the verbs fabric, with its unit. Starting values; the device's own limits come on
/// top of them.
namespace pawl::fabric::verbs {

// --- what one endpoint asks of its device ------------------------------------------------------

inline constexpr std::uint32_t kSegmentsMax = 4;  ///< of one work request
inline constexpr std::uint32_t kInlineBytes = 128;
inline constexpr std::uint32_t kSendDepthMax = 4096;
inline constexpr std::uint32_t kReceiveDepthMax = 4096;
inline constexpr std::uint32_t kReadDepthMax = 128;
inline constexpr std::uint32_t kMarkers = 1;    ///< send-queue slots for the fabric's own use
inline constexpr std::size_t kChainMax = 16;    ///< work requests in one doorbell
inline constexpr std::uint8_t kRnrTimer = 12;   ///< 0.64 ms; 0 would be 655 ms
inline constexpr std::uint8_t kRnrForEver = 7;  ///< a message waits for its receive: promise 8
inline constexpr std::uint8_t kRetryMax = 6;    ///< 7 is endless on soft-RoCE
inline constexpr std::uint8_t kHopLimit = 64;

// --- completion queues -------------------------------------------------------------------------

inline constexpr std::uint32_t kCompletionQueueEntries = 16384;
inline constexpr std::size_t kCompletionQueuesMax = 64;
inline constexpr std::size_t kCompletionsAtOnce = 32;  ///< of one ibv_poll_cq

// --- wr_id: slot, generation, queue, sequence number -------------------------------------------

inline constexpr int kSequenceBits = 24;
inline constexpr int kSlotBits = 20;
inline constexpr int kGenerationBits = 19;
inline constexpr std::size_t kEndpointsMax = std::size_t{1} << kSlotBits;
static_assert(kSequenceBits + kSlotBits + kGenerationBits + 1 == 64);
static_assert(kSendDepthMax + kMarkers < (1U << kSequenceBits) / 2, "sequence numbers are told");

// --- turns -------------------------------------------------------------------------------------

/// Sockets and asynchronous events are looked at this often while the poller spins; at once after
/// it slept.
inline constexpr Duration kLookEvery = 100us;
inline constexpr int kSystemEventsPerTurn = 64;
inline constexpr int kAcceptsPerTurn = 16;

// --- connections -------------------------------------------------------------------------------

inline constexpr std::size_t kHalfOpenMax = 256;    ///< accepted sockets without a whole request
inline constexpr Duration kHandshakeDeadline = 5s;  ///< from accept to a whole request
inline constexpr Duration kReadyDeadline = 10s;     ///< from our answer to the peer's last word
inline constexpr Duration kAcceptRetry = 100ms;     ///< after EMFILE and its like
inline constexpr Duration kUnixConnectRetry = 5ms;  ///< after EAGAIN: the backlog is full
inline constexpr std::size_t kUnannouncedEventsMax = 4096;  ///< events not yet taken

// --- ends --------------------------------------------------------------------------------------

/// Once the peer's fabric said that its end is gone: for work in flight to end with its own reason.
inline constexpr Duration kHangUpGrace = 100ms;
/// For a queue pair in ERR to flush; then it is destroyed, and what is missing is flushed here.
inline constexpr Duration kDrainMax = 1s;
/// A queue pair that the device would not destroy is tried again this often.
inline constexpr Duration kDestroyRetry = 100ms;

}  // namespace pawl::fabric::verbs
