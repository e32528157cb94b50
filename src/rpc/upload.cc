// SPDX-License-Identifier: Apache-2.0
#include "rpc/upload.h"

#include <algorithm>
#include <array>
#include <utility>

#include "guard/policy.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "rpc/engine.h"
#include "rpc/server_call.h"

namespace pawl::rpc {

namespace {
constexpr std::uint64_t kTransferBytesMax = std::uint64_t{1} << 40;
}  // namespace

PullBase::PullBase(ServerCall& call) : call_(&call) {}

PullBase::~PullBase() { let_go(); }

// Which bytes of the peer (or of the request itself) the range of the joined segments is.
Status PullBase::find_bytes(std::size_t first, std::size_t count, ByteRange range) {
  const std::span<const SegmentDescriptor> segments = call_->upload();
  if (count > segments.size() || first > segments.size() - count) {
    return {Code::invalid_argument, "the upload has no such segment"};
  }
  std::uint64_t joined = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    if (segments[i].length > kTransferBytesMax - joined) {
      return {Code::too_large, "the upload is longer than 1 TiB: pull its segments one by one"};
    }
    joined += segments[i].length;
  }
  if (range.offset > joined) return {Code::invalid_argument, "the range begins behind the upload"};
  bytes_ = std::min(range.bytes, joined - range.offset);
  std::uint64_t skip = range.offset;
  std::uint64_t left = bytes_;
  const auto is_lent = [](const SegmentDescriptor& each) {
    return each.kind != bulk::KeyKind::none;
  };
  std::size_t lent = std::count_if(segments.begin(), segments.begin() + first, is_lent);
  for (std::size_t i = first; i < first + count && left > 0; ++i) {
    const SegmentDescriptor& segment = segments[i];
    const std::size_t of_lease = lent;
    if (is_lent(segment)) ++lent;
    if (skip >= segment.length) {
      skip -= segment.length;
      continue;
    }
    const std::uint64_t part = std::min(left, segment.length - skip);
    if (segment.inline_bytes) {
      inline_.push_back(call_->inline_segment(i).subspan(skip, part));
    } else {
      remote_.push_back({segment.key, segment.address + skip, part, of_lease});
    }
    skip = 0;
    left -= part;
  }
  if (!inline_.empty() && !remote_.empty()) {
    return {Code::protocol_error, "an upload is partly inline and partly lent"};
  }
  return {};
}

// What the operation may outlive.
Status PullBase::check_call() const {
  if (call_->cancelled()) return call_->over_status();
  if (call_->handler_runs()) return {};
  return {Code::failed_precondition,
          "the handler has ended: a pull is started, and ends, while it runs"};
}

// What every pull of bytes begins with.
Status PullBase::check(std::size_t first, std::size_t count, ByteRange range) {
  if (Status good = check_call(); !good.ok()) return good;
  if (Status found = find_bytes(first, count, range); !found.ok()) return found;
  if (bytes_ == 0) return {Code::invalid_argument, "the upload has no bytes to pull"};
  return {};
}

void PullBase::pull_from_pool(Pool& pool, std::size_t first, std::size_t count, ByteRange range) {
  call_->pulls().push_back(*this);
  if (Status good = check(first, count, range); !good.ok()) return over(good);
  if (&pool.core() != &call_->connection().engine().context().pool.core()) {
    return over(Status(Code::failed_precondition,
                       "pull() was given another node's pool: a call's memory is that of its node, "
                       "Call::pool"));
  }
  if (bytes_ > Pool::kBufferBytesMax) {
    return over(Status(Code::too_large,
                       "the upload is larger than a pool buffer (64 MiB): pull it in parts, each "
                       "with a ByteRange, or into a region"));
  }
  const std::array<std::size_t, 1> sizes{static_cast<std::size_t>(bytes_)};
  acquiring_ =
      pawl::start(pool.core().acquire_landing(sizes, call_->deadline()),
                  Callback<Result<detail::FrameVector<Buffer>>>{&PullBase::on_buffers, this});
}

void PullBase::on_buffers(void* context, Result<detail::FrameVector<Buffer>> buffers) {
  auto* self = static_cast<PullBase*>(context);
  if (!buffers.ok()) return self->over(buffers.status());
  Result<memory::Landing> landing =
      memory::Landing::into_buffer(std::move((*buffers)[0]), self->bytes_);
  if (!landing.ok()) return self->over(landing.status());
  self->land(*std::move(landing));
}

void PullBase::pull_into_region(const Region& region, std::size_t offset, ByteRange range) {
  call_->pulls().push_back(*this);
  if (Status good = check(0, call_->upload().size(), range); !good.ok()) return over(good);
  if (!RegionAccess::of_pool(region, call_->connection().engine().context().pool.core())) {
    return over(Status(Code::failed_precondition,
                       "pull_into() was given a region of another node: make it with Call::pool"));
  }
  Result<memory::Landing> landing = memory::Landing::into_region(region, offset, bytes_);
  if (!landing.ok()) return over(landing.status());
  land(*std::move(landing));
}

void PullBase::land(memory::Landing landing) {
  if (remote_.empty()) {
    copy_inline(landing);
    memory::Landings one;
    one.push_back(std::move(landing));
    return over(std::move(one));
  }
  start_reads(std::move(landing));
}

void PullBase::copy_inline(memory::Landing& landing) {
  std::size_t at = 0;
  for (const std::span<const std::byte> part : inline_) {
    landing.copy_in(at, part);
    at += part.size();
  }
}

bulk::PullSpec PullBase::spec() const {
  bulk::PullSpec spec;
  spec.host = &call_->connection();
  spec.lease = call_->request().lease->lease;
  spec.guard = call_->request().lease->guard;
  spec.deadline =
      guard::policy_of(spec.guard).reader_heeds_cancel ? call_->deadline() : TimePoint::never();
  spec.priority = call_->request().priority;
  spec.tenant = call_->request().tenant;
  spec.endpoint = call_->upload_endpoint();
  spec.call = call_->id();
  spec.attempt = call_->attempt();
  return spec;
}

void PullBase::start_reads(memory::Landing landing) {
  bulk::PullSpec pull = spec();
  pull.remote = remote_;
  pull.landing.push_back(std::move(landing));
  pull.hold_check = hold_check_;
  Result<bulk::TransferId> started = call_->connection().engine().puller().start(pull, *this);
  if (!started.ok()) return over(started.status());
  transfer_ = *started;
  call_->reading();
}

void PullBase::check_unconfirmed() {
  call_->pulls().push_back(*this);
  if (Status good = check_call(); !good.ok()) return over(good);
  memory::Landings landing = std::exchange(call_->unconfirmed(), {});
  remote_ = std::exchange(call_->unconfirmed_pieces(), {});
  // What travelled inside the request was never lent.
  if (landing.empty() || !call_->request().lease || call_->request().lease->lease.generation == 0) {
    return over(std::move(landing));
  }
  bulk::PullSpec check = spec();
  check.landing = std::move(landing);
  // It may be over before `confirm` returns.
  const Ref<ServerCall> call = call_;
  call->reading();
  Result<bulk::TransferId> started = call->connection().engine().puller().confirm(check, *this);
  if (!started.ok()) {
    call->read_over();
    return over(started.status());
  }
  if (!over_) transfer_ = *started;
}

void PullBase::pull_done(bulk::TransferId, bulk::PullResult result) {
  transfer_.reset();
  const Ref<ServerCall> call = call_;
  call->read_over();
  Status status = std::move(result.status);
  // A pull is one thing: one of its segments that was withdrawn makes all of it stale.
  if (status.ok() && !std::all_of(remote_.begin(), remote_.end(), [&](const auto& piece) {
        return result.segment_good(piece.segment);
      })) {
    status = Status(Code::stale, "the caller took a part of the upload back while it was read");
  }
  if (!status.ok()) return over(std::move(status));
  over(std::move(result.landing));
}

void PullBase::call_over(const Status& why) {
  let_go();
  over(why);
}

void PullBase::let_go() noexcept {
  unlink();
  acquiring_.drop();
  if (transfer_) {
    const bulk::TransferId transfer = *std::exchange(transfer_, std::nullopt);
    call_->retain();  // until the last READ completed
    call_->connection().engine().puller().abandon(transfer, {&PullBase::on_drained, call_.get()});
  }
}

void PullBase::on_drained(void* context, memory::Landings) {
  const Ref<ServerCall> call = Ref<ServerCall>::adopt(static_cast<ServerCall*>(context));
  call->read_over();
}

void PullBase::over(Result<memory::Landings> landing) {
  if (std::exchange(over_, true)) return;
  unlink();
  acquiring_.drop();
  pull_over(std::move(landing));
}

}  // namespace pawl::rpc
