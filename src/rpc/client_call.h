// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/list.h"
#include "bulk/lender.h"
#include "bulk/puller.h"
#include "pawl/bulk.h"
#include "pawl/call.h"
#include "pawl/poller.h"
#include "pawl/service.h"
#include "pawl/timer.h"
#include "rpc/session.h"
#include "rpc/wire.h"

namespace pawl::rpc {

class Connection;
class Engine;
class Lane;

/// What a call gave, before it is typed.
class CallResult {
 public:
  explicit CallResult(Status status_of_call) : status(std::move(status_of_call)) {}

  Status status;
  Payload reply;
  Parts parts;
  CallInfo info;
  CallMemory memory;
};

/// A call that this node makes, from start to its one end. The operation that the user holds
/// derives from it (client_operation.h), counts it and gives the result on. Everything here is on
/// the engine's poller.
///
///     idle → waiting (for a connection) → queued (for credit) → sent
///          → landing (waits for landing memory) → pulling → over
class ClientCall : public WindowedFrame,
                   public bulk::LendOwner,
                   public bulk::PullListener,
                   public ListNode<struct WaitingTag> {
 public:
  ClientCall(const Method& method, Payload request, Lend lend, Into into,
             const CallOptions& options);

  /// Begins on `lane`'s poller; ends by finish_call exactly once, unless cancelled before.
  void start(std::shared_ptr<Lane> lane);
  /// The user is not interested any more: finish_call will not be called.
  void cancel();

  // From the lane.
  virtual void connected(Connection& connection);
  void no_connection(const Status& why);
  [[nodiscard]] bool waits_for_connection() const { return options_.wait_for_connection; }

  // From the connection.
  [[nodiscard]] bool awaits_response(std::uint16_t attempt) const {
    return state_ == State::sent && attempt == attempt_;
  }
  void on_response(const Response& response);
  void connection_over(const Status& why);
  /// The request, or a part of it, went out over this data endpoint of ours to lend on.
  [[nodiscard]] bool went_over(DataRole role, std::uint32_t incarnation) const {
    return windowed_ && going_out_ && request_endpoint_ == 1 + static_cast<std::uint8_t>(role) &&
           request_link_ == incarnation && (state_ == State::queued || state_ == State::sent);
  }
  /// That endpoint was lost.
  void endpoint_lost();

  [[nodiscard]] std::uint64_t id() const { return id_; }

  // OutFrame
  bool prepare_frame() override;
  [[nodiscard]] std::size_t body_bytes() const override;
  void encode_body(std::span<std::byte> out) const override;
  [[nodiscard]] FrameHeader frame_header() const override;
  void frame_sent() override;
  [[nodiscard]] std::size_t windows_wanted() const override { return segments_.size(); }
  void on_windows(guard::WindowReservation windows, DataLink& link) override;

  // LendOwner, PullListener
  void lease_over(std::uint64_t lease_id, bulk::LeaseEnd reason) override;
  void pull_done(bulk::TransferId transfer, bulk::PullResult result) override;

  virtual void retain_call() noexcept = 0;
  virtual void release_call() noexcept = 0;

  /// Keeps the call alive in a scope in which it may end, and its last holder let it go.
  class Kept {
   public:
    explicit Kept(ClientCall& call) noexcept : call_(call) { call_.retain_call(); }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() { call_.release_call(); }

   private:
    ClientCall& call_;
  };

 protected:
  virtual ~ClientCall();
  /// The end. The object may go when this returns.
  virtual void finish_call(CallResult result) = 0;
  void end(Status status);
  /// The end of a call that never started: nothing was sent, own buffers come back.
  void refuse(const Status& why);

 private:
  enum class State : std::uint8_t { idle, waiting, queued, sent, landing, pulling, over };
  struct Landings;

  Status check_guard(const Connection& connection) const;
  Status check_arguments(const detail::PoolCore& pool) const;
  static void on_deadline(void* call);
  void leave(CallResult& result);
  void tell_cancelled(Code reason);
  void take_back(bulk::LeaseEnd reason);
  void stop_pull(CallResult& result);
  void find_lent(CallResult& result);
  void place_parts(const Response& response);
  Status place_own();
  void acquire_from_pool(Pool& pool, detail::FrameVector<std::size_t> sizes);
  static void on_landing(void* call, Result<detail::FrameVector<Buffer>> buffers);
  void land();
  void keep_landings(memory::Landings landing);
  void give_back_unread();
  void accept_parts(bulk::PullResult result);
  void finish_ok();
  [[nodiscard]] CallInfo info() const;
  [[nodiscard]] std::string how_far() const;
  [[nodiscard]] Request request_frame() const;
  [[nodiscard]] Guard lending_guard() const;
  Status lend_segments();
  Status copy_inline();

  const Method method_;
  Payload request_;
  Lend lend_;
  Into into_;
  const CallOptions options_;
  detail::FrameVector<std::byte> metadata_;  // encoded
  bool has_trace_ = false;

  std::shared_ptr<Lane> lane_;
  Ref<Connection> connection_;
  State state_ = State::idle;
  std::uint64_t id_ = 0;
  std::uint16_t attempt_ = 1;
  Timer deadline_timer_;
  TimePoint deadline_ = TimePoint::never();
  bool going_out_ = false;         // the first piece of the request: the peer may know the call
  bool request_went_out_ = false;  // the last piece: its handler may run

  // Upload.
  bool inline_upload_ = false;
  bool windowed_ = false;               // lends under a window guard
  guard::WindowReservation windows_;    // from on_windows to the lease
  std::uint8_t request_endpoint_ = 0;   // where the request goes out, as Cancel says it
  std::uint32_t request_link_ = 0;      // the incarnation of that data endpoint
  fabric::EndpointId answer_endpoint_;  // over which the answer came with its window keys
  Payload inline_bytes_;  // what travels in the request; from prepare_frame to frame_sent
  std::uint64_t lease_id_ = 0;
  LeaseDescriptor lease_;
  detail::FrameVector<SegmentDescriptor> segments_;

  // Download.
  std::unique_ptr<Landings> landings_;
  std::optional<bulk::TransferId> transfer_;
  Started acquiring_;
  Payload reply_;
  LeaseDescriptor answer_lease_;

  // For CallInfo.
  TimePoint started_, sent_, answered_;
  Duration read_{0}, confirm_{0};
  Guard guard_ = Guard::verify;
  bool bulk_ = false;
};

}  // namespace pawl::rpc
