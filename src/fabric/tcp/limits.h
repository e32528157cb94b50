// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"
#include "pawl/time.h"

/// Every bound of the tcp fabric, with its unit. Starting values; none is part of the wire but
/// those that travel in the handshake.
namespace pawl::fabric::tcp {

// --- what one endpoint can do ------------------------------------------------------------------

inline constexpr std::uint32_t kMessageBytesMax = 1 << 20;
inline constexpr std::uint32_t kReadBytesMax = 1 << 30;
inline constexpr std::uint32_t kInlineBytesMax = 128;
inline constexpr std::uint32_t kSegmentsMax = 8;
inline constexpr std::uint32_t kSendDepthMax = 4096;
inline constexpr std::uint32_t kReceiveDepthMax = 4096;
inline constexpr std::uint32_t kReadDepthMax = 128;

// --- one chunk: what may stand in front of a message -------------------------------------------

inline constexpr std::uint32_t kPieceBytesMax = 64 * 1024;  ///< bytes of one READ answer piece
inline constexpr std::uint32_t kPieceBytesMin = 4 * 1024;   ///< a peer may not ask for less

// --- one turn of the poller --------------------------------------------------------------------

/// Bytes that one sendmsg of one endpoint gathers at most, messages aside.
inline constexpr std::size_t kFlushBytesMax = std::size_t{256} * 1024;
inline constexpr std::size_t kFlushFramesMax = 32;
inline constexpr std::size_t kFlushVectorsMax = 64;
inline constexpr std::size_t kReceiveBytesPerEndpointTurn = std::size_t{256} * 1024;
inline constexpr std::size_t kReceiveBytesPerTurn = std::size_t{2} * 1024 * 1024;
inline constexpr int kEpollEventsPerTurn = 64;
inline constexpr int kAcceptsPerTurn = 16;

// --- buffers that all endpoints of a fabric share ----------------------------------------------

inline constexpr std::size_t kInputBytes = std::size_t{64} * 1024;
inline constexpr std::size_t kStagingBytes =
    std::size_t{64} * 1024;  ///< memory that the CPU cannot read
/// What a receive takes beyond the landing memory: the trailer, the next header, small frames.
inline constexpr std::size_t kLookaheadBytes = std::size_t{4} * 1024;
/// From this size on the rest of a body is received into its landing memory, not copied there.
inline constexpr std::size_t kDirectBytesMin = std::size_t{4} * 1024;

// --- connections -------------------------------------------------------------------------------

inline constexpr std::size_t kHalfOpenMax = 256;    ///< accepted, handshake not complete
inline constexpr Duration kHandshakeDeadline = 5s;  ///< from accept to a whole hello
/// With kHalfOpenMax half-open handshakes one of this age makes room for the next.
inline constexpr Duration kHandshakeEvictAge = 1s;
inline constexpr Duration kAcceptRetry = 100ms;     ///< after EMFILE and its like
inline constexpr Duration kUnixConnectRetry = 5ms;  ///< after EAGAIN: the backlog is full
/// How long an endpoint in ERR waits for its peer to read why.
inline constexpr Duration kLinger = 200ms;
inline constexpr std::size_t kFaultDetailBytesMax = 200;
inline constexpr std::size_t kUnannouncedEventsMax = 4096;  ///< connect requests not yet taken

static_assert(kPieceBytesMin <= kPieceBytesMax && kPieceBytesMax <= kFlushBytesMax);
static_assert(kStagingBytes >= kPieceBytesMax, "a piece of device memory is staged whole");
static_assert(kDirectBytesMin <= kPieceBytesMax && kLookaheadBytes <= kInputBytes);
static_assert(kFlushVectorsMax >= std::size_t{2} * (kSegmentsMax + 2));

}  // namespace pawl::fabric::tcp
