// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/list.h"
#include "base/ref_counted.h"
#include "bulk/lender.h"
#include "pawl/call.h"
#include "pawl/poller.h"
#include "pawl/service.h"
#include "pawl/timer.h"
#include "rpc/connection.h"
#include "rpc/registry.h"
#include "rpc/session.h"
#include "rpc/upload.h"
#include "rpc/wire.h"

namespace pawl::detail {

/// A call that a peer makes: from its request to the end of its handler, of what the answer lent,
/// and of every READ for it. `Call`, `Upload` and `Download` are the handler's views of it.
/// Counted: one reference while the connection knows it, one while the handler runs, one for each
/// pull. Poller thread.
class ServerCall final : public RefCounted<ServerCall>,
                         public InFrames,
                         public rpc::WindowedFrame,
                         public bulk::LendOwner,
                         public ListNode<struct RunningTag>,
                         private Work {
 public:
  /// Known to the connection from now on, under the caller's call id.
  static ServerCall* make(rpc::Connection& connection, const rpc::FrameHeader& header,
                          std::span<const std::byte> body);
  ~ServerCall();

  /// Puts the handler into the ready queue.
  void dispatch(const rpc::Registry::Entry& method);
  void answer_without_handler(Status why);

  /// The node shuts down: the handler is dropped where it stands.
  void drop_handler();

  // From the connection.
  void on_cancel(Code reason);
  void connection_over();

  [[nodiscard]] std::uint64_t id() const { return id_; }

  // OutFrame
  bool prepare_frame() override;
  [[nodiscard]] std::size_t body_bytes() const override;
  void encode_body(std::span<std::byte> out) const override;
  [[nodiscard]] rpc::FrameHeader frame_header() const override;
  void frame_sent() override;
  [[nodiscard]] std::size_t windows_wanted() const override { return lent_blocks_.size(); }
  void on_windows(guard::WindowReservation windows, rpc::DataLink& link) override;

  // LendOwner
  void lease_over(std::uint64_t lease_id, memory::LeaseEnd reason) override;

  // For Call, Upload and Download.
  [[nodiscard]] rpc::Connection& connection() { return *connection_; }
  [[nodiscard]] const rpc::Request& request() const { return request_; }
  [[nodiscard]] const char* method_name() const { return method_.method.name; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] bool cancelled() const { return cancelled_; }
  [[nodiscard]] bool handler_runs() const { return state_ == State::running; }
  [[nodiscard]] Operation<Status> on_cancelled();
  [[nodiscard]] Status over_status() const;
  [[nodiscard]] std::uint16_t attempt() const { return attempt_; }
  /// Over which the request came with its window keys.
  [[nodiscard]] fabric::EndpointId upload_endpoint() const { return upload_endpoint_; }
  [[nodiscard]] std::span<const rpc::SegmentDescriptor> upload() const { return upload_; }
  /// Bytes of upload segment i that came inside the request.
  [[nodiscard]] std::span<const std::byte> inline_segment(std::size_t i) const;
  void add_part(Result<Block> part) { parts_.push_back(std::move(part)); }
  [[nodiscard]] std::size_t parts() const { return parts_.size(); }

  // From pulls.
  List<rpc::PullBase>& pulls() { return pulls_; }
  memory::Landings& unconfirmed() { return unconfirmed_; }
  rpc::Pieces& unconfirmed_pieces() { return unconfirmed_pieces_; }
  /// A READ for this call may be outstanding / is over.
  void reading() { ++reading_; }
  void read_over();

 private:
  friend class CancelWait;
  enum class State : std::uint8_t { queued, running, answering, answered, over };

  ServerCall(rpc::Connection& connection, const rpc::FrameHeader& header,
             std::span<const std::byte> body);

  static void run(Work* work);
  void start_handler();
  static void on_handled(void* call, Result<Payload> result);
  void answer(Result<Payload> result);
  void inline_small_parts(Payload& reply);
  static void on_deadline(void* call);
  void cancel();
  void acknowledge_cancel();
  void leave();
  [[nodiscard]] std::size_t payload_bytes() const;
  [[nodiscard]] rpc::Response response_frame() const;
  Status lend_parts();
  [[nodiscard]] Guard lending_guard() const;
  Status check_windows() const;
  void answer_lost();
  bool drop_stale_parts();
  void count_bytes(std::size_t bytes);

  Ref<rpc::Connection> connection_;
  const std::uint64_t id_;
  const std::uint16_t attempt_;
  Payload body_;  // of the request; request_ points into it
  rpc::Request request_;
  rpc::Registry::Entry method_;
  FrameVector<rpc::SegmentDescriptor> upload_;
  TimePoint deadline_ = TimePoint::never();
  Timer deadline_timer_;
  State state_ = State::queued;
  bool known_ = true;  // to the connection
  bool cancelled_ = false;
  Code cancel_reason_ = Code::cancelled;
  bool ack_due_ = false;
  bool ran_ = false;
  std::uint32_t reading_ = 0;
  std::optional<Result<Payload>> held_answer_;  // the handler is done, its last READs are not
  std::size_t counted_bytes_ = 0;               // of the connection's served_bytes

  Call call_;
  Upload upload_view_;
  Download download_view_;
  Operation<Result<Payload>> handler_;
  bool handler_done_in_begin_ = false;

  List<rpc::PullBase> pulls_;
  memory::Landings unconfirmed_;
  rpc::Pieces unconfirmed_pieces_;               // what they were read from
  FrameVector<class CancelWait*> cancel_waits_;  // the handler's own operations: it bounds them

  // The answer.
  Status status_;
  Payload reply_;
  Parts parts_;
  FrameVector<rpc::SegmentDescriptor> segments_;  // one for each part
  FrameVector<Block> lent_blocks_;                // those that are not inline
  rpc::LeaseDescriptor lease_;
  std::uint64_t lease_id_ = 0;
  guard::WindowReservation windows_;  // from on_windows to the lease
  std::uint8_t data_index_ = 0;       // of the endpoint that they are bound on
  fabric::EndpointId upload_endpoint_;
};

}  // namespace pawl::detail
