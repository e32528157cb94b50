// SPDX-License-Identifier: Apache-2.0
#include "rpc/server_call.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "memory/buffer_access.h"
#include "rpc/data_link.h"
#include "rpc/engine.h"

namespace pawl::detail {

using rpc::FrameHeader;
using rpc::FrameType;
using rpc::SegmentDescriptor;

namespace {
constexpr std::size_t kInlineTotalBytesMax = 16384;  // blocks inside one answer
}  // namespace

/// A handler that waits for the end of its caller.
class CancelWait final : public OperationState<Status> {
 public:
  explicit CancelWait(ServerCall& call) : call_(&call) {}
  void over(Status status) {
    call_.reset();
    complete(std::move(status));
  }

 private:
  void on_begin() override {
    if (call_->cancelled()) {
      Status status = call_->over_status();
      return over(std::move(status));
    }
    call_->cancel_waits_.push_back(this);
  }
  void on_drop() noexcept override {
    if (call_) std::erase(call_->cancel_waits_, this);
  }

  Ref<ServerCall> call_;
};

ServerCall* ServerCall::make(rpc::Connection& connection, const FrameHeader& header,
                             std::span<const std::byte> body) {
  return new ServerCall(connection, header, body);
}

ServerCall::ServerCall(rpc::Connection& connection, const FrameHeader& header,
                       std::span<const std::byte> body)
    : Work(&ServerCall::run, "handler"),
      connection_(&connection),
      id_(header.call),
      attempt_(header.attempt),
      body_(body),
      call_(*this),
      upload_view_(*this),
      download_view_(*this) {
  const char* why = nullptr;
  PAWL_CHECK(decode(std::as_const(body_).bytes(), request_, why), "a request is decoded twice");
  if (request_.lease) {
    upload_.resize(request_.lease->segments);
    for (std::size_t i = 0; i < upload_.size(); ++i) {
      PAWL_CHECK(rpc::decode_segment(request_.segments, i, upload_[i], why), "checked by decode");
    }
    for (const SegmentDescriptor& segment : upload_) {
      if (segment.key != 0) {
        connection.expect_bulk(connection.role_we_read());
        break;
      }
    }
  }
  if (const rpc::DataLink* link = connection.receiving_link()) upload_endpoint_ = link->id();
  rpc::Engine& engine = connection.engine();
  if (request_.remaining_us != UINT64_MAX) {
    const auto budget = static_cast<std::int64_t>(
        std::min<std::uint64_t>(request_.remaining_us, INT64_MAX / 1000) * 1000);
    deadline_ = engine.poller().now() + Duration(budget);
  }
  ++engine.stats().served_live;
  count_bytes(body_.size());
}

ServerCall::~ServerCall() {
  PAWL_CHECK(pulls_.empty() && lease_id_ == 0, "a served call goes after its pulls and lease");
  count_bytes(0);
  --connection_->engine().stats().served_live;
}

// How much it holds: the request until its handler is done, then the reply until it is sent.
void ServerCall::count_bytes(std::size_t bytes) {
  connection_->count_served_bytes(counted_bytes_, bytes);
  counted_bytes_ = bytes;
}

void ServerCall::dispatch(const rpc::Registry::Entry& method) {
  method_ = method;
  set_name(method.service->methods()[method.index].name);
  retain();  // the handler's
  deadline_timer_.arm(connection_->engine().poller(), deadline_, &ServerCall::on_deadline, this);
  connection_->engine().poller().defer(*this);
}

void ServerCall::run(Work* work) {
  auto* self = static_cast<ServerCall*>(work);
  self->connection_->engine().dequeue_handler();
  const Ref<ServerCall> handler = Ref<ServerCall>::adopt(self);
  if (self->cancelled_) {
    NodeStats& stats = self->connection_->engine().stats();
    ++(self->cancel_reason_ == Code::deadline ? stats.served_expired : stats.served_cancelled);
    self->answer(Status(self->over_status()));
    return;
  }
  self->start_handler();
}

void ServerCall::start_handler() {
  state_ = State::running;
  ran_ = true;
  ++connection_->engine().stats().served_started;
  connection_->engine().add_running(*this);
  retain();  // until on_handled
  handler_ = method_.service->handle(method_.index, call_, request_.payload.first(payload_bytes()),
                                     upload_view_, download_view_);
  if (call_.not_run_) ran_ = false;
  handler_.begin(Callback<Result<Payload>>{&ServerCall::on_handled, this});
  if (handler_done_in_begin_) handler_.reset();
}

void ServerCall::on_handled(void* context, Result<Payload> result) {
  const Ref<ServerCall> self = Ref<ServerCall>::adopt(static_cast<ServerCall*>(context));
  self->handler_done_in_begin_ = true;
  static_cast<ListNode<RunningTag>&>(*self).unlink();
  NodeStats& stats = self->connection_->engine().stats();
  ++(result.ok() ? stats.served_ok : stats.served_failed);
  Logger& log = *self->connection_->engine().context().log;
  if (!result.ok() && result.status().code() == Code::handler_threw) {
    log.warning(std::string("the handler of ") + self->method_name() +
                " threw: " + std::string(result.status().what()));
  } else if (!result.ok() && self->request_.one_way) {  // the only one who hears of it
    log.warning(std::string("the handler of ") + self->method_name() +
                " failed, and its one-way caller is not told: " + result.status().to_string());
  }
  self->answer(std::move(result));
}

void ServerCall::drop_handler() {
  const Ref<ServerCall> self(this);
  static_cast<ListNode<RunningTag>*>(this)->unlink();
  while (rpc::PullBase* pull = pulls_.front()) {
    pull->call_over({Code::cancelled, "the node was shut down"});
  }
  unconfirmed_.clear();
  if (handler_) {
    handler_.reset();
    // It may have ended just now, resumed by a pull above; else on_handled will not come.
    if (!handler_done_in_begin_) release();
  }
}

void ServerCall::answer_without_handler(Status why) {
  deadline_timer_.cancel();
  answer(std::move(why));
}

// The handler is done, well or not; or there was none.
void ServerCall::answer(Result<Payload> result) {
  deadline_timer_.cancel();
  while (rpc::PullBase* pull = pulls_.front()) {
    pull->call_over({Code::cancelled, "the handler ended before its pull"});
  }
  unconfirmed_.clear();
  request_.payload = request_.metadata = request_.segments = {};
  body_ = Payload();
  count_bytes(0);
  if (state_ == State::over) return;
  state_ = State::answering;
  if (reading_ != 0) {
    // The answer gives back what was lent, so it comes after the last completion.
    held_answer_.emplace(std::move(result));
    return;
  }
  if (cancelled_ || !known_ || request_.one_way) {  // nobody waits for it
    acknowledge_cancel();
    return leave();
  }
  if (!result.ok()) {
    status_ = std::move(result).status();
  } else if (parts_.size() > kSegmentsMax) {
    status_ = Status(Code::too_large,
                     "the handler added more than 1024 parts to its download: answer in several "
                     "calls, or join small parts");
  } else {
    status_ = Status();
    reply_ = *std::move(result);
    inline_small_parts(reply_);
    if (body_bytes() > connection_->body_bytes_max()) {
      status_ =
          Status(Code::too_large, "the reply is longer than message_bytes_max: return it as bulk");
    }
  }
  if (!status_.ok()) {
    reply_ = Payload();
    parts_.clear();
    segments_.clear();
    lent_blocks_.clear();
    lease_ = {};
  }
  count_bytes(reply_.size());
  const bool express = request_.priority == Priority::express;
  if (!lent_blocks_.empty() && guard::policy_of(lending_guard()).binds_windows) {
    if (Status can = check_windows(); !can.ok()) {
      lent_blocks_.clear();
      return answer(can.with_ran(Ran::yes));
    }
    return connection_->add_windowed_response(*this, express);
  }
  connection_->add_response(*this, express);
}

Guard ServerCall::lending_guard() const {
  return connection_->engine().context().options.guard.value_or(Guard::verify);
}

Status ServerCall::check_windows() const {
  if (lent_blocks_.size() > guard::kWindowSegmentsMax) {
    return {Code::too_large,
            "a window guard lends at most 16 parts in an answer: join some, or lend under verify"};
  }
  return {};
}

void ServerCall::on_windows(guard::WindowReservation windows, rpc::DataLink& link) {
  windows_ = std::move(windows);
  data_index_ = static_cast<std::uint8_t>(link.role());
}

// Blocks that are not worth a READ travel behind the reply. One of a region may turn out to be
// stale when it is copied: that segment alone says so.
void ServerCall::inline_small_parts(Payload& reply) {
  const std::size_t each_max = connection_->engine().context().options.inline_bytes_max;
  std::size_t inline_total = 0;
  for (const Result<Block>& part : parts_) {
    SegmentDescriptor& segment = segments_.emplace_back();
    if (!part.ok()) {
      segment.code = part.status().code();
    } else if (part->size() <= each_max && inline_total + part->size() <= kInlineTotalBytesMax) {
      segment.length = part->size();
      segment.inline_bytes = !part->empty();
      inline_total += part->size();
    } else {
      segment.length = part->size();
      segment.kind = rpc::KeyKind::region;
      lent_blocks_.push_back(*part);
    }
  }
  lease_.segments = static_cast<std::uint16_t>(segments_.size());
  if (inline_total == 0) return;
  Payload whole(reply.size() + inline_total);
  std::span<std::byte> out = whole.bytes();
  if (reply.size() > 0) std::memcpy(out.data(), reply.bytes().data(), reply.size());
  out = out.subspan(reply.size());
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    SegmentDescriptor& segment = segments_[i];
    if (!segment.inline_bytes) continue;
    const Status copied = parts_[i]->copy_out(0, out.first(segment.length));
    if (copied.ok()) {
      out = out.subspan(segment.length);
    } else {
      segment = {};
      segment.code = copied.code();
    }
  }
  // Nothing of a copy that failed is sent.
  reply = out.empty() ? std::move(whole)
                      : Payload(std::as_const(whole).bytes().first(whole.size() - out.size()));
}

bool ServerCall::prepare_frame() {
  if (cancelled_ || state_ != State::answering) {
    acknowledge_cancel();
    leave();
    return false;
  }
  if (lent_blocks_.empty()) return true;
  if (Status lent = lend_parts(); !lent.ok()) {
    Result<Payload> failed(lent.with_ran(Ran::yes));
    lent_blocks_.clear();
    answer(std::move(failed));
    return false;
  }
  if (guard::policy_of(lending_guard()).binds_windows && lease_id_ == 0) {  // all were stale
    connection_->add_response(*this, request_.priority == Priority::express);
    return false;
  }
  return true;
}

// Blocks of a region whose bytes were taken since the handler added them: each such segment says
// so, the others are lent. False if there is none.
bool ServerCall::drop_stale_parts() {
  FrameVector<Block> good;
  std::size_t next = 0;
  for (SegmentDescriptor& segment : segments_) {
    if (segment.kind == rpc::KeyKind::none) continue;
    Block& block = lent_blocks_[next++];
    if (Status present = BufferAccess::present(block); present.ok()) {
      good.push_back(std::move(block));
    } else {
      segment = {};
      segment.code = present.code();
    }
  }
  const bool dropped = good.size() < lent_blocks_.size();
  lent_blocks_ = std::move(good);
  return dropped;
}

// The leases begin with the answer.
Status ServerCall::lend_parts() {
  rpc::Engine& engine = connection_->engine();
  const NodeOptions& options = engine.context().options;
  const Guard guard = lending_guard();
  if (!connection_->guard_negotiated(guard)) {
    return {Code::unimplemented, "the caller cannot do the guard that this server lends with"};
  }
  bulk::Lender::Terms terms;
  terms.guard = guard;
  terms.deadline = deadline_ + options.lease_grace;
  terms.call = id_;
  terms.windows = std::move(windows_);
  FrameVector<SegmentDescriptor> lent(lent_blocks_.size());
  Result<rpc::LeaseDescriptor> lease =
      engine.lender().lend(*connection_, connection_->lent(), this, lent_blocks_, terms, lent);
  while (!lease.ok()) {
    if (lease.status().code() != Code::stale || !drop_stale_parts()) return lease.status();
    if (lent_blocks_.empty()) {  // nothing is left to lend
      parts_.clear();
      return {};
    }
    lent.resize(lent_blocks_.size());
    lease =
        engine.lender().lend(*connection_, connection_->lent(), this, lent_blocks_, terms, lent);
  }
  lease_id_ = lease->lease.id;
  lease_ = *lease;
  lease_.endpoint = guard::policy_of(guard).binds_windows ? data_index_ : std::uint8_t{0};
  lease_.segments = static_cast<std::uint16_t>(segments_.size());
  std::size_t next = 0;
  for (SegmentDescriptor& segment : segments_) {
    if (segment.kind != rpc::KeyKind::none) segment = lent[next++];
  }
  connection_->expect_bulk(connection_->role_peer_reads());
  lent_blocks_.clear();
  parts_.clear();
  return {};
}

rpc::Response ServerCall::response_frame() const {
  rpc::Response response;
  response.code = status_.code();
  response.ran = ran_ ? Ran::yes : Ran::no;
  response.native = status_.native();
  response.message = status_.what().substr(0, rpc::kMessageTextBytesMax);
  if (!segments_.empty()) response.lease = lease_;
  response.payload_bytes = static_cast<std::uint32_t>(reply_.size());
  response.payload = reply_.bytes();
  return response;
}

std::size_t ServerCall::body_bytes() const {
  rpc::Response response = response_frame();
  return rpc::encoded_bytes(response) + segments_.size() * SegmentDescriptor::kBytes;
}

void ServerCall::encode_body(std::span<std::byte> out) const {
  FrameVector<std::byte> list(segments_.size() * SegmentDescriptor::kBytes);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    rpc::encode(segments_[i], std::span(list).subspan(i * SegmentDescriptor::kBytes));
  }
  rpc::Response response = response_frame();
  response.segments = list;
  rpc::encode(response, out);
}

FrameHeader ServerCall::frame_header() const {
  FrameHeader header;
  header.type = FrameType::response;
  header.call = id_;
  header.attempt = attempt_;
  return header;
}

void ServerCall::frame_sent() {
  state_ = State::answered;
  reply_ = Payload();
  count_bytes(0);
  if (lease_id_ == 0) leave();
}

void ServerCall::lease_over(std::uint64_t, memory::LeaseEnd reason) {
  lease_id_ = 0;
  const bool lost = reason == memory::LeaseEnd::connection &&
                    connection_->state() == rpc::Connection::State::ready;
  if (lost && !cancelled_) {
    answer_lost();
  } else if (state_ == State::answered) {
    leave();
  }
}

// The data endpoint over which the answer went was lost, and the answer perhaps with it. A caller
// that has it finds its READs lost, and does not need this.
void ServerCall::answer_lost() {
  static_cast<rpc::OutFrame&>(*this).unlink();  // parts of it were still to go
  fragments = {};
  status_ = {Code::data_lost, "the data endpoint over which the answer went out was lost"};
  reply_ = Payload();
  parts_.clear();
  segments_.clear();
  lease_ = {};
  state_ = State::answering;
  connection_->add_response(*this, request_.priority == Priority::express);
}

// --- the caller's end ------------------------------------------------------------------------

void ServerCall::on_deadline(void* context) {
  const Ref<ServerCall> self(static_cast<ServerCall*>(context));
  if (self->state_ == State::queued || self->state_ == State::running) {
    self->cancel_reason_ = Code::deadline;
    self->cancel();
  }
}

void ServerCall::on_cancel(Code reason) {
  const Ref<ServerCall> self(this);
  ack_due_ = true;
  if (!cancelled_) cancel_reason_ = reason;
  if (lease_id_ != 0) {  // the owner's end: the bytes are taken back now
    connection_->engine().lender().end(std::exchange(lease_id_, 0), memory::LeaseEnd::cancelled);
  }
  cancel();
  if (reading_ == 0) acknowledge_cancel();
  // An answer that waits for windows, or of which a part is to come, is not needed any more.
  const bool answers = state_ == State::answering && reading_ == 0;
  if (state_ == State::answered || answers) leave();
}

void ServerCall::connection_over() {
  const Ref<ServerCall> self(this);
  if (!cancelled_) cancel_reason_ = Code::connection_lost;
  lease_id_ = 0;  // the lender ended it
  windows_.reset();
  known_ = false;
  connection_->remove(*this);
  cancel();
  if (state_ != State::queued && state_ != State::running) state_ = State::over;
  release();  // the connection's
}

Status ServerCall::over_status() const {
  const Ran ran = ran_ ? Ran::yes : Ran::no;
  switch (cancel_reason_) {
    case Code::deadline:
      return {Code::deadline, "the caller's deadline passed", ran};
    case Code::connection_lost:
      return {Code::connection_lost, "the connection to the caller ended", ran};
    default:
      return {Code::cancelled, "the caller cancelled the call", ran};
  }
}

// Tells the handler, and stops the data mover unless the guard is one of those without.
void ServerCall::cancel() {
  if (std::exchange(cancelled_, true)) return;
  deadline_timer_.cancel();
  const bool heeds =
      !request_.lease || guard::policy_of(request_.lease->guard).reader_heeds_cancel || !known_;
  const Status why = over_status();
  while (heeds && !pulls_.empty()) pulls_.front()->call_over(why);
  if (heeds) unconfirmed_.clear();
  while (!cancel_waits_.empty()) {  // what is told of one may drop others
    CancelWait* const wait = cancel_waits_.back();
    cancel_waits_.pop_back();
    wait->over(why);
  }
}

void ServerCall::read_over() {
  --reading_;
  if (reading_ != 0) return;
  if (held_answer_) {
    const Ref<ServerCall> self(this);
    Result<Payload> result = *std::move(held_answer_);
    held_answer_.reset();
    return answer(std::move(result));
  }
  if (cancelled_) acknowledge_cancel();
  if (state_ == State::over) leave();
}

// Nothing will be read for the call any more.
void ServerCall::acknowledge_cancel() {
  if (!ack_due_ || reading_ != 0 || !known_) return;
  ack_due_ = false;
  connection_->send_frame(FrameType::cancel_ack, id_, attempt_,
                          rpc::CancelAck{ran_ ? Ran::yes : Ran::no});
}

// The connection need not know it any more.
void ServerCall::leave() {
  state_ = State::over;
  windows_.reset();
  if (!known_) return;
  if (reading_ != 0) return;
  known_ = false;
  connection_->remove(*this);
  release();
}

// Inline segments stand behind the request proper; decode checked that there is room for them.
std::size_t ServerCall::payload_bytes() const {
  std::size_t bytes = request_.payload.size();
  for (const SegmentDescriptor& segment : upload_) {
    if (segment.inline_bytes) bytes -= segment.length;
  }
  return bytes;
}

std::span<const std::byte> ServerCall::inline_segment(std::size_t i) const {
  std::size_t at = payload_bytes();
  for (std::size_t k = 0; k < i; ++k) {
    if (upload_[k].inline_bytes) at += upload_[k].length;
  }
  return request_.payload.subspan(at, upload_[i].length);
}

Operation<Status> ServerCall::on_cancelled() { return make_operation<CancelWait>(*this); }

}  // namespace pawl::detail
