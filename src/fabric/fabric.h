// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/work.h"
#include "memory/registrar.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::fabric {

enum class WindowSupport : std::uint8_t {
  none,
  /// Windows that can be bound and ended, and no more: a READ under way may still complete with
  /// success after the end, without all of its bytes, and a window's bounds may not hold (the
  /// registration's do). Only with a check after each READ.
  inexact,
  exact,
};

/// What this device can do; constant after the fabric was made. A connection uses the minimum of
/// both ends (they travel in the handshake).
struct Capabilities {
  std::uint32_t message_bytes_max = 0;  ///< one send; at most the peer's receive size is useful
  std::uint32_t inline_bytes_max = 0;
  std::uint32_t send_segments_max = 1;
  std::uint32_t receive_segments_max = 1;
  std::uint32_t read_segments_max = 1;
  std::uint32_t read_bytes_max = 0;  ///< one READ
  /// READs outstanding per endpoint as initiator; flow control keeps one less (flow.md).
  std::uint32_t read_depth_max = 1;
  std::uint32_t send_depth_max = 1;  ///< send, read, bind and invalidate together
  std::uint32_t receive_depth_max = 1;
  WindowSupport windows = WindowSupport::none;
  /// allocate_window and free_window may take milliseconds: any thread may call them, and a helper
  /// should. Otherwise they are quick and belong to the poller's thread.
  bool window_calls_block = false;
  /// A key of `expose` opens exactly those bytes, to that group alone. False on verbs, where it
  /// opens the registration to whoever knows it: only windows are exact there.
  bool exact_keys = true;
};

/// Sizes of one endpoint's queues; clamped to the capabilities by the fabric, never above them.
struct EndpointOptions {
  PeerGroup group;
  std::uint32_t send_depth = 128;
  std::uint32_t receive_depth = 64;
  std::uint32_t read_depth = 16;
  /// Bulk endpoints carry READs; the control endpoint carries messages. A hint for socket options.
  bool bulk = false;
};

enum class EventKind : std::uint8_t {
  connect_request,  ///< a peer asks: answer with accept or reject
  connected,        ///< both ends: work may be posted; at the connecting end `hello` is the answer
  connect_failed,   ///< `status` says why; its receives were flushed, the endpoint is gone and no
                    ///< `closed` follows. At the accepting end: the peer gave up before `connected`
  failed,           ///< the endpoint went to ERR by itself (never by set_error), once; flushes
                    ///< come by poll, before it and after it; close it
  closed,           ///< the last trace of a closed endpoint: poll has returned every completion
  device,           ///< `status` describes a change of the device (port down, removed)
};

struct Event {
  EventKind kind = EventKind::device;
  EndpointId endpoint;
  ListenerId listener;           ///< connect_request
  std::string peer_address;      ///< connect_request, connected: for messages and policy
  std::vector<std::byte> hello;  ///< connect_request, connected, connect_failed by reject
  Status status;                 ///< connect_failed, failed, device
};

/// What a NIC does, as a small batch-oriented interface with three implementations (verbs, tcp,
/// sim) and one decorator (faulty). One object serves one poller: every function is called on
/// that poller's thread, except those of Registrar and where `window_calls_block` says so. It never
/// calls back; everything that happens is a value that `poll` or `poll_event` returns. It never
/// throws and never blocks; connect, accept and close may each cost a few system calls (about a
/// millisecond on verbs), so they are not for each call.
///
/// The promises (each has a case in tests/conformance; what needs a network that goes silent or a
/// slow name server has its case over sockets in tests/tcp):
///  1. Messages of one endpoint arrive once, whole and in the order of their posts, or the
///     endpoint fails. No order is promised between endpoints, nor between READs and messages,
///     nor between the completions of two READs.
///  2. Every accepted work request completes exactly once, at the latest before `closed`. Send
///     and READ completions are no promise about each other's order.
///  3. A completion of a receive or READ, whatever its status, gives the memory back; before it
///     the fabric may write there at any moment, after it never.
///  4. A READ moves bytes of memory that the peer exposed to this group and only within the bounds
///     that the key opens (`exact_keys`); anything else completes with remote_access, changes
///     nothing in the landing memory beyond the READ's own segments, and takes both endpoints to
///     ERR.
///  5. There is no way to write into a peer's memory.
///  6. After `set_error` nothing new is executed here; what was posted is flushed.
///  7. A revoked window or a dead group gives no byte to a READ that is executed afterwards
///     (exact); see WindowSupport for devices that promise less.
///  8. A message for which no receive is posted waits, and so does everything behind it on that
///     endpoint, READs too; nothing is lost. That costs milliseconds: credits keep it from
///     happening.
///  9. `arm` returning true means that anything which happens later makes event_fd readable.
/// 10. No completion with success and no `failed` of an endpoint before poll_event has returned its
///     `connected`: what arrives earlier waits.
/// 11. A message longer than the receive that it meets is never cut: the receive completes with
///     local_error, the send with remote_operation, and both ends go to ERR.
/// 12. `failed` comes when the fabric hears of the end: by what is posted, so an endpoint keeps a
///     receive posted (a device may tell an empty one nothing), or by the peer's fabric. A host
///     that vanished is noticed only by work that it does not acknowledge (retry_exceeded), and a
///     READ of it completes late or not before `close`: the caller's own time limit ends it.
class Fabric : public Registrar {
 public:
  /// "tcp", "sim", "verbs".
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;

  // --- connections -------------------------------------------------------------------------

  /// Starts to listen. `address` is the fabric's own notation ("127.0.0.1:0", "[::1]:7000",
  /// "unix:/run/x", a name on sim). Errors name the address and the remedy.
  virtual Result<ListenerId> listen(std::string_view address) = 0;
  /// The address with the port that the system chose, as another node would give it to connect.
  [[nodiscard]] virtual std::string listener_address(ListenerId listener) const = 0;
  virtual void close_listener(ListenerId listener) = 0;

  /// Starts to connect and carries `hello` (at most kHelloBytesMax) to the other side's
  /// connect_request. Ends with `connected` or `connect_failed`, at `deadline` at the latest.
  /// Names are resolved off the poller. Each attempt is an endpoint of its own, so a late answer
  /// never belongs to another attempt. Receives may be posted at once.
  virtual Result<EndpointId> connect(std::string_view address, const EndpointOptions& options,
                                     std::span<const std::byte> hello, TimePoint deadline) = 0;
  /// Answers a connect_request; `hello` reaches the other side's `connected`. Receives posted
  /// between connect_request and accept are in place before the first message; with more of them
  /// than `options.receive_depth` accept is an error (resource_exhausted). An error (unknown
  /// endpoint: the peer gave up; hello too large) changes nothing: the caller closes or rejects.
  /// Ends with `connected`, or with connect_failed if the peer went away meanwhile.
  virtual Status accept(EndpointId endpoint, const EndpointOptions& options,
                        std::span<const std::byte> hello) = 0;
  /// Refuses it; `hello` (cut to kHelloBytesMax) reaches the other side's connect_failed. The
  /// endpoint is gone: receives posted to it are flushed, no event follows.
  virtual void reject(EndpointId endpoint, std::span<const std::byte> hello) = 0;

  /// Takes the endpoint to ERR: nothing new is executed, posted work is flushed, the peer's end
  /// fails soon after: its fabric is told (on verbs by the bootstrap connection, which stays open
  /// for that), as long as there is a way. Idempotent; before `connected` it does nothing (close it
  /// instead).
  virtual void set_error(EndpointId endpoint) = 0;
  /// Destroys the endpoint: what has not completed is flushed, then `closed` comes as its last
  /// event. Idempotent; an unknown id is ignored. A message whose send has succeeded is not lost by
  /// it. Windows that are bound through the endpoint are freed first (set_error, flushes,
  /// free_window, close): on verbs `closed` waits for that, since a device may take a minute to
  /// destroy a queue pair under a bound window.
  virtual void close(EndpointId endpoint) = 0;
  /// Forgets every remote key that was made for a group.
  virtual void close_group(PeerGroup group) = 0;

  // --- memory ------------------------------------------------------------------------------

  /// The remote key by which `group` may READ the buffer [base, base + length), which lies in one
  /// registration made for bulk or generation_words. On tcp the key is made per (group, base) at
  /// the first call and returned again by later ones; on verbs it is the slab's. It stays valid
  /// until close_group or deregister_memory: revocation is the guard's business, not the key's.
  virtual Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                       std::uint64_t length) = 0;

  /// A window for `bind`. unimplemented where capabilities().windows is none. It is bound at most
  /// kWindowBindsMax times and then freed, so that no key comes twice. A bind comes only after the
  /// invalidate of the one before, to bytes of one registration made for bulk, and an invalidate
  /// only once after a bind, through its endpoint: anything else never reaches the device (one
  /// crashes Linux 6.1, which also binds beyond the registration); post refuses it
  /// (failed_precondition), or it completes with bind_error or local_error. After an error or flush
  /// of a bind or an invalidate the window can only be freed.
  virtual Result<WindowId> allocate_window() = 0;
  /// The key that the next bind of this window will open; it goes into the message of the same
  /// chain. Zero-based: the remote address is the offset in the bound bytes.
  [[nodiscard]] virtual std::uint64_t next_window_key(WindowId window) const = 0;
  /// Ends the window, bound or not; its success proves that no READ is served through it any more.
  /// Not while a bind or an invalidate that names it may still be executed, which would kill the
  /// endpoint: each has completed, or its endpoint is in ERR. Where the fabric can tell, that is
  /// failed_precondition and nothing is done.
  virtual Status free_window(WindowId window) = 0;

  // --- work --------------------------------------------------------------------------------

  /// Posts a chain in order. Returns how many were accepted: all, or those before the first that
  /// failed, whose reason is in `why`: resource_exhausted = queue full; failed_precondition =
  /// endpoint in ERR, closed, or still connecting (which accepts receives only); too_large = more
  /// segments or bytes than the device can; invalid_argument = no bytes: sends, READs, receives,
  /// binds and each of their segments have at least one, since devices take a zero length for
  /// 2^31 or drop the packet. A request that was not accepted does not complete. A local segment
  /// outside its registration is accepted and completes with local_error; the endpoint goes to ERR.
  /// A slot of the send queue is taken until its completion, which may come after the peer's
  /// credit. READs beyond read_depth are accepted, and hold up what is posted behind them.
  virtual std::size_t post(EndpointId endpoint, std::span<const WorkRequest> chain,
                           Status& why) = 0;

  /// Moves the world on and returns completions, at most out.size().
  virtual std::size_t poll(TimePoint now, std::span<Completion> out) = 0;
  /// Grows with whatever poll does, also where no completion came of it yet (bytes that moved): by
  /// this a poller tells a busy turn from an idle one. 0 for fabrics that need no such thing.
  [[nodiscard]] virtual std::uint64_t work_done() const { return 0; }
  /// Takes the next event, false if there is none. Called after poll, in the same turn.
  virtual bool poll_event(Event& out) = 0;

  /// When time alone will make something happen (connect deadlines, simulated delays); never() if
  /// nothing is scheduled.
  [[nodiscard]] virtual TimePoint next_event_time() const = 0;
  /// Prepares to sleep; false if something arrived in between: poll again first.
  virtual bool arm() = 0;
  /// Readable when armed and something happened; -1 for fabrics in virtual time.
  [[nodiscard]] virtual int event_fd() const = 0;

  /// Endpoints, listeners, keys and windows that exist: for tests and leak checks.
  struct Resources {
    std::uint64_t endpoints = 0, listeners = 0, keys = 0, windows = 0, registrations = 0;
    std::uint64_t work_requests = 0;  ///< accepted and not completed
  };
  [[nodiscard]] virtual Resources resources() const = 0;
};

inline constexpr std::size_t kHelloBytesMax = 4096;

/// A bind gives a window its next key by counting 8 bits on: the key of bind 1 works again after
/// bind 257.
inline constexpr std::uint32_t kWindowBindsMax = 255;

}  // namespace pawl::fabric
