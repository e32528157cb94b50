// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/list.h"
#include "base/slot_map.h"
#include "bulk/descriptor.h"
#include "fabric/fabric.h"
#include "memory/lease.h"
#include "pawl/buffer.h"
#include "pawl/guard.h"
#include "pawl/poller.h"
#include "pawl/result.h"
#include "pawl/stats.h"
#include "pawl/timer.h"

namespace pawl::bulk {

using memory::LeaseEnd;
using memory::LeaseHandle;

/// The connection over which something is lent, as the lender sees it. Poller thread.
class LendHost {
 public:
  [[nodiscard]] virtual fabric::PeerGroup lend_group() const = 0;
  /// For guard `disconnect`: from the return on, nothing more is read over this connection. Its
  /// other leases end, and the rest of the teardown follows in a later turn.
  virtual void break_connection(const char* why) = 0;

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
class Lender {
 public:
  Lender(Poller& poller, fabric::Fabric& fabric, std::size_t device, detail::PoolCore& pool,
         NodeStats& stats, std::size_t leases_max, std::uint32_t first_generation);
  ~Lender();

  struct Terms {
    Guard guard = Guard::verify;
    TimePoint deadline = TimePoint::never();
    std::uint64_t call = 0;
    /// After an end that was not a release, the memory is held until `acknowledge` of the call.
    bool hold_until_ack = false;
  };
  /// Lends `segments` to the peer of `host`, writing one descriptor for each into `out` (of the
  /// same length). The lease is LENT when this returns.
  Result<LeaseDescriptor> lend(LendHost& host, LentList& list, LendOwner* owner,
                               std::span<const Block> segments, const Terms& terms,
                               std::span<SegmentDescriptor> out);

  struct Check {
    bool valid = false;
    std::vector<std::byte> good_bitmap;  ///< segments that are still good; empty = all
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

  /// Everything that this peer was lent: the connection is over.
  void end_all(LentList& list, LeaseEnd reason);

  [[nodiscard]] std::size_t live() const { return entries_.size(); }

 private:
  friend class LentList;
  struct Entry;

  Entry* find(const LendHost& host, const LeaseName& name);
  void over(Entry& entry, LeaseEnd reason, bool tell_owner);
  static void on_deadline(void* entry);

  Poller& poller_;
  fabric::Fabric& fabric_;
  const std::size_t device_;
  detail::PoolCore& pool_;
  NodeStats& stats_;
  SlotMap<Entry> entries_;
};

struct Lender::Entry : ListNode<> {
  Entry(Lender& owner_lender, LendHost& lend_host, LentList& lent_list, LendOwner* lend_owner,
        const Terms& lend_terms, LeaseHandle handle)
      : lender(owner_lender),
        host(lend_host),
        list(lent_list),
        owner(lend_owner),
        terms(lend_terms),
        lease(std::move(handle)) {}

  Lender& lender;
  LendHost& host;
  LentList& list;
  LendOwner* owner;
  const Terms terms;
  LeaseHandle lease;
  SlotId id;
  Timer deadline;
};

class LentList {
 public:
  /// Nothing is LENT.
  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  friend class Lender;
  struct Held {
    std::uint64_t call = 0;
    LeaseHandle lease;  // ended, not settled
  };
  List<Lender::Entry> entries_;
  std::vector<Held> held_;
};

}  // namespace pawl::bulk
