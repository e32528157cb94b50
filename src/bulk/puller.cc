// SPDX-License-Identifier: Apache-2.0
#include "bulk/puller.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"

namespace pawl::bulk {

namespace {

std::uint64_t total(const std::vector<RemotePiece>& pieces) {
  std::uint64_t bytes = 0;
  for (const RemotePiece& piece : pieces) bytes += piece.length;
  return bytes;
}

}  // namespace

Puller::Puller(Poller& poller, fabric::Fabric& fabric, std::size_t device, flow::Controller& flow,
               NodeStats& stats, const Options& options)
    : poller_(poller),
      fabric_(fabric),
      device_(device),
      flow_(flow),
      stats_(stats),
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
  if (transfer.spec.host->reading_endpoint() == nullptr) return {};
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

// By id: what is told of one transfer may end others.
std::vector<SlotId> Puller::transfers_of(PullHost& host) {
  std::vector<SlotId> ids;
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

bool Puller::pump() {
  std::array<flow::Grant, 32> grants;
  bool any = false;
  while (!records_.full()) {
    const std::size_t room = std::min(grants.size(), records_.capacity() - records_.size());
    const std::size_t count = flow_.take(std::span(grants).first(room), poller_.now());
    for (const flow::Grant& grant : std::span(grants).first(count)) {
      Transfer* transfer = transfers_.find(SlotId::unpack(grant.transfer.value));
      if (transfer == nullptr || transfer->state != State::reading) {
        flow_.on_complete(grant, false, Duration{0}, poller_.now());
        continue;
      }
      const SlotId id = *records_.emplace();
      GrantRecord& record = *records_.find(id);
      record.id = id;
      record.grant = grant;
      record.next = grant.offset;
      record.granted = poller_.now();
      ++transfer->records;
      post_record(record);
      any = true;
    }
    if (count < room) break;
  }
  return any;
}

// The last look before bytes are asked for: the endpoint, the deadline, the call.
void Puller::post_record(GrantRecord& record) {
  Transfer& transfer = *transfers_.find(SlotId::unpack(record.grant.transfer.value));
  DataEndpoint* endpoint = transfer.spec.host->reading_endpoint();
  if (endpoint == nullptr || transfer.spec.deadline <= poller_.now()) {
    if (endpoint != nullptr && transfer.failure.ok()) {
      transfer.failure = {Code::deadline, "the deadline passed before all READs were posted"};
    }
    record.stopped = record.failed = true;
    record_over(record);
    return;
  }
  record.endpoint = endpoint;
  endpoint->waiting.push_back(record);
  post_waiting(*endpoint);
}

void Puller::post_waiting(DataEndpoint& endpoint) {
  while (GrantRecord* record = endpoint.waiting.front()) {
    if (!endpoint.usable || endpoint.reads >= endpoint.reads_max) return;
    const bool all = post_chain(*record, endpoint);
    arm_timeout(endpoint);
    if (!all) return;
    if (record->next < record->grant.offset + record->grant.bytes) continue;
    record->stopped = true;
    record->unlink();
    if (record->reads > 0) {
      endpoint.posted.push_back(*record);
    } else {
      record_over(*record);
    }
  }
}

// Posts as many READs of one grant as the endpoint's depth allows. False: nothing could be posted.
bool Puller::post_chain(GrantRecord& record, DataEndpoint& endpoint) {
  constexpr std::size_t kChain = 16;
  constexpr std::size_t kScatter = 4;
  std::array<fabric::WorkRequest, kChain> chain;
  std::array<std::array<fabric::LocalSegment, kScatter>, kChain> segments;
  std::array<std::uint64_t, kChain> ends;
  const Transfer& transfer = *transfers_.find(SlotId::unpack(record.grant.transfer.value));
  const std::size_t scatter =
      std::min<std::size_t>(kScatter, fabric_.capabilities().read_segments_max);
  const std::size_t room = std::min<std::size_t>(kChain, endpoint.reads_max - endpoint.reads);
  std::uint64_t from = record.next;
  std::size_t count = 0;
  while (count < room && from < record.grant.offset + record.grant.bytes) {
    std::uint64_t bytes = 0;
    build_read(transfer, record, chain[count], std::span(segments[count]).first(scatter), from,
               bytes);
    from += bytes;
    ends[count++] = from;
  }
  Status why;
  const std::size_t posted = fabric_.post(endpoint.id, std::span(chain).first(count), why);
  if (posted == 0) return false;  // queue full, or in ERR: its completions or `failed` come
  record.next = ends[posted - 1];
  record.posted = poller_.now();
  record.reads += static_cast<std::uint32_t>(posted);
  endpoint.reads += static_cast<std::uint32_t>(posted);
  stats_.reads_posted += posted;
  return posted == count;
}

// One READ from offset `from` of the transfer: within one remote piece, scattered over at most
// segments.size() landing pieces.
void Puller::build_read(const Transfer& transfer, GrantRecord& record, fabric::WorkRequest& request,
                        std::span<fabric::LocalSegment> segments, std::uint64_t from,
                        std::uint64_t& bytes) const {
  std::uint64_t skip = from;
  const RemotePiece* piece = transfer.spec.remote.data();
  while (skip >= piece->length) skip -= (piece++)->length;
  std::uint64_t wanted =
      std::min(piece->length - skip, record.grant.offset + record.grant.bytes - from);
  wanted = std::min<std::uint64_t>(wanted, fabric_.capabilities().read_bytes_max);
  request = fabric::WorkRequest{};
  request.id = record.id.packed();
  request.op = fabric::Opcode::read;
  request.remote = {piece->key, piece->address + skip};

  skip = from;
  const Landing* landing = transfer.spec.landing.data();
  while (skip >= landing->size()) skip -= (landing++)->size();
  std::size_t used = 0;
  bytes = 0;
  while (used < segments.size() && bytes < wanted) {
    const std::uint64_t part = std::min<std::uint64_t>(wanted - bytes, landing->size() - skip);
    segments[used++] = {landing->address() + skip, static_cast<std::uint32_t>(part),
                        landing->handle(device_)};
    bytes += part;
    skip = 0;
    ++landing;
  }
  request.local = segments.first(used);
}

void Puller::on_read(const fabric::Completion& completion) {
  GrantRecord* record = records_.find(SlotId::unpack(completion.id));
  PAWL_CHECK(record != nullptr, "a READ completed that is not outstanding");
  DataEndpoint& endpoint = *record->endpoint;
  const bool success = completion.status == fabric::CompletionStatus::success;
  --endpoint.reads;
  --record->reads;
  ++(success ? stats_.reads_completed : stats_.reads_failed);
  if (!success && !record->failed) {
    record->failed = true;
    Transfer& transfer = *transfers_.find(SlotId::unpack(record->grant.transfer.value));
    if (transfer.failure.ok()) {
      transfer.failure =
          completion.status == fabric::CompletionStatus::remote_access
              ? Status(Code::data_lost, "the peer's device refused a READ of lent bytes")
              : Status(Code::data_lost, "the data endpoint was lost while READs were under way");
    }
  }
  if (record->stopped && record->reads == 0) {
    record->unlink();
    record_over(*record);
  }
  if (endpoint.usable) post_waiting(endpoint);
}

// All READs of a grant are over, or it will post none.
void Puller::record_over(GrantRecord& record) {
  Transfer& transfer = *transfers_.find(SlotId::unpack(record.grant.transfer.value));
  const bool ok = !record.failed;
  flow_.on_complete(record.grant, ok, ok ? poller_.now() - record.granted : Duration{0},
                    poller_.now());
  if (ok) {
    transfer.bytes_read += record.grant.bytes;
    stats_.read_bytes += record.grant.bytes;
  }
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
    }
    end(transfer, {}, {});
    return;
  }
  if (transfer.spec.hold_check) {
    end(transfer, {}, {});
    return;
  }
  transfer.state = State::confirming;
  transfer.spec.host->transfers().asked_.push_back({transfer.spec.lease, transfer.id});
  transfer.spec.host->send_confirm(transfer.spec.lease, transfer.spec.release, transfer.spec.call,
                                   transfer.spec.attempt);
}

bool Puller::on_confirm_answer(PullHost& host, const LeaseName& lease, bool valid,
                               std::span<const std::byte> good) {
  std::deque<TransferList::Asked>& asked = host.transfers().asked_;
  if (asked.empty() || !(asked.front().lease == lease)) return false;
  Transfer* transfer = transfers_.find(asked.front().transfer);
  asked.pop_front();
  if (transfer == nullptr || transfer->state != State::confirming) return false;  // it is over
  if (valid) {
    end(*transfer, {}, std::vector<std::byte>(good.begin(), good.end()));
  } else {
    ++stats_.transfers_stale;
    end(*transfer, {Code::stale, "the owner took the bytes back while they were read"}, {});
  }
  return true;
}

void Puller::endpoint_failed(DataEndpoint& endpoint) {
  endpoint.usable = false;
  endpoint.timeout.cancel();
  while (GrantRecord* record = endpoint.waiting.front()) stop_record(*record);
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

bool Puller::abandon(TransferId id, Drained drained) {
  Transfer* transfer = transfers_.find(SlotId::unpack(id.value));
  PAWL_CHECK(transfer != nullptr, "a transfer is abandoned after its end");
  ++stats_.transfers_abandoned;
  transfer->listener = nullptr;
  transfer->drained = drained;
  for (Landing& landing : transfer->spec.landing) {
    landing.set_quarantine(memory::QuarantineReason::read_in_flight, poller_.now());
  }
  const SlotId slot = transfer->id;
  if (transfer->state == State::confirming) {
    end(*transfer, {Code::cancelled, "the call is over"}, {});
  } else if (transfer->state != State::ending) {
    fail(*transfer, {Code::cancelled, "the call is over"});
  }
  return transfers_.find(slot) != nullptr;
}

void Puller::end(Transfer& transfer, Status status, std::vector<std::byte> good) {
  PAWL_CHECK(transfer.records == 0, "a transfer ends after its last READ");
  const bool lost = !status.ok() && status.code() == Code::data_lost;
  if (lost && transfer.listener != nullptr && transfer.tries < kTriesMax &&
      transfer.spec.deadline > poller_.now()) {
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
  result.read = transfer.read_done.ns != 0 ? transfer.read_done - transfer.started : Duration{0};
  result.confirm = transfer.read_done.ns != 0 ? poller_.now() - transfer.read_done : Duration{0};
  for (Landing& landing : result.landing) {
    landing.set_quarantine(memory::QuarantineReason::none, poller_.now());
  }
  const TransferId id{transfer.id.packed()};
  PullListener* const listener = transfer.listener;
  const Drained drained = transfer.drained;
  PullHost& host = *transfer.spec.host;
  if (listener == nullptr && guard::policy_of(transfer.spec.guard).settles_later) {
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

// The grant whose READs have been outstanding for longest; one that is partly posted counts too.
GrantRecord* Puller::oldest_outstanding(DataEndpoint& endpoint) {
  GrantRecord* const posted = endpoint.posted.front();
  GrantRecord* const partly = endpoint.waiting.front();
  if (partly == nullptr || partly->reads == 0) return posted;
  return posted == nullptr || partly->posted < posted->posted ? partly : posted;
}

// The software timeout of READs runs from posting: a device may never complete one.
void Puller::arm_timeout(DataEndpoint& endpoint) {
  if (endpoint.timeout.armed()) return;
  if (GrantRecord* oldest = oldest_outstanding(endpoint)) {
    endpoint.timeout.arm(poller_, oldest->posted + options_.read_timeout, &Puller::on_timeout,
                         &endpoint);
  }
}

void Puller::on_timeout(void* context) {
  DataEndpoint& endpoint = *static_cast<DataEndpoint*>(context);
  Puller& puller = endpoint.puller;
  GrantRecord* oldest = oldest_outstanding(endpoint);
  if (oldest == nullptr || !endpoint.usable) return;
  if (oldest->posted + puller.options_.read_timeout > puller.poller_.now()) {
    puller.arm_timeout(endpoint);
    return;
  }
  ++puller.stats_.read_timeouts;
  endpoint.host.endpoint_stuck(endpoint);
}

}  // namespace pawl::bulk
