// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "memory/registrar.h"

namespace pawl::fabric {

/// One connected pair of queues at this fabric (a queue pair on verbs, a socket on tcp). The value
/// carries a generation: the id of an endpoint that was closed never means another one.
struct EndpointId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend auto operator<=>(EndpointId, EndpointId) = default;
};

struct ListenerId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend auto operator<=>(ListenerId, ListenerId) = default;
};

/// The endpoints of one peer connection. Remote keys are made for a group and open nothing on
/// endpoints of another one (where Capabilities::exact_keys). Chosen by the caller, unique per
/// fabric, never used again.
struct PeerGroup {
  std::uint64_t value = 0;
  friend auto operator<=>(PeerGroup, PeerGroup) = default;
};

/// A type-2 memory window of this fabric.
struct WindowId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend auto operator<=>(WindowId, WindowId) = default;
};

enum class Opcode : std::uint8_t {
  send,        ///< a message into the next receive that the peer posted
  receive,     ///< room for one message
  read,        ///< pull bytes from the peer's memory
  bind,        ///< bind a window to local memory, for use through this endpoint only
  invalidate,  ///< end the binding of a window
};

/// Bytes of this process that a work request gathers from or scatters to. They belong to the
/// fabric from a successful post to the work request's completion.
struct LocalSegment {
  std::byte* address = nullptr;
  std::uint32_t length = 0;
  MemoryHandle memory;  ///< the registration that covers the bytes
};

/// Bytes of the peer: the key and the address as the peer's `expose` or `bind` gave them.
struct RemoteAddress {
  std::uint64_t key = 0;
  std::uint64_t address = 0;
};

/// One unit of work. The spans need to live only until `post` returns.
struct WorkRequest {
  std::uint64_t id = 0;  ///< comes back in the completion; the fabric does not interpret it
  Opcode op = Opcode::send;
  /// Asks for a completion now. One that is not signalled still completes exactly once, together
  /// with the next signalled request of its endpoint; if that one did not succeed, this one may be
  /// `flushed` though it was done. The fabric signals by itself where silent work would fill the
  /// queue.
  bool signalled = true;
  /// Waits for earlier READs of this endpoint (needed before an invalidate).
  bool fence = false;
  /// send only: the bytes are copied by `post` (at most `Capabilities::inline_bytes_max`), so the
  /// segments need no registration and are free again when `post` returns.
  bool inline_payload = false;
  std::span<const LocalSegment> local;  ///< send: gathered; receive, read: scattered to
  RemoteAddress remote;                 ///< read
  WindowId window;                      ///< bind, invalidate
  LocalSegment bind_target;             ///< bind: the bytes that the window opens, zero-based
};

enum class CompletionStatus : std::uint8_t {
  success,
  flushed,             ///< the endpoint went to ERR before this was done
  local_error,         ///< length or protection of the local segments, queue overrun
  remote_access,       ///< the peer's key or bounds refused a READ
  remote_operation,    ///< the peer's device failed, or the message was longer than its receive
  retry_exceeded,      ///< the peer's device does not answer
  receiver_not_ready,  ///< the peer had no receive for too long; not where promise 8 is kept
  bind_error,
};

std::string_view completion_status_name(CompletionStatus status);

/// What became of one work request.
///
/// send: success = the message is in a receive of the peer; an error or flush proves nothing.
/// receive: success = `bytes` bytes of a message are in the buffer, which is the caller's again.
/// read: success = the bytes were delivered as far as the device tells; error or flush = they are
///   undefined. Either way the landing memory is the caller's again.
/// bind, invalidate: success = done; an error or flush proves nothing.
struct Completion {
  std::uint64_t id = 0;
  EndpointId endpoint;
  Opcode op = Opcode::send;
  CompletionStatus status = CompletionStatus::success;
  std::uint32_t bytes = 0;  ///< receive, success only
  std::int32_t native = 0;  ///< errno or vendor code, for messages
};

}  // namespace pawl::fabric
