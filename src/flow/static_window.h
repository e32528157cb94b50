// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/list.h"
#include "flow/controller.h"
#include "flow/id_table.h"

namespace pawl::flow {

struct StaticWindowOptions {
  std::uint64_t window_bytes = std::uint64_t{2} << 20;  ///< granted and not complete, of the NIC
  std::uint64_t peer_window_bytes = std::uint64_t{1} << 20;
  std::uint32_t chunk_bytes = 64 * 1024;  ///< of one READ; never more than a window
  /// READs granted and not complete per peer: at most what its endpoints take at once, less one.
  std::uint32_t reads_per_peer_max = 15;
  std::uint32_t transfers_max = 4096;  ///< waiting or with READs in flight
};

/// A controller that does not adapt: bytes in flight are bounded per NIC and per peer, cut into
/// chunks. Express goes first; within express, and within the rest, peers take turns of one chunk,
/// and the transfers of a peer are served in the order in which they came. Deadlines are not its
/// business. O(1) per call and grant; allocates where it has more in hand than ever before.
class StaticWindow final : public Controller {
 public:
  explicit StaticWindow(const StaticWindowOptions& options = {});
  ~StaticWindow() override;
  StaticWindow(const StaticWindow&) = delete;
  StaticWindow& operator=(const StaticWindow&) = delete;

  bool submit(const Transfer& transfer, TimePoint now) override;
  void cancel(TransferId transfer, TimePoint now) override;
  void on_complete(const Grant& grant, bool ok, Duration latency, TimePoint now) override;
  void on_hint(PeerId, std::uint64_t, TimePoint) override {}
  void on_timer(TimePoint) override {}
  [[nodiscard]] std::uint64_t hint_for(PeerId) const override { return 0; }
  std::size_t take(std::span<Grant> out, TimePoint now) override;
  [[nodiscard]] TimePoint next_timer() const override { return TimePoint::never(); }
  [[nodiscard]] std::uint64_t bytes_in_flight() const override { return in_flight_bytes_; }

  /// Transfers and peers that are remembered: 0 when everything completed.
  [[nodiscard]] std::size_t transfers() const { return transfers_by_id_.size(); }
  [[nodiscard]] std::size_t peers() const { return peers_by_id_.size(); }

 private:
  enum Class : std::size_t { kExpress = 0, kOthers = 1, kClasses = 2 };
  struct Peer;
  struct Lane;

  /// In a lane while bytes are left to grant, in free_transfers_ while unused, else in no list.
  struct Record : ListNode<> {
    TransferId id;
    Lane* lane = nullptr;
    std::uint64_t bytes = 0;  ///< of which no more than these will be granted
    std::uint64_t granted_bytes = 0;
    std::uint64_t in_flight_bytes = 0;
    std::uint32_t in_flight_reads = 0;
  };
  /// The transfers of one peer and class. In the turn of its class, or parked because the peer's
  /// own limits allow nothing more, or in no list because it is empty.
  struct Lane : ListNode<> {
    Peer* peer = nullptr;
    Class service = kOthers;
    bool parked = false;
    List<Record> waiting;
  };
  /// Remembered while it has transfers.
  struct Peer : ListNode<> {
    PeerId id;
    std::uint64_t in_flight_bytes = 0;
    std::uint32_t in_flight_reads = 0;
    std::uint32_t transfers = 0;
    std::array<Lane, kClasses> lanes;
  };

  [[nodiscard]] std::uint32_t chunk_of(const Record& record) const;
  [[nodiscard]] bool peer_allows(const Peer& peer, std::uint32_t bytes) const;
  bool take_one(Lane& lane, Grant& out);
  Record* new_record();
  Peer& new_peer();
  Peer& peer_for(PeerId id);
  void unpark(Peer& peer);
  void leave_lane(Record& record);
  void forget_if_over(Record& record);

  const StaticWindowOptions options_;
  const std::uint32_t chunk_bytes_;
  std::uint64_t in_flight_bytes_ = 0;

  std::deque<Record> records_;
  std::deque<Peer> peer_slots_;
  List<Record> free_records_;
  List<Peer> free_peers_;
  IdTable<Record> transfers_by_id_;
  IdTable<Peer> peers_by_id_;
  std::array<List<Lane>, kClasses> turns_;
};

}  // namespace pawl::flow
