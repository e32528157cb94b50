// SPDX-License-Identifier: Apache-2.0
// A client call from its start to its answer, and its ends. What the answer brings in bulk:
// client_download.cc.
#include "rpc/client_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "rpc/client_download.h"
#include "rpc/connection.h"
#include "rpc/data_link.h"
#include "rpc/engine.h"
#include "rpc/lane.h"

namespace pawl::rpc {

ClientCall::ClientCall(const Method& method, Payload request, Lend lend, Into into,
                       const CallOptions& options)
    : method_(method),
      request_(std::move(request)),
      lend_(std::move(lend)),
      into_(std::move(into)),
      options_(options) {
  // The memory behind the options' views is the caller's, and may go once the call was made.
  if (!options.metadata.empty()) {
    metadata_.resize(metadata_encoded_bytes(options.metadata));
    if (metadata_.size() <= kMetadataBytesMax) encode_metadata(options.metadata, metadata_);
  }
  has_trace_ = options.trace.trace_id != decltype(options.trace.trace_id){};
}

ClientCall::~ClientCall() = default;

void ClientCall::start(std::shared_ptr<Lane> lane) {
  lane_ = std::move(lane);
  Engine& engine = lane_->engine();
  state_ = State::waiting;
  started_ = engine.poller().now();
  ++engine.stats().calls_started;
  ++engine.stats().calls_live;
  if (Status good = check_arguments(engine.context().pool.core()); !good.ok()) return end(good);
  // 0 is the channel's default; what `inherit` made negative or used up is over already.
  const Duration budget =
      options_.deadline.count() == 0 ? lane_->options().default_deadline : options_.deadline;
  if (budget.count() <= 0) {
    return end({Code::deadline, "the call's deadline had passed before it was made"});
  }
  deadline_ = started_ + budget;
  deadline_timer_.arm(engine.poller(), deadline_, &ClientCall::on_deadline, this);
  const Kept kept(*this);
  lane_->submit(*this);
}

void ClientCall::connected(Connection& connection) {
  if (connection.going_away()) {
    return end({Code::unavailable, "the peer is shutting down and takes no more calls"});
  }
  connection_ = Ref<Connection>(&connection);
  detail::FrameVector<Block> segments;
  for (const Block& block : lend_.segments()) {
    if (!block.empty()) segments.push_back(block);
  }
  std::size_t total = 0;
  for (const Block& block : segments) total += block.size();
  inline_upload_ = !segments.empty() && total <= lane_->engine().context().options.inline_bytes_max;
  segments_.assign(segments.size(), {});
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments_[i].length = segments[i].size();
    segments_[i].inline_bytes = inline_upload_;
  }
  lend_ = Lend(std::move(segments));
  const std::size_t longest = connection.body_bytes_max();
  if (request_.size() > longest || body_bytes() > longest) {  // lengths on the wire have 32 bits
    return end({Code::too_large,
                "the request is longer than message_bytes_max of this node or of its peer: lend "
                "what is long as bulk, or raise it at both ends"});
  }
  state_ = State::queued;
  const bool express = options_.priority == Priority::express;
  const bool lends = !segments_.empty() && !inline_upload_;
  if (lends) {
    if (Status can = check_guard(connection); !can.ok()) return end(std::move(can));
  }
  if (lends && guard::policy_of(lending_guard()).binds_windows) {
    windowed_ = true;
    id_ = connection.add_windowed(*this, express);
    return;
  }
  id_ = connection.add(*this, express);
  if (lends) connection.expect_bulk(connection.role_peer_reads());
}

// Before anything is sent.
Status ClientCall::check_guard(const Connection& connection) const {
  const Guard guard = lending_guard();
  const bool windows = guard::policy_of(guard).binds_windows;
  if (!connection.guard_negotiated(guard)) {
    const char* needs = "it is not built yet";
    if (windows) needs = "both need NodeOptions::memory_windows, and devices that have them";
    if (is_baseline(guard)) needs = "both need NodeOptions::allow_baselines";
    return Status::with_detail(Code::unimplemented, "this node and " + connection.peer_address() +
                                                        " cannot both do the channel's guard, " +
                                                        std::string(guard_name(guard)) + ": " +
                                                        needs);
  }
  if (windows && segments_.size() > guard::kWindowSegmentsMax) {
    return {Code::too_large,
            "a window guard lends at most 16 segments in a call: join some, or lend under verify"};
  }
  return {};
}

void ClientCall::on_windows(guard::WindowReservation windows, DataLink& link) {
  windows_ = std::move(windows);
  request_endpoint_ = static_cast<std::uint8_t>(1 + static_cast<std::uint8_t>(link.role()));
  request_link_ = link.incarnation();
}

void ClientCall::no_connection(const Status& why) { end(Status(why).with_ran(Ran::no)); }

Guard ClientCall::lending_guard() const { return lane_->options().guard.value_or(Guard::verify); }

// The last moment before the request goes out: the lease begins here.
bool ClientCall::prepare_frame() {
  if (state_ != State::queued) return false;
  if (!segments_.empty()) {
    if (Status lent = inline_upload_ ? copy_inline() : lend_segments(); !lent.ok()) {
      end(std::move(lent));
      return false;
    }
  }
  going_out_ = true;
  return true;
}

Status ClientCall::lend_segments() {
  Engine& engine = lane_->engine();
  guard_ = lending_guard();
  bulk::Lender::Terms terms;
  terms.guard = guard_;
  terms.deadline = deadline_ + engine.context().options.lease_grace;
  terms.call = id_;
  terms.hold_until_ack = lane_->options().hold_until_ack;
  terms.windows = std::move(windows_);
  Result<LeaseDescriptor> lease = engine.lender().lend(*connection_, connection_->lent(), this,
                                                       lend_.segments(), terms, segments_);
  if (!lease.ok()) return lease.status();
  lease_ = *lease;
  if (windowed_) lease_.endpoint = static_cast<std::uint8_t>(request_endpoint_ - 1);
  lease_id_ = lease->lease.id;
  bulk_ = true;
  return {};
}

// Small uploads travel in the request. Not straight into the message: a block of a region may turn
// out to be stale when it is copied, and then the request is not sent.
Status ClientCall::copy_inline() {
  std::size_t bytes = 0;
  for (const Block& block : lend_.segments()) bytes += block.size();
  inline_bytes_ = Payload(bytes);
  std::span<std::byte> out = inline_bytes_.bytes();
  for (const Block& block : lend_.segments()) {
    if (Status copied = block.copy_out(0, out.first(block.size())); !copied.ok()) return copied;
    out = out.subspan(block.size());
  }
  return {};
}

Request ClientCall::request_frame() const {
  Request request;
  request.method = method_.hash;
  request.remaining_us = UINT64_MAX;
  if (deadline_ != TimePoint::never()) {
    const Duration left = deadline_ - lane_->engine().poller().now();
    request.remaining_us =
        static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0)) / 1000;
  }
  request.tenant = options_.tenant;
  request.priority = options_.priority;
  request.one_way = method_.one_way;
  if (has_trace_) request.trace = options_.trace;
  request.metadata = metadata_;
  std::size_t payload = request_.size();
  if (!segments_.empty()) {
    request.lease = lease_;
    request.lease->segments = static_cast<std::uint16_t>(segments_.size());
    if (inline_upload_) {
      for (const SegmentDescriptor& segment : segments_) payload += segment.length;
    }
  }
  request.payload_bytes = static_cast<std::uint32_t>(payload);
  request.payload = request_.bytes();
  return request;
}

std::size_t ClientCall::body_bytes() const {
  const Request request = request_frame();
  return encoded_bytes(request) + segments_.size() * SegmentDescriptor::kBytes +
         (request.payload_bytes - request.payload.size());
}

void ClientCall::encode_body(std::span<std::byte> out) const {
  detail::FrameVector<std::byte> list(segments_.size() * SegmentDescriptor::kBytes);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    encode(segments_[i], std::span(list).subspan(i * SegmentDescriptor::kBytes));
  }
  Request request = request_frame();
  request.segments = list;
  out = out.subspan(encode(request, out));
  const std::span<const std::byte> behind = inline_bytes_.bytes();
  if (!behind.empty()) std::memcpy(out.data(), behind.data(), behind.size());
}

FrameHeader ClientCall::frame_header() const {
  FrameHeader header;
  header.type = FrameType::request;
  header.call = id_;
  header.attempt = attempt_;
  return header;
}

void ClientCall::frame_sent() {
  request_went_out_ = true;
  state_ = State::sent;
  sent_ = lane_->engine().poller().now();
  request_ = Payload();
  inline_bytes_ = Payload();
  if (method_.one_way) end({});
}

void ClientCall::on_response(const Response& response) {
  const Kept kept(*this);
  answered_ = lane_->engine().poller().now();
  if (const DataLink* link = connection_->receiving_link()) answer_endpoint_ = link->id();
  state_ = State::landing;  // answered: the loss of the request's endpoint is none of this call
  // The callee is done with what it was lent.
  take_back(bulk::LeaseEnd::released);
  if (state_ == State::over) return;
  if (response.code != Code::ok) {
    if (response.lease) {  // nobody will read it
      answer_lease_ = *response.lease;
      give_back_unread();
    }
    if (response.message.empty()) {
      return end(Status(response.code, "the peer gave no reason", response.ran, response.native));
    }
    std::string text(response.message);
    if (response.code == Code::unimplemented && response.ran == Ran::no) {  // it knows a hash only
      text = std::string(method_.name) + " at " + connection_->peer_address() + ": " + text;
    }
    return end(Status::with_detail(response.code, std::move(text), response.ran, response.native));
  }
  if (!response.lease) {
    reply_ = Payload(response.payload);
    return finish_ok();
  }
  place_parts(response);
}

void ClientCall::take_back(bulk::LeaseEnd reason) {
  if (lease_id_ != 0) lane_->engine().lender().end(std::exchange(lease_id_, 0), reason);
}

void ClientCall::lease_over(std::uint64_t, bulk::LeaseEnd) { lease_id_ = 0; }

// What was lent and is not back with the end of its lease (hold_until_ack).
void ClientCall::find_lent(CallResult& result) {
  if (!connection_) return;
  CallMemory& memory = result.memory;
  if (windowed_) {
    if (!connection_->window_held(id_, memory.lent_back)) return;
    memory.quarantine = QuarantineReason::window_revoke;
    memory.whereabouts = result.status.ok() ? Whereabouts::returning : Whereabouts::quarantined;
    return;
  }
  if (!lane_->options().hold_until_ack) return;
  memory.quarantine = lane_->engine().lender().held(connection_->lent(), id_, memory.lent_back);
  if (memory.quarantine != QuarantineReason::none) memory.whereabouts = Whereabouts::quarantined;
}

// --- ends ------------------------------------------------------------------------------------

void ClientCall::on_deadline(void* context) {
  auto* self = static_cast<ClientCall*>(context);
  const Kept kept(*self);
  Ran ran = self->request_went_out_ ? Ran::unknown : Ran::no;
  if (self->state_ == State::waiting) {
    self->lane_->explain_wait(*self);
    return;
  }
  if (self->answered_.ns != 0) ran = Ran::yes;
  const std::string far = self->how_far();
  self->take_back(bulk::LeaseEnd::timeout);
  if (self->state_ == State::over) return;
  self->tell_cancelled(Code::deadline);
  const auto budget =
      std::chrono::duration_cast<std::chrono::milliseconds>(self->deadline_ - self->started_);
  self->end(Status::with_detail(Code::deadline,
                                "no complete answer from " + self->connection_->peer_address() +
                                    " within " + std::to_string(budget.count()) + " ms: " + far,
                                ran));
}

// Where a call is that takes too long.
std::string ClientCall::how_far() const {
  if (transfer_) {
    return "the answer came, of its bulk " + lane_->engine().puller().progress(*transfer_);
  }
  if (state_ == State::landing) {
    return "the answer came, and waited for memory to land its bulk in (NodeOptions::pool)";
  }
  if (lease_id_ != 0) {
    const Status trouble = connection_->data_trouble(connection_->role_peer_reads());
    if (!trouble.ok()) {
      return "the data endpoint over which the peer reads is not open: " +
             std::string(trouble.what());
    }
  }
  return "give the call more time, or see why it takes so long";
}

void ClientCall::connection_over(const Status& why) {
  Status status = why;
  if (status.code() != Code::protocol_error) {
    status = Status::with_detail(Code::connection_lost, std::string(why.what()));
  }
  end(std::move(status).with_ran(request_went_out_ ? Ran::unknown : Ran::no));
}

// The request, or a part of it, may have reached the peer.
void ClientCall::tell_cancelled(Code reason) {
  if (!going_out_ || !connection_) return;
  Cancel cancel;
  cancel.reason = reason;
  if (windowed_) {
    cancel.endpoint = request_endpoint_;
    cancel.incarnation = static_cast<std::uint16_t>(request_link_);
    cancel.message = message;
  }
  connection_->send_cancel(id_, attempt_, cancel);
}

void ClientCall::endpoint_lost() {
  const Kept kept(*this);
  tell_cancelled(Code::data_lost);
  end({Code::data_lost, "the data endpoint over which the request went out was lost",
       Ran::unknown});
}

void ClientCall::cancel() {
  if (state_ == State::over || state_ == State::idle) {
    state_ = State::over;
    return;
  }
  ++lane_->engine().stats().calls_cancelled;
  --lane_->engine().stats().calls_live;
  state_ = State::over;
  take_back(bulk::LeaseEnd::cancelled);
  tell_cancelled(Code::cancelled);
  CallResult forgotten{Status()};
  leave(forgotten);
  // Here, on its poller: with the last reference the lane goes too.
  const std::shared_ptr<Lane> lane = std::move(lane_);
}

void ClientCall::refuse(const Status& why) {
  CallResult result(why);
  stop_pull(result);
  finish_call(std::move(result));
}

// Lets go of connection, lane, timer and transfer; what must outlive the call does.
void ClientCall::leave(CallResult& result) {
  deadline_timer_.cancel();
  acquiring_.drop();
  stop_pull(result);
  landings_.reset();
  windows_.reset();
  into_ = Into();
  if (ListNode<WaitingTag>::linked()) lane_->unlist(*this);
  if (connection_ && id_ != 0) connection_->remove(*this);
  connection_.reset();
  lend_ = Lend();
}

void ClientCall::end(Status status) {
  if (state_ == State::over) return;
  const Kept kept(*this);  // what goes with the lent memory may drop this very call
  // The end of the lease comes before everything else.
  take_back(status.ok() ? bulk::LeaseEnd::released : bulk::LeaseEnd::failed);
  if (state_ == State::over) return;
  NodeStats& stats = lane_->engine().stats();
  --stats.calls_live;
  if (status.ok()) {
    ++stats.calls_ok;
  } else if (status.code() == Code::deadline) {
    ++stats.calls_deadline;
  } else {
    ++stats.calls_failed;
  }
  CallResult result(std::move(status));
  result.info = info();
  if (result.status.ok()) {
    result.reply = std::move(reply_);
    if (landings_) result.parts = std::move(landings_->parts);
  }
  state_ = State::over;
  find_lent(result);
  leave(result);
  const std::shared_ptr<Lane> lane = std::move(lane_);
  finish_call(std::move(result));
}

void ClientCall::finish_ok() { end({}); }

CallInfo ClientCall::info() const {
  CallInfo info;
  Engine& engine = lane_->engine();
  const TimePoint now = engine.poller().now();
  info.guard = guard_;
  info.bulk = bulk_;
  info.attempts = attempt_;
  info.total = now - started_;
  const bool sent = sent_.ns != 0;
  const bool answered = answered_.ns != 0;
  info.queue = (sent ? sent_ : now) - started_;
  if (sent) info.wire = (answered ? answered_ : now) - sent_;
  info.read = read_;
  info.confirm = confirm_;
  info.fabric = engine.context().fabric_name;
  info.fabric_reason = engine.context().fabric_reason;
  return info;
}

}  // namespace pawl::rpc
