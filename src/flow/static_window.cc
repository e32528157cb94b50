// SPDX-License-Identifier: Apache-2.0
#include "flow/static_window.h"

#include <algorithm>

#include "base/check.h"

namespace pawl::flow {

StaticWindow::StaticWindow(const StaticWindowOptions& options)
    : options_(options),
      chunk_bytes_(static_cast<std::uint32_t>(std::min<std::uint64_t>(
          {options.chunk_bytes, options.window_bytes, options.peer_window_bytes}))),
      transfers_by_id_(options.transfers_max),
      peers_by_id_(options.transfers_max) {
  PAWL_CHECK(chunk_bytes_ > 0, "windows and chunks have at least one byte");
  PAWL_CHECK(options.reads_per_peer_max > 0, "reads_per_peer_max is at least 1");
}

StaticWindow::~StaticWindow() = default;

bool StaticWindow::submit(const Transfer& transfer, TimePoint) {
  PAWL_CHECK(transfer.bytes > 0, "a transfer has bytes");
  Record* record = new_record();
  if (record == nullptr) return false;
  Peer& peer = peer_for(transfer.peer);
  ++peer.transfers;
  Lane& lane = peer.lanes[transfer.priority == Priority::express ? kExpress : kOthers];
  record->id = transfer.id;
  record->lane = &lane;
  record->bytes = transfer.bytes;
  record->granted_bytes = record->in_flight_bytes = 0;
  record->in_flight_reads = 0;
  transfers_by_id_.insert(transfer.id.value, *record);
  lane.waiting.push_back(*record);
  if (!lane.linked() && !lane.parked) turns_[lane.service].push_back(lane);
  return true;
}

void StaticWindow::cancel(TransferId transfer, TimePoint) {
  Record* record = transfers_by_id_.find(transfer.value);
  if (record == nullptr) return;
  record->bytes = record->granted_bytes;
  leave_lane(*record);
  forget_if_over(*record);
}

void StaticWindow::on_complete(const Grant& grant, bool, Duration, TimePoint) {
  Record* record = transfers_by_id_.find(grant.transfer.value);
  if (record == nullptr || record->in_flight_reads == 0 || grant.bytes > record->in_flight_bytes) {
    return;  // of a transfer that is over
  }
  Peer& peer = *record->lane->peer;
  record->in_flight_bytes -= grant.bytes;
  --record->in_flight_reads;
  peer.in_flight_bytes -= grant.bytes;
  --peer.in_flight_reads;
  in_flight_bytes_ -= grant.bytes;
  unpark(peer);
  forget_if_over(*record);
}

std::size_t StaticWindow::take(std::span<Grant> out, TimePoint) {
  std::size_t count = 0;
  for (List<Lane>& turn : turns_) {
    while (count < out.size()) {
      Lane* lane = turn.front();
      if (lane == nullptr) break;  // the next class
      const std::uint32_t bytes = chunk_of(*lane->waiting.front());
      if (!peer_allows(*lane->peer, bytes)) {
        lane->unlink();
        lane->parked = true;
        continue;
      }
      // Who is first waits for room; nobody behind it with a smaller chunk goes ahead.
      if (bytes > options_.window_bytes - in_flight_bytes_) return count;
      if (take_one(*lane, out[count])) {
        lane->unlink();
        turn.push_back(*lane);
      }
      ++count;
    }
  }
  return count;
}

/// Grants the next chunk of the lane's first transfer. False if the lane is empty afterwards.
bool StaticWindow::take_one(Lane& lane, Grant& out) {
  Record& record = *lane.waiting.front();
  const std::uint32_t bytes = chunk_of(record);
  out = Grant{record.id, lane.peer->id, record.granted_bytes, bytes};
  record.granted_bytes += bytes;
  record.in_flight_bytes += bytes;
  ++record.in_flight_reads;
  lane.peer->in_flight_bytes += bytes;
  ++lane.peer->in_flight_reads;
  in_flight_bytes_ += bytes;
  if (record.granted_bytes == record.bytes) leave_lane(record);
  return !lane.waiting.empty();
}

std::uint32_t StaticWindow::chunk_of(const Record& record) const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(chunk_bytes_, record.bytes - record.granted_bytes));
}

bool StaticWindow::peer_allows(const Peer& peer, std::uint32_t bytes) const {
  return peer.in_flight_reads < options_.reads_per_peer_max &&
         bytes <= options_.peer_window_bytes - peer.in_flight_bytes;
}

StaticWindow::Peer& StaticWindow::peer_for(PeerId id) {
  if (Peer* known = peers_by_id_.find(id.value)) return *known;
  Peer& peer = new_peer();
  peer.id = id;
  peers_by_id_.insert(id.value, peer);
  return peer;
}

/// nullptr if transfers_max are in hand.
StaticWindow::Record* StaticWindow::new_record() {
  if (Record* free = free_records_.pop_front()) return free;
  return records_.size() < options_.transfers_max ? &records_.emplace_back() : nullptr;
}

/// There are no more of them than transfers.
StaticWindow::Peer& StaticWindow::new_peer() {
  if (Peer* free = free_peers_.pop_front()) return *free;
  Peer& peer = peer_slots_.emplace_back();
  for (std::size_t i = 0; i < kClasses; ++i) {
    peer.lanes[i].peer = &peer;
    peer.lanes[i].service = Class{i};
  }
  return peer;
}

void StaticWindow::unpark(Peer& peer) {
  for (Lane& lane : peer.lanes) {
    if (!lane.parked) continue;
    lane.parked = false;
    turns_[lane.service].push_back(lane);
  }
}

/// Nothing more of this transfer is granted.
void StaticWindow::leave_lane(Record& record) {
  record.unlink();
  Lane& lane = *record.lane;
  if (!lane.waiting.empty()) return;
  lane.unlink();
  lane.parked = false;
}

void StaticWindow::forget_if_over(Record& record) {
  if (record.granted_bytes != record.bytes || record.in_flight_reads != 0) return;
  Peer& peer = *record.lane->peer;
  transfers_by_id_.erase(record.id.value);
  free_records_.push_front(record);
  if (--peer.transfers > 0) return;
  PAWL_CHECK(peer.in_flight_reads == 0 && peer.in_flight_bytes == 0,
             "a peer without transfers has nothing in flight");
  peers_by_id_.erase(peer.id.value);
  free_peers_.push_front(peer);
}

}  // namespace pawl::flow
