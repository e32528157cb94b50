// SPDX-License-Identifier: Apache-2.0
// A transfer from its start to its end. Its READs: puller_reads.cc.
#include "bulk/puller.h"

#include <utility>

#include "base/check.h"
#include "guard/policy.h"

namespace pawl::bulk {

namespace {

std::uint64_t total(std::span<const RemotePiece> pieces) {
  std::uint64_t bytes = 0;
  for (const RemotePiece& piece : pieces) bytes += piece.length;
  return bytes;
}

}  // namespace

Puller::Puller(Poller& poller, fabric::Fabric& fabric, std::size_t device, flow::Controller& flow,
               NodeStats& stats, Logger& log, const Options& options)
    : poller_(poller),
      fabric_(fabric),
      device_(device),
      flow_(flow),
      stats_(stats),
      log_(log),
      options_(options),
      transfers_(options.transfers_max, options.first_generation),
      records_(options.grants_max, options.first_generation) {}

Puller::~Puller() {
  PAWL_CHECK(transfers_.size() == 0, "a puller ends after the last completion of its READs");
}

Result<TransferId> Puller::start(PullSpec& spec, PullListener& listener) {
  if (transfers_.full()) {
    return Status(Code::resource_exhausted, "transfers_max transfers of this poller are under way");
  }
  const std::uint64_t bytes = total(spec.remote);
  std::uint64_t landing_bytes = 0;
  for (const Landing& landing : spec.landing) {
    if (!landing.handle(device_)) {
      return Status(Code::failed_precondition,
                    "the landing memory is not registered with this connection's device");
    }
    landing_bytes += landing.size();
  }
  PAWL_CHECK(bytes > 0 && bytes == landing_bytes, "a transfer lands as many bytes as it pulls");
  const SlotId id = *transfers_.emplace(std::move(spec), &listener);
  Transfer& transfer = *transfers_.find(id);
  transfer.id = id;
  transfer.bytes = bytes;
  transfer.started = poller_.now();
  transfer.spec.host->transfers().transfers_.push_back(transfer);
  ++stats_.transfers_started;
  ++stats_.transfers_live;
  if (Status submitted = submit(transfer); !submitted.ok()) {
    spec = std::move(transfer.spec);
    transfer.unlink();
    transfers_.erase(id);
    --stats_.transfers_live;
    return submitted;
  }
  return TransferId{id.packed()};
}

Result<TransferId> Puller::confirm(PullSpec& spec, PullListener& listener) {
  if (transfers_.full()) {
    return Status(Code::resource_exhausted, "transfers_max transfers of this poller are under way");
  }
  const SlotId id = *transfers_.emplace(std::move(spec), &listener);
  Transfer& transfer = *transfers_.find(id);
  transfer.id = id;
  transfer.started = poller_.now();
  transfer.spec.hold_check = false;
  transfer.spec.host->transfers().transfers_.push_back(transfer);
  ++stats_.transfers_live;
  reads_over(transfer);
  return TransferId{id.packed()};
}

// Hands a transfer to flow control once there is an endpoint to post on.
Status Puller::submit(Transfer& transfer) {
  transfer.state = State::opening;
  if (endpoint_of(transfer) == nullptr) {
    if (!transfer.spec.endpoint) return {};
    return {Code::data_lost, "the data endpoint on which the lent bytes are bound was lost"};
  }
  transfer.state = State::reading;
  transfer.bytes_read = 0;
  ++transfer.tries;
  const flow::Transfer request{.id = {transfer.id.packed()},
                               .peer = transfer.spec.host->flow_peer(),
                               .bytes = transfer.bytes,
                               .deadline = transfer.spec.deadline,
                               .priority = transfer.spec.priority,
                               .tenant = transfer.spec.tenant};
  if (!flow_.submit(request, poller_.now())) {
    return {Code::resource_exhausted, "flow control has transfers_max transfers in hand"};
  }
  return {};
}

// Where its READs are posted; nullptr: there is no such endpoint (yet).
DataEndpoint* Puller::endpoint_of(const Transfer& transfer) {
  DataEndpoint* const endpoint = transfer.spec.host->reading_endpoint();
  const bool other =
      transfer.spec.endpoint && endpoint != nullptr && endpoint->id != transfer.spec.endpoint;
  return other ? nullptr : endpoint;
}

Puller::Transfer& Puller::transfer_of(const GrantRecord& record) {
  return *transfers_.find(SlotId::unpack(record.grant.transfer.value));
}

// By id: what is told of one transfer may end others.
detail::FrameVector<SlotId> Puller::transfers_of(PullHost& host) {
  detail::FrameVector<SlotId> ids;
  for (Transfer& transfer : host.transfers().transfers_) ids.push_back(transfer.id);
  return ids;
}

void Puller::endpoint_ready(PullHost& host) {
  for (const SlotId id : transfers_of(host)) {
    Transfer* transfer = transfers_.find(id);
    if (transfer == nullptr || transfer->state != State::opening) continue;
    if (Status submitted = submit(*transfer); !submitted.ok()) fail(*transfer, submitted);
  }
}

// All READs of a grant are over, or it will post none.
void Puller::record_over(GrantRecord& record) {
  Transfer& transfer = transfer_of(record);
  const bool ok = !record.failed;
  flow_.on_complete(record.grant, ok, ok ? poller_.now() - record.granted : Duration{0},
                    poller_.now());
  if (ok) {
    transfer.bytes_read += record.grant.bytes;
    stats_.read_bytes += record.grant.bytes;
  }
  if (record.draining) --transfer.draining;
  records_.erase(record.id);
  --transfer.records;
  if (!ok && transfer.state == State::reading) {
    if (transfer.failure.ok()) {
      transfer.failure = {Code::data_lost, "the data endpoint was lost before a READ was posted"};
    }
    stop_posting(transfer);
    return;
  }
  if (transfer.state == State::ending && transfer.records == 0) {
    end(transfer, transfer.failure, {});
  } else if (transfer.state == State::reading && transfer.bytes_read == transfer.bytes) {
    reads_over(transfer);
  }
}

// Nothing more is posted; the transfer ends, or is tried again, after its last completion.
void Puller::stop_posting(Transfer& transfer) {
  transfer.state = State::ending;
  flow_.cancel({transfer.id.packed()}, poller_.now());
  const SlotId id = transfer.id;
  if (DataEndpoint* endpoint = transfer.spec.host->reading_endpoint()) {
    const auto of_transfer = [&]() -> GrantRecord* {
      for (GrantRecord& record : endpoint->waiting) {
        if (record.grant.transfer.value == id.packed()) return &record;
      }
      return nullptr;
    };
    while (GrantRecord* record = of_transfer()) stop_record(*record);
  }
  if (Transfer* still = transfers_.find(id);
      still != nullptr && still->records == 0 && still->state == State::ending) {
    end(*still, still->failure, {});
  }
}

// A record that waits to post (more) READs posts none.
void Puller::stop_record(GrantRecord& record) {
  record.unlink();
  record.stopped = record.failed = true;
  if (record.reads == 0) {
    record_over(record);
  } else {
    DataEndpoint& endpoint = *record.endpoint;
    endpoint.posted.push_back(record);
    if (endpoint.usable) arm_timeout(endpoint);
  }
}

void Puller::fail(Transfer& transfer, Status why) {
  if (transfer.failure.ok()) transfer.failure = std::move(why);
  stop_posting(transfer);
}

// Every byte is here, every completion was polled: now, not earlier, the owner is asked.
void Puller::reads_over(Transfer& transfer) {
  transfer.read_done = poller_.now();
  if (!guard::policy_of(transfer.spec.guard).reader_confirms) {
    if (transfer.spec.release && !transfer.spec.hold_check) {
      transfer.spec.host->send_release(transfer.spec.lease, transfer.spec.call,
                                       transfer.spec.attempt);
      transfer.released = true;
    }
    end(transfer, {}, {});
    return;
  }
  if (transfer.spec.hold_check) {
    end(transfer, {}, {});
    return;
  }
  transfer.state = State::confirming;
  transfer.released = transfer.spec.release;
  transfer.spec.host->transfers().asked_.push_back({transfer.spec.lease, transfer.id});
  transfer.spec.host->send_confirm(transfer.spec.lease, transfer.spec.release, transfer.spec.call,
                                   transfer.spec.attempt);
}

bool Puller::on_confirm_answer(PullHost& host, const LeaseName& lease, bool valid,
                               std::span<const std::byte> good) {
  auto& asked = host.transfers().asked_;
  if (asked.empty() || !(asked.front().lease == lease)) return false;
  Transfer* transfer = transfers_.find(asked.front().transfer);
  asked.pop_front();
  if (transfer == nullptr || transfer->state != State::confirming) return false;  // it is over
  if (valid) {
    end(*transfer, {}, detail::FrameVector<std::byte>(good.begin(), good.end()));
  } else {
    ++stats_.transfers_stale;
    end(*transfer, {Code::stale, "the owner took the bytes back while they were read"}, {});
  }
  return true;
}

void Puller::endpoint_failed(DataEndpoint& endpoint) {
  endpoint.usable = false;
  endpoint.timeout.cancel();
  static_cast<ListNode<GrantedTag>&>(endpoint).unlink();
  while (GrantRecord* record = endpoint.waiting.front()) stop_record(*record);
  for (GrantRecord& record : endpoint.posted) begin_drain(record);
  if (endpoint.reads > 0) {
    endpoint.timeout.arm(poller_, poller_.now() + options_.quarantine_timeout,
                         &Puller::on_undrained, &endpoint);
  }
}

void Puller::begin_drain(GrantRecord& record) {
  if (std::exchange(record.draining, true)) return;
  Transfer& transfer = transfer_of(record);
  ++transfer.draining;
  if (transfer.listener == nullptr) show_quarantine(transfer);
}

// Of a transfer that was abandoned: what its landing memory waits for.
void Puller::show_quarantine(Transfer& transfer) {
  const QuarantineReason why =
      transfer.draining > 0 ? QuarantineReason::endpoint_drain : QuarantineReason::read_in_flight;
  for (Landing& landing : transfer.spec.landing) landing.set_quarantine(why, poller_.now());
}

void Puller::host_closed(PullHost& host, const Status& why) {
  host.transfers().asked_.clear();
  // Those with READs outstanding stay until their completions.
  for (const SlotId id : transfers_of(host)) {
    Transfer* transfer = transfers_.find(id);
    if (transfer == nullptr) continue;
    transfer->tries = kTriesMax;
    transfer->failure = why;
    if (transfer->state == State::confirming) {
      end(*transfer, why, {});  // the answer is lost = not confirmed
    } else if (transfer->state != State::ending) {
      stop_posting(*transfer);
    }
  }
}

void Puller::device_gone() {
  std::vector<SlotId> ids;
  records_.for_each([&](SlotId id, GrantRecord&) { ids.push_back(id); });
  for (const SlotId id : ids) {
    GrantRecord& record = *records_.find(id);
    record.unlink();
    record.reads = 0;
    record.stopped = record.failed = true;
    record_over(record);
  }
}

QuarantineReason Puller::abandon(TransferId id, Drained drained) {
  Transfer* transfer = transfers_.find(SlotId::unpack(id.value));
  PAWL_CHECK(transfer != nullptr, "a transfer is abandoned after its end");
  ++stats_.transfers_abandoned;
  transfer->listener = nullptr;
  transfer->drained = drained;
  show_quarantine(*transfer);
  const SlotId slot = transfer->id;
  if (transfer->state == State::confirming) {
    end(*transfer, {Code::cancelled, "the call is over"}, {});
  } else if (transfer->state != State::ending) {
    fail(*transfer, {Code::cancelled, "the call is over"});
  }
  transfer = transfers_.find(slot);
  if (transfer == nullptr) return QuarantineReason::none;
  return transfer->draining > 0 ? QuarantineReason::endpoint_drain
                                : QuarantineReason::read_in_flight;
}

void Puller::end(Transfer& transfer, Status status, detail::FrameVector<std::byte> good) {
  PAWL_CHECK(transfer.records == 0, "a transfer ends after its last READ");
  const bool lost = !status.ok() && status.code() == Code::data_lost;
  if (lost && transfer.listener != nullptr && transfer.tries < kTriesMax &&
      transfer.spec.deadline > poller_.now() && !transfer.spec.endpoint) {
    // The landing memory is ours alone again, and the lease may still be LENT: once more, over
    // another endpoint. The check still decides.
    transfer.failure = Status();
    status = submit(transfer);
    if (status.ok()) return;
  }
  PullResult result;
  result.status = std::move(status);
  result.landing = std::move(transfer.spec.landing);
  result.good = std::move(good);
  result.released = transfer.released;
  result.read = transfer.read_done.ns != 0 ? transfer.read_done - transfer.started : Duration{0};
  result.confirm = transfer.read_done.ns != 0 ? poller_.now() - transfer.read_done : Duration{0};
  for (Landing& landing : result.landing) {
    landing.set_quarantine(QuarantineReason::none, poller_.now());
  }
  const TransferId id{transfer.id.packed()};
  PullListener* const listener = transfer.listener;
  const Drained drained = transfer.drained;
  PullHost& host = *transfer.spec.host;
  // The owner of an upload hears it by the answer, or by the acknowledgement of its cancel: other
  // pulls of the same lease may be under way.
  if (listener == nullptr && transfer.spec.release &&
      guard::policy_of(transfer.spec.guard).settles_later) {
    host.send_release(transfer.spec.lease, transfer.spec.call, transfer.spec.attempt);
  }
  transfer.unlink();
  transfers_.erase(transfer.id);
  --stats_.transfers_live;
  ++(result.status.ok() ? stats_.transfers_ok : stats_.transfers_failed);
  if (listener != nullptr) {
    listener->pull_done(id, std::move(result));
  } else if (drained.fn != nullptr) {
    drained.fn(drained.context, std::move(result.landing));
  }
}

}  // namespace pawl::bulk
