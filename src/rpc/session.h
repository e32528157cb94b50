// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/list.h"
#include "fabric/fabric.h"
#include "guard/window_end.h"
#include "pawl/buffer.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/payload.h"
#include "pawl/time.h"
#include "rpc/frame_queue.h"
#include "rpc/handshake.h"
#include "rpc/message_slots.h"
#include "rpc/wire.h"

namespace pawl {
struct NodeStats;
}

namespace pawl::rpc {

/// A request or response on its way out. Lives in its call; in at most one session's queue.
class OutFrame : public ListNode<> {
 public:
  /// Asked once, right before the frame goes out (under credit, in order): the last moment to
  /// lend, or to say no. False: it is not sent, and nothing else is called.
  virtual bool prepare_frame() = 0;
  /// The body's length; constant from `queue` on.
  [[nodiscard]] virtual std::size_t body_bytes() const = 0;
  /// After prepare_frame, once.
  virtual void encode_body(std::span<std::byte> out) const = 0;
  [[nodiscard]] virtual FrameHeader frame_header() const = 0;
  /// The whole frame was handed to the fabric; the object leaves the queue.
  virtual void frame_sent() = 0;

  /// By the session: in which of its messages with calls the last part of it went out so far.
  std::uint32_t message = 0;

  /// For the session: a body that needs several messages, and how far it went out.
  struct Fragments {
    Payload body;
    std::size_t sent = 0;
  };
  Fragments fragments;

 protected:
  ~OutFrame() = default;
};

class DataLink;

/// One that lends under a window guard: it goes out over the data endpoint on which its windows are
/// bound, so it waits for the two before it is queued there.
class WindowedFrame : public OutFrame, public ListNode<struct WindowedTag> {
 public:
  [[nodiscard]] virtual std::size_t windows_wanted() const = 0;
  /// It is about to be queued on `link`; with none in `windows`: it was taken from there again.
  virtual void on_windows(guard::WindowReservation windows, DataLink& link) = 0;

 protected:
  ~WindowedFrame() = default;
};

/// What comes out of messages: whole frames, in order.
class FrameHandler {
 public:
  /// Asked first, for every frame: credits and parts of bodies never reach `on_frame` themselves.
  virtual Status admit_frame(const FrameHeader& header) = 0;
  /// `body` is valid during the call. A status that is not ok ends the connection with it.
  virtual Status on_frame(const FrameHeader& header, std::span<const std::byte> body) = 0;
  virtual void on_hint(std::uint64_t hint) = 0;
  [[nodiscard]] virtual std::uint64_t hint_to_send() const = 0;

 protected:
  ~FrameHandler() = default;
};

/// The messages of one control endpoint: packs frames into messages, keeps the two classes of
/// credits, fragments and reassembles long bodies, posts and reposts receives (docs/wire.md).
/// Poller thread.
class Session {
 public:
  /// `slots`: where outgoing messages are built, shared by all sessions of a poller. `sends_max`:
  /// its part of the send queue, at most kSendsInFlightMax. `windows`: on a data endpoint, whose
  /// binds go out before the messages that carry their keys.
  Session(fabric::Fabric& fabric, std::size_t device, MessageSlots& slots, FrameHandler& handler,
          NodeStats& stats, const HandshakeLimits& own, std::uint32_t sends_max = kSendsInFlightMax,
          guard::WindowEnd* windows = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Posts the receives; `memory` (receives() * receive_bytes long) stays here until `closed`.
  Status open(fabric::EndpointId endpoint, Buffer memory);
  /// The other side's limits are known: messages may go out.
  void start(const HandshakeLimits& peer);
  /// Nothing goes out any more; what is queued is forgotten. Completions may still come.
  void stop();
  /// Before `stop`: a request or response of which nothing went out; nullptr: there is none.
  OutFrame* take_unsent();

  [[nodiscard]] static std::size_t receives(const HandshakeLimits& own) {
    return std::size_t{own.call_messages} + own.session_messages;
  }

  /// Queues a request or response. Under `express` before those that wait.
  void queue(OutFrame& frame, bool express);
  /// Queues a session frame; the body is copied. False: FrameQueue::kBytesMax wait, so the peer
  /// reads nothing: the caller ends the connection.
  [[nodiscard]] bool queue_session(const FrameHeader& header, std::span<const std::byte> body) {
    return session_out_.push(header, body);
  }

  /// Reposts receives, then sends what credits, slots and queue allow. Returns true if something
  /// was sent.
  bool flush(TimePoint now);
  /// True if all that is missing is a message slot, which may come back through other sessions.
  /// (One that has its share of them goes on when one of its own comes back.)
  [[nodiscard]] bool starved() const {
    return slots_.empty() && sends_in_flight_ < MessageSlots::kShareMin && wants_message();
  }
  /// Why the fabric did not take a message, which is lost, though the endpoint is not in ERR; else
  /// ok.
  [[nodiscard]] const Status& refused() const { return refused_; }
  /// When the oldest send was posted that has not completed; never() if none is out.
  [[nodiscard]] TimePoint oldest_send() const {
    return sends_in_flight_ > 0 ? sent_at_[oldest_send_] : TimePoint::never();
  }
  /// True if `flush` has something to do now.
  [[nodiscard]] bool wants_flush() const { return !reposts_.empty() || may_send(); }

  /// Requests or responses, or parts of them, are still to go out.
  [[nodiscard]] bool calls_wait() const { return !out_.empty() || !long_out_.empty(); }
  /// No completion comes any more.
  void device_gone() { sends_in_flight_ = 0; }
  [[nodiscard]] bool all_sent() const {
    return sends_in_flight_ == 0 && session_out_.empty() && !calls_wait();
  }

  /// A receive completed with success: hands its frames to the handler. `flush` reposts it, before
  /// it tells the peer of the credit. The status ends the connection.
  Status on_receive(const fabric::Completion& completion);
  /// A send completed, whatever its status.
  void on_send(const fabric::Completion& completion);

  /// The call of this id is over: forgets what arrived of its long request.
  void drop_request(std::uint64_t call);

  /// Messages with calls that came, modulo 2^32.
  [[nodiscard]] std::uint32_t call_messages_received() const { return call_received_; }

  /// Bodies above this are refused by the caller of `queue`: the smaller of both sides' limits.
  [[nodiscard]] std::size_t body_bytes_max() const;

  static constexpr std::uint32_t kSendsInFlightMax = 64;
  static constexpr std::size_t kMessagesPerPost = 8;

 private:
  [[nodiscard]] bool may_send() const;
  [[nodiscard]] bool wants_message() const;
  struct Assembly {
    FrameHeader header;
    Payload body;  // empty: none under way
    std::size_t filled = 0;
  };

  [[nodiscard]] std::uint32_t call_credit() const {
    return peer_.call_messages - (call_sent_ - call_returned_);
  }
  [[nodiscard]] std::uint32_t session_credit() const {
    return peer_.session_messages - (session_sent_ - session_returned_);
  }
  [[nodiscard]] bool credit_due() const;
  Status post_receives(std::span<const std::uint32_t> indexes);
  void repost_receives();
  void give_back_unposted(std::span<const fabric::WorkRequest> unposted);
  std::size_t build_message(std::span<std::byte> out, bool call_class);
  std::size_t pack_call_frames(std::span<std::byte> out, std::uint16_t& frames);
  std::size_t pack_fragment(std::span<std::byte> out, std::uint16_t& frames);
  Status read_frames(std::span<const std::byte> rest);
  Status on_fragment(const FrameHeader& header, std::span<const std::byte> body);
  Status take_credit(const MessageHeader& header);
  [[nodiscard]] bool had_credit(MessageHeader::Class message_class) const;

  fabric::Fabric& fabric_;
  const std::size_t device_;
  MessageSlots& slots_;
  FrameHandler& handler_;
  NodeStats& stats_;
  guard::WindowEnd* const windows_;
  const HandshakeLimits own_;
  const std::uint32_t sends_max_;  // in flight
  HandshakeLimits peer_;
  bool started_ = false;
  fabric::EndpointId endpoint_;
  Buffer receive_memory_;
  MemoryHandle receive_handle_;

  List<OutFrame> out_;
  List<OutFrame> long_out_;  // bodies of several messages: one after the other, between the others
  FrameQueue session_out_;
  std::uint32_t sends_in_flight_ = 0;
  std::array<TimePoint, kSendsInFlightMax> sent_at_;  // a ring: sends complete in their order
  std::size_t oldest_send_ = 0;                       // in it
  Status refused_;
  detail::FrameVector<std::uint32_t> reposts_;     // receives that completed in this turn
  Assembly request_assembly_, response_assembly_;  // a peer sends long bodies one at a time

  // Cumulative counters; differences are taken modulo 2^32.
  std::uint32_t call_sent_ = 0, session_sent_ = 0;          // by us
  std::uint32_t call_returned_ = 0, session_returned_ = 0;  // of ours, by the peer
  std::uint32_t call_received_ = 0, session_received_ = 0;  // from the peer, reposted
  std::uint32_t call_told_ = 0, session_told_ = 0;          // what the peer was told of them
};

}  // namespace pawl::rpc
