// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/list.h"
#include "base/slot_map.h"
#include "bulk/descriptor.h"
#include "fabric/fabric.h"
#include "guard/window_end.h"
#include "memory/lease.h"
#include "pawl/buffer.h"
#include "pawl/completer.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/guard.h"
#include "pawl/log.h"
#include "pawl/operation.h"
#include "pawl/poller.h"
#include "pawl/result.h"
#include "pawl/stats.h"
#include "pawl/timer.h"
#include "runtime/wake.h"

namespace pawl::bulk {

using memory::LeaseEnd;
using memory::LeaseHandle;

/// The connection over which something is lent, as the lender sees it. Poller thread.
class LendHost {
 public:
  [[nodiscard]] virtual fabric::PeerGroup lend_group() const = 0;
  [[nodiscard]] virtual const std::string& peer_address() const = 0;
  /// From the return on, nothing more is executed over this connection. Its other leases end, and
  /// the rest of the teardown follows in a later turn. For guard `disconnect`, and for memory that
  /// was too long in quarantine.
  virtual void break_connection(const char* why) = 0;
  /// RELEASE of a lease that is over. True if windows still held its memory.
  virtual bool release_held(const LeaseName&) { return false; }

 protected:
  ~LendHost() = default;
};

/// The call that lent. Told once when its lease ended by anything but its own `Lender::end`.
class LendOwner {
 public:
  virtual void lease_over(std::uint64_t lease_id, LeaseEnd reason) = 0;

 protected:
  ~LendOwner() = default;
};

/// What one peer was lent and did not give back. A LendHost has one; leases leave it when they end.
class LentList;

/// The owner's side of every lease of one poller: gives leases their names on the wire and answers
/// what peers ask of them (docs/guarantees.md). Every message that names a lease is idempotent, and
/// one that names an ended lease, or another peer's, changes nothing. Poller thread.
class Lender final : private memory::LeaseListener {
 public:
  struct Options {
    std::size_t leases_max = 0;
    std::uint32_t first_generation = 1;
    /// Memory that is held for an acknowledgement for this long breaks the connection; held for as
    /// long again after that, it is an alarm. Nothing is released by it.
    Duration quarantine_timeout = std::chrono::seconds(3);
  };
  Lender(Poller& poller, fabric::Fabric& fabric, std::size_t device, detail::PoolCore& pool,
         NodeStats& stats, Logger& log, const Options& options);
  ~Lender();

  struct Terms {
    Guard guard = Guard::verify;
    TimePoint deadline = TimePoint::never();
    std::uint64_t call = 0;
    /// After an end that was not a release, the memory is held, in quarantine, until `acknowledge`
    /// of the call or `endpoints_gone`. While the quarantine is full, such leases are refused.
    bool hold_until_ack = false;
    /// For guards that bind windows: at least one for each segment, reserved on the data endpoint
    /// over which the descriptor goes out. Used up by success.
    guard::WindowReservation windows;
  };
  /// Lends `segments` to the peer of `host`, writing one descriptor for each into `out` (of the
  /// same length). The lease is LENT when this returns.
  Result<LeaseDescriptor> lend(LendHost& host, LentList& list, LendOwner* owner,
                               std::span<const Block> segments, Terms& terms,
                               std::span<SegmentDescriptor> out);

  struct Check {
    bool valid = false;
    detail::FrameVector<std::byte> good_bitmap;  ///< segments that are still good; empty = all
  };
  /// Answers CONFIRM: valid only from LENT with the same generation. With `release` the lease is
  /// over afterwards, whatever the answer.
  Check confirm(LendHost& host, const LeaseName& name, bool release);

  /// RELEASE: the reader is done. False if the name means no lease of this peer.
  bool release(LendHost& host, const LeaseName& name);

  /// The owner takes the bytes back. When this returns the memory may be used again, or is held
  /// until the guard's proof. Without effect if the lease is over already.
  void end(std::uint64_t lease_id, LeaseEnd reason);

  /// The peer acknowledged the cancel of a call: nothing more is read for it.
  void acknowledge(LentList& list, std::uint64_t call);

  /// Why memory that was lent for a call is still held; none if it is not. Then `back` will
  /// complete with ok when it is not any more. For each call once.
  QuarantineReason held(LentList& list, std::uint64_t call, Operation<Status>& back);

  /// Everything that was lent through the windows of one data endpoint, which was lost.
  void end_bound(LentList& list, const guard::WindowEnd& windows);

  /// Everything that this peer was lent: the connection is over, its endpoints are being closed.
  void end_all(LentList& list, LeaseEnd reason);
  /// The last of them is closed: what was held for the peer's acknowledgement comes back.
  void endpoints_gone(LentList& list);

  [[nodiscard]] std::size_t live() const { return entries_.size(); }

 private:
  friend class LentList;
  struct Entry;

  Status expose(LendHost& host, const Block& block, SegmentDescriptor& out);
  void bind(Entry& entry, guard::WindowReservation windows, std::span<SegmentDescriptor> out);
  Entry* find(const LendHost& host, const LeaseName& name);
  void end(SlotId id, LeaseEnd reason, bool tell_owner);
  void over(Entry& entry, LeaseEnd reason, bool tell_owner);
  void let_go(Entry& entry, LeaseHandle lease, LeaseEnd reason);
  void hold(Entry& entry, LeaseHandle lease, LeaseEnd reason);
  void give_back(LentList& list, std::optional<std::uint64_t> call);
  void arm_watch(LentList& list);
  void alarm(const LentList& list);
  // LeaseListener: of leases whose memory waits for a proof that this has to begin.
  void lease_ended(memory::Lease& lease, LeaseEnd reason) override;
  void segment_withdrawn(memory::Lease&, std::size_t) override {}  // goes with the lease's end
  static void end_taken_back(void* lender);
  static void on_deadline(void* entry);
  static void on_held_long(void* list);

  Poller& poller_;
  fabric::Fabric& fabric_;
  const std::size_t device_;
  detail::PoolCore& pool_;
  NodeStats& stats_;
  Logger& log_;
  const Options options_;
  Wake taken_back_;
  SlotMap<Entry> entries_;
};

struct Lender::Entry : ListNode<> {
  Entry(Lender& owner_lender, LendHost& lend_host, LentList& lent_list, LendOwner* lend_owner,
        std::uint64_t for_call, bool hold, LeaseHandle handle)
      : lender(owner_lender),
        host(lend_host),
        list(lent_list),
        owner(lend_owner),
        call(for_call),
        hold_until_ack(hold),
        lease(std::move(handle)) {}

  Lender& lender;
  LendHost& host;
  LentList& list;
  LendOwner* owner;
  const std::uint64_t call;
  const bool hold_until_ack;
  LeaseHandle lease;  // none while it ends
  SlotId id;
  guard::WindowEnd* windows = nullptr;  // where its windows are bound
  SlotId bound;
  Timer deadline;
};

class LentList {
 public:
  /// Nothing is LENT.
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  /// Nothing is held after its end.
  [[nodiscard]] bool none_held() const { return held_.empty(); }

 private:
  friend class Lender;
  struct Held {
    std::uint64_t call = 0;
    TimePoint since;
    LeaseHandle lease;  // ended, not settled
    Completer<Status> back;
  };
  List<Lender::Entry> entries_;
  detail::FrameVector<Held> held_;  // in the order of `since`
  Lender* lender_ = nullptr;
  LendHost* host_ = nullptr;
  bool broken_ = false;   // it was too long
  bool closing_ = false;  // the endpoints are
  Timer watch_;           // over the oldest that is held
};

}  // namespace pawl::bulk
