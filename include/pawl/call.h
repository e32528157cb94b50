// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pawl/bulk.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/guard.h"
#include "pawl/operation.h"
#include "pawl/payload.h"
#include "pawl/priority.h"
#include "pawl/quarantine.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl {

class Channel;
class Node;

/// W3C trace context (traceparent), passed on as it is.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  std::uint8_t flags = 0;
};

/// One key and value of the metadata of a call; together at most kMetadataBytesMax.
struct Metadata {
  std::string_view key;
  std::string_view value;
};
inline constexpr std::size_t kMetadataBytesMax = 8192;

/// How one call is to be made. Plain data: the memory behind the views must live until the call is
/// started (awaited, started or blocked on).
struct CallOptions {
  /// Time for everything from start to the end of the call; 0 = the channel's default (30 s).
  /// Not positive after `inherit`: fails locally, at once, with Code::deadline.
  Duration deadline{0};
  Priority priority = Priority::interactive;
  std::uint32_t tenant = 0;
  /// Whether to wait (until the deadline) for a connection that is not there; else unavailable.
  bool wait_for_connection = true;
  TraceContext trace{};
  std::span<const Metadata> metadata{};
};

/// Where the memory of a call is when the call is over: the buffers or ranges of the caller's own
/// that a download was to land in, or the Blocks that an upload lent.
enum class Whereabouts : std::uint8_t {
  in_hand,      ///< in `parts`, or `buffers_back` completes at once; nobody holds what was lent
  returning,    ///< READs into it are still completing; await `Outcome::buffers_back`
  quarantined,  ///< held until a proof, see `Outcome::quarantine`; await `buffers_back`,
                ///< `lent_back`
};

/// What an Outcome tells of that; see there.
class CallMemory {
 public:
  CallMemory() = default;
  Whereabouts whereabouts = Whereabouts::in_hand;
  QuarantineReason quarantine = QuarantineReason::none;
  Operation<std::vector<Buffer>> buffers_back;
  Operation<Status> lent_back;
};

/// What happened on the way, for logs and tuning. Durations are zero where a step did not happen.
struct CallInfo {
  Guard guard = Guard::verify;
  bool bulk = false;           ///< bytes moved by READ
  std::uint16_t attempts = 1;  ///< so far always 1: nothing is retried by itself
  Duration total{0};
  Duration queue{0};  ///< until the request was posted
  Duration wire{0};   ///< from there to the answer
  Duration read{0};   ///< from the first READ posted to the last completed
  Duration confirm{0};
  const char* fabric = "";         ///< "tcp", "sim", …
  const char* fabric_reason = "";  ///< why this one: "no RDMA device"
};

/// The result of a call: a value or a Status, and what happened. `co_await ok(outcome operation)`
/// gives the value or ends the coroutine with the status.
template <class T>
class [[nodiscard]] Outcome {
 public:
  using value_type = T;
  Outcome(Result<T> result, const CallInfo& info, CallMemory memory = {})
      : result_(std::move(result)), info_(info), memory_(std::move(memory)) {}
  Outcome(Status status) : result_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  static Outcome from_status(Status status) { return Outcome(std::move(status)); }

  [[nodiscard]] bool ok() const { return result_.ok(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Status& status() const { return result_.status(); }
  /// The value or status alone: for a handler that passes on what another node said.
  [[nodiscard]] Result<T> result() && { return std::move(result_); }
  /// Whether the handler ran. After success: yes.
  [[nodiscard]] Ran ran() const { return ok() ? Ran::yes : status().ran(); }
  [[nodiscard]] const CallInfo& info() const { return info_; }

  [[nodiscard]] T& operator*() & { return *result_; }
  [[nodiscard]] const T& operator*() const& { return *result_; }
  [[nodiscard]] T&& operator*() && { return *std::move(result_); }
  [[nodiscard]] T* operator->() { return &*result_; }
  [[nodiscard]] const T* operator->() const { return &*result_; }

  [[nodiscard]] Whereabouts whereabouts() const { return memory_.whereabouts; }
  /// Why, when the call ended; none if it was in hand. It may have changed since: a READ that its
  /// device does not complete takes its endpoint down.
  [[nodiscard]] QuarantineReason quarantine() const { return memory_.quarantine; }
  /// After a failed download into buffers of the caller's: gives them back, empty, once no READ
  /// can write into them any more. Completes at once when they are in hand already. Dropping it
  /// lets them go to their pool instead. After one into ranges of a region it gives nothing, once
  /// they are their writer's again; after any other call nothing, at once.
  [[nodiscard]] Operation<std::vector<Buffer>>& buffers_back() {
    if (!memory_.buffers_back) {
      memory_.buffers_back = Operation<std::vector<Buffer>>::ready({});
    }
    return memory_.buffers_back;
  }
  /// After an upload under ChannelOptions::hold_until_ack that did not end well: ok once no READ of
  /// the peer can reach what was lent any more, so that the Blocks may be dropped, made `unique` or
  /// reused without its seeing a byte of the next use. Completes at once when it is so already, as
  /// after any other call. Dropping it changes nothing.
  [[nodiscard]] Operation<Status>& lent_back() {
    if (!memory_.lent_back) memory_.lent_back = Operation<Status>::ready({});
    return memory_.lent_back;
  }
  /// The same call with another result: for codecs and other layers on top.
  template <class U>
  [[nodiscard]] Outcome<U> with(Result<U> other) && {
    return Outcome<U>(std::move(other), info_, std::move(memory_));
  }

  /// "ok 143 us (queue 3, wire 60, read 51, confirm 29) verify/tcp: no RDMA device"
  [[nodiscard]] std::string to_string() const;

 private:
  Result<T> result_;
  CallInfo info_;
  CallMemory memory_;
};

/// The line that Outcome::to_string prints.
std::string describe_call(const Status& status, const CallInfo& info);

template <class T>
std::string Outcome<T>::to_string() const {
  return describe_call(ok() ? Status() : status(), info_);
}

using Parts = detail::FrameVector<Result<Block>>;

/// The value of a download: the reply and one entry per segment, either the checked bytes or a
/// status with the code that the handler gave for that segment (or `stale` if it alone was taken
/// back). The call is ok also if no segment has bytes: only the loss of the whole lease fails it.
template <class Reply>
class Pulled {
 public:
  Pulled(Reply reply, Parts parts) : reply_(std::move(reply)), parts_(std::move(parts)) {}
  [[nodiscard]] Reply& reply() { return reply_; }
  [[nodiscard]] const Reply& reply() const { return reply_; }
  [[nodiscard]] std::span<Result<Block>> parts() { return parts_; }
  [[nodiscard]] std::span<const Result<Block>> parts() const { return parts_; }
  /// All of them, for a Pulled of another reply.
  [[nodiscard]] Parts take_parts() && { return std::move(parts_); }
  /// Part 0; invalid_argument if the answer has none.
  [[nodiscard]] Result<Block> part() const {
    if (parts_.empty()) return Status(Code::invalid_argument, "the answer carries no bulk part");
    return parts_[0];
  }
  [[nodiscard]] Reply* operator->() { return &reply_; }
  [[nodiscard]] const Reply* operator->() const { return &reply_; }

 private:
  Reply reply_;
  Parts parts_;
};

/// Who is at the other end.
struct Peer {
  std::string_view address;   ///< "10.0.0.7:41822"
  std::string_view identity;  ///< what the authenticator said; empty without one
  std::uint64_t incarnation = 0;
};

namespace detail {
class ServerCall;  // src/rpc/server_call.h
}

/// The handler's view of the call that it serves. On its poller only; lives as long as the
/// handler's operation.
class Call {
 public:
  explicit Call(detail::ServerCall& impl) : impl_(impl) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] Peer peer() const;
  [[nodiscard]] std::string_view method() const;
  [[nodiscard]] Pool& pool() const;
  [[nodiscard]] Node& node() const;

  /// True once the caller cancelled, its deadline passed, or its connection ended. Pulls fail
  /// from then on; an answer is dropped.
  [[nodiscard]] bool cancelled() const;
  /// Completes when `cancelled` becomes true.
  [[nodiscard]] Operation<Status> on_cancelled() const;
  [[nodiscard]] Duration remaining() const;

  /// Options for calls made on behalf of this one: what is left of the deadline, priority, tenant
  /// and trace. They end `margin` before this call does, so that their errors still reach its
  /// caller.
  [[nodiscard]] CallOptions inherit(Duration margin = {}) const;

  /// Value of a metadata key; empty if absent. Valid as long as the Call.
  [[nodiscard]] std::string_view metadata(std::string_view key) const;
  [[nodiscard]] Priority priority() const;
  [[nodiscard]] std::uint32_t tenant() const;
  [[nodiscard]] const TraceContext& trace() const;

  /// A channel back to the caller over the same connection, for reverse calls. It ends with the
  /// connection; it may outlive the Call.
  [[nodiscard]] Channel caller() const;

  /// For codecs: the request could not be read and no handler saw it, so the answer says ran = no
  /// and may be retried. Before `Service::handle` returns.
  void not_run() { not_run_ = true; }

 private:
  friend class detail::ServerCall;
  detail::ServerCall& impl_;
  bool not_run_ = false;
};

/// Bulk bytes of which a pull is complete and the check is not: cannot be read before `confirm`.
class Unconfirmed {
 public:
  Unconfirmed() = default;
  explicit Unconfirmed(std::size_t index, std::size_t bytes) : index_(index), bytes_(bytes) {}
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::size_t index_ = 0;
  std::size_t bytes_ = 0;
};

/// What the caller lent, in a handler of an upload method. Pulling is READ and check; nothing of
/// the caller's memory is touched before. Pulls fail with `stale` if the caller took the bytes
/// back, `cancelled` or `deadline` if the call is over. On the call's poller.
class Upload {
 public:
  explicit Upload(detail::ServerCall& impl) : impl_(impl) {}
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  [[nodiscard]] std::size_t segments() const;
  [[nodiscard]] std::uint64_t size() const;  ///< bytes of all segments
  [[nodiscard]] std::uint64_t segment_size(std::size_t i) const;

  /// All segments, joined in order, as one Buffer of this node's pool; more than
  /// Pool::kBufferBytesMax is too_large: pull it in parts with `range`.
  Operation<Result<Buffer>> pull(Pool& pool, ByteRange range = {});
  /// One segment, or a part of it.
  Operation<Result<Buffer>> pull_segment(std::size_t i, Pool& pool, ByteRange range = {});
  /// Into a region of the user's: the joined bytes of `range` at `offset`.
  Operation<Result<Block>> pull_into(const Region& region, std::size_t offset,
                                     ByteRange range = {});

  /// READ without the check, for pipelines; `confirm` makes one check for all that was pulled so
  /// far and gives the buffers in the order of their pulls.
  Operation<Result<Unconfirmed>> pull_unconfirmed(Pool& pool, ByteRange range = {});
  Operation<Result<std::vector<Buffer>>> confirm();

 private:
  detail::ServerCall& impl_;
};

/// What a handler of a download method lends to its caller: one entry per segment. The leases
/// begin with the answer. Blocks under NodeOptions::inline_bytes_max travel inside the answer.
class Download {
 public:
  explicit Download(detail::ServerCall& impl) : impl_(impl) {}
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  /// At most kSegmentsMax entries in all, else the caller gets too_large instead of the answer.
  void add(Block block);
  /// This segment has no bytes, for this reason (not_found, …); the others are served. The caller
  /// gets the code that the handler gave, not its sentence.
  void add(Status status);
  [[nodiscard]] std::size_t segments() const;

 private:
  detail::ServerCall& impl_;
};

}  // namespace pawl
