// SPDX-License-Identifier: Apache-2.0
// The bulk part of an answer: where it lands, the pull, and where the buffers are afterwards.
#include "rpc/client_download.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "memory/pool_core.h"
#include "rpc/connection.h"
#include "rpc/engine.h"
#include "rpc/lane.h"

namespace pawl::rpc {

namespace {

/// Gives the user's buffers back once no READ can write into them any more.
class BuffersBack final : public OperationState<std::vector<Buffer>> {
 public:
  explicit BuffersBack(std::vector<Buffer> in_hand) : buffers_(std::move(in_hand)) {}
  /// The last ones.
  void arrived(std::vector<Buffer> buffers) {
    for (Buffer& buffer : buffers) buffers_.push_back(std::move(buffer));
    second();
  }
  static void drained(void* context, memory::Landings landing) {
    const Ref<BuffersBack> self = Ref<BuffersBack>::adopt(static_cast<BuffersBack*>(context));
    std::vector<Buffer> buffers;
    buffers.reserve(landing.size());
    for (memory::Landing& each : landing) {
      if (Buffer back = std::move(each).discard()) buffers.push_back(std::move(back));
    }
    self->arrived(std::move(buffers));
  }

 private:
  void on_begin() override { second(); }
  // Begun and arrived, on whatever threads: whichever is second completes.
  void second() {
    if (one_.exchange(true, std::memory_order_acq_rel)) complete(std::move(buffers_));
  }
  std::atomic<bool> one_{false};
  std::vector<Buffer> buffers_;
};

}  // namespace

// Reads the descriptor, and finds landing memory for every segment that needs some.
void ClientCall::place_parts(const Response& response) {
  answer_lease_ = *response.lease;
  if (std::holds_alternative<Into::Nowhere>(into_.target())) {
    give_back_unread();
    return end(Status(Code::invalid_argument, "the answer carries bulk and the call has no into()",
                      Ran::yes));
  }
  landings_ = std::make_unique<Landings>();
  Landings& all = *landings_;
  all.segments.resize(answer_lease_.segments);
  all.parts.reserve(answer_lease_.segments);
  std::size_t inline_total = 0;
  detail::FrameVector<std::size_t> sizes;
  for (std::size_t i = 0; i < all.segments.size(); ++i) {
    Landings::Segment& segment = all.segments[i];
    const char* why = nullptr;
    PAWL_CHECK(decode_segment(response.segments, i, segment.descriptor, why), "checked by decode");
    const SegmentDescriptor& descriptor = segment.descriptor;
    if (descriptor.inline_bytes) {
      segment.inline_at = inline_total;
      inline_total += descriptor.length;
    }
    const ByteRange& range = into_.range();
    if (descriptor.code != Code::ok || range.offset >= descriptor.length) continue;
    segment.offset = range.offset;
    segment.bytes = std::min<std::uint64_t>(range.bytes, descriptor.length - range.offset);
    if (segment.bytes > 0) sizes.push_back(segment.bytes);
  }
  const std::size_t reply_bytes = response.payload.size() - inline_total;
  reply_ = Payload(response.payload.first(reply_bytes));
  all.inline_bytes = Payload(response.payload.subspan(reply_bytes));
  state_ = State::landing;
  if (sizes.empty()) return land();
  if (auto* pool = std::get_if<Into::FromPool>(&into_.target())) {
    return acquire_from_pool(*pool->pool, std::move(sizes));
  }
  if (Status placed = place_own(); !placed.ok()) {
    give_back_unread();
    return end(placed.with_ran(Ran::yes));
  }
  land();
}

void ClientCall::acquire_from_pool(Pool& pool, detail::FrameVector<std::size_t> sizes) {
  if (*std::max_element(sizes.begin(), sizes.end()) > Pool::kBufferBytesMax) {
    give_back_unread();
    return end(Status(Code::too_large,
                      "a segment of the answer is larger than a pool buffer (64 MiB): pull a range "
                      "of it, or into a region",
                      Ran::yes));
  }
  acquiring_ =
      pawl::start(pool.core().acquire_landing(sizes, deadline_),
                  Callback<Result<detail::FrameVector<Buffer>>>{&ClientCall::on_landing, this});
}

void ClientCall::on_landing(void* context, Result<detail::FrameVector<Buffer>> buffers) {
  auto* self = static_cast<ClientCall*>(context);
  const Kept kept(*self);
  if (!buffers.ok()) {
    self->give_back_unread();
    return self->end(buffers.status().with_ran(Ran::yes));
  }
  std::size_t next = 0;
  for (Landings::Segment& segment : self->landings_->segments) {
    if (segment.bytes == 0) continue;
    Result<memory::Landing> landing =
        memory::Landing::into_buffer(std::move((*buffers)[next++]), segment.bytes);
    PAWL_CHECK(landing.ok(), "a buffer of the size that was asked for");
    segment.landing = *std::move(landing);
  }
  self->land();
}

// The caller's own buffers or region ranges, one for each segment of the answer in order.
Status ClientCall::place_own() {
  // Before the buffers are taken: they come back.
  if (Status full = lane_->engine().context().pool.core().admit_transfer(); !full.ok()) return full;
  Landings& all = *landings_;
  auto* buffers = std::get_if<Into::Buffers>(&into_.target());
  auto* region = std::get_if<Into::InRegion>(&into_.target());
  const std::size_t places = buffers != nullptr ? buffers->size() : region->ranges.size();
  if (places < all.segments.size()) {
    return {Code::invalid_argument, "the answer has more segments than into() has places for"};
  }
  for (std::size_t i = 0; i < all.segments.size(); ++i) {
    Landings::Segment& segment = all.segments[i];
    if (segment.bytes == 0) continue;
    const std::size_t room =
        buffers != nullptr ? (*buffers)[i].capacity() : region->ranges[i].bytes;
    if (segment.bytes > room) {
      return {Code::too_large, "a segment of the answer is longer than its place in into()"};
    }
    Result<memory::Landing> landing =
        buffers != nullptr
            ? memory::Landing::into_buffer(std::move((*buffers)[i]), segment.bytes)
            : memory::Landing::into_region(region->region, region->ranges[i].offset, segment.bytes);
    if (!landing.ok()) return landing.status();
    segment.landing = *std::move(landing);
  }
  return {};
}

// Every place is there: inline bytes are copied, the others are pulled.
void ClientCall::land() {
  bulk::PullSpec pull;
  for (Landings::Segment& segment : landings_->segments) {
    if (segment.bytes == 0) continue;
    if (segment.descriptor.inline_bytes) {
      segment.landing.copy_in(0, std::as_const(landings_->inline_bytes)
                                     .bytes()
                                     .subspan(segment.inline_at + segment.offset, segment.bytes));
      continue;
    }
    pull.remote.push_back(
        {segment.descriptor.key, segment.descriptor.address + segment.offset, segment.bytes});
    pull.landing.push_back(std::move(segment.landing));
  }
  if (pull.remote.empty()) {
    give_back_unread();
    return accept_parts({});
  }
  guard_ = answer_lease_.guard;
  bulk_ = true;
  pull.host = connection_.get();
  pull.lease = answer_lease_.lease;
  pull.guard = answer_lease_.guard;
  pull.endpoint = answer_endpoint_;
  pull.release = true;
  pull.deadline = deadline_;
  pull.priority = options_.priority;
  pull.tenant = options_.tenant;
  pull.call = id_;
  pull.attempt = attempt_;
  state_ = State::pulling;
  Result<bulk::TransferId> started = lane_->engine().puller().start(pull, *this);
  if (started.ok()) {
    transfer_ = *started;
    return;
  }
  keep_landings(std::move(pull.landing));
  give_back_unread();
  end(started.status().with_ran(Ran::yes));
}

// After a pull that never began, for `stop_pull` to give back.
void ClientCall::keep_landings(memory::Landings landing) {
  std::size_t next = 0;
  for (Landings::Segment& segment : landings_->segments) {
    if (segment.bytes == 0 || segment.descriptor.inline_bytes) continue;
    if (next < landing.size()) segment.landing = std::move(landing[next++]);
  }
}

void ClientCall::give_back_unread() {
  if (answer_lease_.lease.generation != 0 && connection_) {
    connection_->send_release(answer_lease_.lease, id_, attempt_);
  }
}

void ClientCall::pull_done(bulk::TransferId, bulk::PullResult result) {
  const Kept kept(*this);
  transfer_.reset();
  read_ = result.read;
  confirm_ = result.confirm;
  if (!result.status.ok()) {
    Status why = result.status.with_ran(Ran::yes);
    keep_landings(std::move(result.landing));
    if (!result.released) tell_cancelled(why.code());
    return end(std::move(why));
  }
  accept_parts(std::move(result));
}

// The check was valid: only here landed bytes become readable.
void ClientCall::accept_parts(bulk::PullResult result) {
  std::size_t next = 0;  // of the landings that were pulled
  std::size_t lent = 0;  // index in the lease
  Parts& parts = landings_->parts;
  for (Landings::Segment& segment : landings_->segments) {
    const bool pulled = segment.bytes > 0 && !segment.descriptor.inline_bytes;
    const bool of_lease = segment.descriptor.kind != KeyKind::none;
    const std::size_t index = of_lease ? lent++ : 0;
    if (segment.descriptor.code != Code::ok) {
      parts.emplace_back(Status(segment.descriptor.code,
                                "the peer's handler gave this code for this segment", Ran::yes));
      continue;
    }
    if (segment.bytes == 0) {
      parts.emplace_back(Block());
      continue;
    }
    memory::Landing landing =
        pulled ? std::move(result.landing[next++]) : std::move(segment.landing);
    if (!of_lease || result.segment_good(index)) {
      parts.emplace_back(std::move(landing).accept(segment.bytes));
    } else {
      (void)std::move(landing).discard();
      parts.emplace_back(
          Status(Code::stale, "the owner took this segment back while it was read", Ran::yes));
    }
  }
  finish_ok();
}

// Whatever ends a call with a download in the middle: its landing memory goes back when the last
// READ into it completed, and not before.
void ClientCall::stop_pull(CallResult& result) {
  auto* own = std::get_if<Into::Buffers>(&into_.target());
  const bool in_region = std::holds_alternative<Into::InRegion>(into_.target());
  const bool give_back = (own != nullptr || in_region) && !result.status.ok();
  if (transfer_ && !give_back) {
    lane_->engine().puller().abandon(*std::exchange(transfer_, std::nullopt), {});
  }
  if (!give_back) return;
  // Those that no READ was posted for, then those whose READs are under way.
  std::vector<Buffer> buffers;
  if (own != nullptr) {
    for (Buffer& buffer : *own) {
      if (buffer) buffers.push_back(std::move(buffer));
    }
  }
  if (landings_) {
    for (Landings::Segment& segment : landings_->segments) {
      if (Buffer back = std::move(segment.landing).discard()) buffers.push_back(std::move(back));
    }
  }
  for (Buffer& buffer : buffers) (void)buffer.resize(0);
  auto* state = new BuffersBack(std::move(buffers));
  if (transfer_) {
    state->retain();  // the puller's
    CallMemory& memory = result.memory;
    memory.quarantine = lane_->engine().puller().abandon(*std::exchange(transfer_, std::nullopt),
                                                         {&BuffersBack::drained, state});
    if (memory.quarantine == QuarantineReason::read_in_flight) {
      memory.whereabouts = Whereabouts::returning;
    } else if (memory.quarantine != QuarantineReason::none) {
      memory.whereabouts = Whereabouts::quarantined;
    }
  } else {
    state->arrived({});
  }
  result.memory.buffers_back = Operation<std::vector<Buffer>>(state);
}

}  // namespace pawl::rpc
