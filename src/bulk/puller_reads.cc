// SPDX-License-Identifier: Apache-2.0
// The READs of transfers: grants of flow control become work requests, completions come back, and
// what a device does not complete in time is noticed.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "bulk/puller.h"

namespace pawl::bulk {

namespace {
constexpr std::string_view kNothingPasses =
    "small messages pass and no READ does; the path may drop large packets (compare the MTU of its "
    "links), or the peer is too busy to serve READs";
}  // namespace

bool Puller::pump() {
  bool any = false;
  while (!records_.full()) {
    const std::size_t room = std::min(grants_.size(), records_.capacity() - records_.size());
    const std::size_t count = flow_.take(std::span(grants_).first(room), poller_.now());
    for (const flow::Grant& grant : std::span(grants_).first(count)) any = accept(grant) || any;
    if (count < room) break;
  }
  while (DataEndpoint* endpoint = granted_.pop_front()) post_waiting(*endpoint);
  return any;
}

// A grant queues for its transfer's endpoint. False: it goes back, there is nothing to read.
bool Puller::accept(const flow::Grant& grant) {
  Transfer* transfer = transfers_.find(SlotId::unpack(grant.transfer.value));
  if (transfer == nullptr || transfer->state != State::reading) {
    flow_.on_complete(grant, false, Duration{0}, poller_.now());
    return false;
  }
  const SlotId id = *records_.emplace();
  GrantRecord& record = *records_.find(id);
  record.id = id;
  record.grant = grant;
  record.next = grant.offset;
  record.granted = poller_.now();
  ++transfer->records;
  DataEndpoint* const endpoint = endpoint_of(*transfer);
  if (endpoint == nullptr) {
    record.stopped = record.failed = true;
    record_over(record);
    return true;
  }
  record.endpoint = endpoint;
  endpoint->waiting.push_back(record);
  if (!static_cast<ListNode<GrantedTag>*>(endpoint)->linked()) granted_.push_back(*endpoint);
  return true;
}

void Puller::post_waiting(DataEndpoint& endpoint) {
  while (endpoint.usable && endpoint.reads < endpoint.reads_max) {
    stop_late(endpoint);
    if (endpoint.waiting.empty()) return;
    const bool all = post_chain(endpoint);
    arm_timeout(endpoint);
    if (!all) return;
  }
}

// The last look before bytes are asked for: READs of a transfer whose time is up are not posted.
void Puller::stop_late(DataEndpoint& endpoint) {
  GrantRecord* record = endpoint.waiting.front();
  while (record != nullptr) {
    Transfer& transfer = transfer_of(*record);
    if (transfer.spec.deadline > poller_.now()) {
      record = endpoint.waiting.next(*record);
      continue;
    }
    if (transfer.failure.ok()) {
      transfer.failure = {Code::deadline, "the deadline passed before all READs were posted"};
    }
    stop_record(*record);
    record = endpoint.waiting.front();  // the end of one may stop others
  }
}

// Posts a chain of READs of the grants that wait, as long as the endpoint's depth allows. False:
// not all of it could be posted.
bool Puller::post_chain(DataEndpoint& endpoint) {
  constexpr std::size_t kChain = 16;
  constexpr std::size_t kScatter = 4;
  struct Read {
    GrantRecord* record;
    std::uint64_t end;
  };
  std::array<fabric::WorkRequest, kChain> chain;
  std::array<std::array<fabric::LocalSegment, kScatter>, kChain> segments;
  std::array<Read, kChain> reads;
  const std::size_t scatter =
      std::min<std::size_t>(kScatter, fabric_.capabilities().read_segments_max);
  const std::size_t room = std::min<std::size_t>(kChain, endpoint.reads_max - endpoint.reads);
  std::size_t count = 0;
  for (GrantRecord* record = endpoint.waiting.front(); record != nullptr;
       record = endpoint.waiting.next(*record)) {
    const Transfer& transfer = transfer_of(*record);
    const std::uint64_t end = record->grant.offset + record->grant.bytes;
    for (std::uint64_t from = record->next; count < room && from < end; ++count) {
      std::uint64_t bytes = 0;
      build_read(transfer, *record, chain[count], std::span(segments[count]).first(scatter), from,
                 bytes);
      from += bytes;
      reads[count] = {record, from};
    }
    if (count == room) break;
  }
  Status why;
  const std::size_t posted = fabric_.post(endpoint.id, std::span(chain).first(count), why);
  endpoint.reads += static_cast<std::uint32_t>(posted);
  stats_.reads_posted += posted;
  for (const Read& read : std::span(reads).first(posted)) {
    GrantRecord& record = *read.record;
    record.next = read.end;
    record.posted = poller_.now();
    ++record.reads;
    if (record.next < record.grant.offset + record.grant.bytes) continue;
    record.stopped = true;
    record.unlink();
    endpoint.posted.push_back(record);
  }
  return posted == count;  // else the queue is full or in ERR: completions or `failed` come
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
  if (success) endpoint.delivered = poller_.now();
  ++(success ? stats_.reads_completed : stats_.reads_failed);
  if (!success && !record->failed) {
    record->failed = true;
    Transfer& transfer = transfer_of(*record);
    if (completion.status == fabric::CompletionStatus::retry_exceeded) {
      reads_hang(endpoint, *record, " were not answered by its device");
    }
    if (transfer.failure.ok()) {
      // A READ that was refused is not tried again: it would take the next endpoint down too, and
      // fail every other transfer with it.
      transfer.failure =
          completion.status == fabric::CompletionStatus::remote_access
              ? Status::with_detail(Code::stale, "the device of " + endpoint.host.peer_address() +
                                                     " refused a READ: the bytes are not lent any "
                                                     "more, or their key never opened them")
              : Status(Code::data_lost, "the data endpoint was lost while READs were under way");
    }
  }
  // Its `failed` may come later than this: who tries again must not be given it once more. This
  // READ still counts, so the record stays.
  if (!success && endpoint.usable) {
    endpoint.host.endpoint_lost(endpoint, {Code::data_lost, "a READ over it failed"});
  }
  --endpoint.reads;
  --record->reads;
  if (record->stopped && record->reads == 0) {
    record->unlink();
    record_over(*record);
  }
  if (endpoint.usable) post_waiting(endpoint);
}

// --- time limits ------------------------------------------------------------------------------

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
  constexpr const char* kHow = " were not complete within read_timeout";
  for (GrantRecord& record : endpoint.posted) puller.reads_hang(endpoint, record, kHow);
  for (GrantRecord& record : endpoint.waiting) puller.reads_hang(endpoint, record, kHow);
  endpoint.host.endpoint_lost(endpoint,
                              {Code::data_lost, "a READ did not complete within read_timeout"});
}

// The endpoint is given up because READs over it do not end. A path that drops large packets lets
// one be opened and then delivers nothing, each time.
void Puller::reads_hang(DataEndpoint& endpoint, GrantRecord& record, const char* how) {
  Transfer& transfer = transfer_of(record);
  if (record.reads == 0 || !transfer.failure.ok()) return;
  if (endpoint.delivered < record.posted) ++transfer.silent;
  std::string text = "READs from " + endpoint.host.peer_address() + how;
  if (transfer.silent == kTriesMax) {
    text += ", over one data endpoint after the other: ";
    text += kNothingPasses;
  }
  transfer.failure = Status::with_detail(Code::data_lost, std::move(text));
}

std::string Puller::progress(TransferId id) const {
  const Transfer* transfer = transfers_.find(SlotId::unpack(id.value));
  PAWL_CHECK(transfer != nullptr, "a transfer is asked for after its end");
  std::string text = std::to_string(transfer->bytes_read) + " of " +
                     std::to_string(transfer->bytes) + " bytes were read";
  if (transfer->state == State::opening) {
    const Status trouble = transfer->spec.host->reading_trouble();
    text += ", the data endpoint is not open";
    if (!trouble.ok()) text += ": " + std::string(trouble.what());
  } else if (transfer->state == State::confirming) {
    text += " and their check is not answered";
  } else if (transfer->silent > 0 && transfer->tries == kTriesMax && transfer->bytes_read == 0) {
    text += ", over one data endpoint after the other: ";
    text += kNothingPasses;
  }
  return text;
}

// It is torn down, and its device has neither completed nor flushed its READs: they may still land.
void Puller::on_undrained(void* context) {
  DataEndpoint& endpoint = *static_cast<DataEndpoint*>(context);
  if (endpoint.reads == 0) return;
  Puller& puller = endpoint.puller;
  ++puller.stats_.quarantine_alarms;
  std::uint64_t bytes = 0;
  for (const GrantRecord& record : endpoint.posted) bytes += record.grant.bytes;
  puller.log_.error("memory for " + std::to_string(bytes) + " bytes that were being pulled from " +
                    endpoint.host.peer_address() +
                    " stays in quarantine: the device has not completed " +
                    std::to_string(endpoint.reads) +
                    " READs of an endpoint that is being closed within quarantine_timeout");
}

}  // namespace pawl::bulk
