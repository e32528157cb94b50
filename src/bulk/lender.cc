// SPDX-License-Identifier: Apache-2.0
#include "bulk/lender.h"

#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "memory/buffer_access.h"
#include "memory/lease_table.h"
#include "memory/pool_core.h"

namespace pawl::bulk {

Lender::Lender(Poller& poller, fabric::Fabric& fabric, std::size_t device, detail::PoolCore& pool,
               NodeStats& stats, std::size_t leases_max, std::uint32_t first_generation)
    : poller_(poller),
      fabric_(fabric),
      device_(device),
      pool_(pool),
      stats_(stats),
      entries_(leases_max, first_generation) {}

Lender::~Lender() = default;

Result<LeaseDescriptor> Lender::lend(LendHost& host, LentList& list, LendOwner* owner,
                                     std::span<const Block> segments, const Terms& terms,
                                     std::span<SegmentDescriptor> out) {
  PAWL_CHECK(segments.size() == out.size(), "one descriptor for each segment");
  if (entries_.full()) {
    return Status(Code::resource_exhausted, "leases_max leases of this poller are in use");
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const detail::ExtentRef& extent = BufferAccess::reference(segments[i]);
    if (!BufferAccess::of_pool(segments[i], pool_)) {
      return Status(Code::failed_precondition,
                    "a lent block is of another node's pool: a node lends its own memory");
    }
    const MemoryHandle handle = extent->handle(device_);
    if (!handle) {
      return Status(Code::failed_precondition,
                    "the memory of a lent block is not registered with this connection's device");
    }
    // Of a pool's buffer the whole buffer, so that its key is made once; of a user's region only
    // what is lent.
    std::byte* const data = const_cast<std::byte*>(segments[i].bytes().data());
    std::byte* const base = extent->from_pool() ? extent->base() : data;
    const std::size_t bytes = extent->from_pool() ? extent->bytes() : segments[i].size();
    Result<fabric::RemoteAddress> key = fabric_.expose(host.lend_group(), handle, base, bytes);
    if (!key.ok()) return key.status();
    out[i].kind = KeyKind::region;
    out[i].length = segments[i].size();
    out[i].key = key->key;
    out[i].address = key->address + static_cast<std::uint64_t>(data - base);
  }
  const bool settles_later = guard::policy_of(terms.guard).settles_later || terms.hold_until_ack;
  Result<LeaseHandle> lease =
      pool_.leases().lend(segments, terms.guard, settles_later, nullptr, poller_.now());
  if (!lease.ok()) return lease.status();
  const SlotId id = *entries_.emplace(*this, host, list, owner, terms, *std::move(lease));
  Entry& entry = *entries_.find(id);
  entry.id = id;
  list.entries_.push_back(entry);
  entry.deadline.arm(poller_, terms.deadline, &Lender::on_deadline, &entry);
  ++stats_.leases_lent;

  LeaseDescriptor descriptor;
  descriptor.lease = {id.packed(), entry.lease->generation()};
  descriptor.guard = terms.guard;
  descriptor.segments = static_cast<std::uint16_t>(segments.size());
  return descriptor;
}

// A name is good only from the peer that the lease was made for.
Lender::Entry* Lender::find(const LendHost& host, const LeaseName& name) {
  Entry* entry = entries_.find(SlotId::unpack(name.id));
  if (entry == nullptr || &entry->host != &host || entry->lease->generation() != name.generation) {
    return nullptr;
  }
  return entry;
}

Lender::Check Lender::confirm(LendHost& host, const LeaseName& name, bool release) {
  Check check;
  Entry* entry = find(host, name);
  if (entry != nullptr) {
    memory::Lease& lease = *entry->lease;
    check.valid = lease.valid(name.generation);
    if (check.valid) {
      const std::size_t count = lease.segment_count();
      for (std::size_t i = 0; i < count; ++i) {
        if (lease.segment_valid(name.generation, i)) continue;
        if (check.good_bitmap.empty()) {
          check.good_bitmap.assign((count + 7) / 8, std::byte{0xff});
        }
        check.good_bitmap[i / 8] &= ~(std::byte{1} << static_cast<int>(i % 8));
      }
    }
    if (release) over(*entry, LeaseEnd::released, true);
  }
  ++(check.valid ? stats_.confirms_valid : stats_.confirms_stale);
  return check;
}

bool Lender::release(LendHost& host, const LeaseName& name) {
  Entry* entry = find(host, name);
  if (entry == nullptr) {
    ++stats_.releases_ignored;
    return false;
  }
  over(*entry, LeaseEnd::released, true);
  return true;
}

void Lender::end(std::uint64_t lease_id, LeaseEnd reason) {
  if (Entry* entry = entries_.find(SlotId::unpack(lease_id))) {
    if (reason != LeaseEnd::released && reason != LeaseEnd::connection &&
        guard::policy_of(entry->lease->guard()).breaks_connection) {
      // Guard `disconnect`: nobody reads over this connection any more before the bytes are reused.
      entry->host.break_connection("a lent buffer was taken back (guard disconnect)");
      entry = entries_.find(SlotId::unpack(lease_id));
      if (entry == nullptr) return;
    }
    over(*entry, reason, false);
  }
}

void Lender::acknowledge(LentList& list, std::uint64_t call) {
  std::erase_if(list.held_, [call](LentList::Held& held) {
    if (held.call != call) return false;
    held.lease->settle();
    return true;
  });
}

void Lender::end_all(LentList& list, LeaseEnd reason) {
  while (Entry* entry = list.entries_.front()) over(*entry, reason, true);
  for (LentList::Held& held : list.held_) held.lease->settle();
  list.held_.clear();
}

void Lender::on_deadline(void* context) {
  Entry& entry = *static_cast<Entry*>(context);
  Lender& lender = entry.lender;
  LendOwner* owner = entry.owner;
  const std::uint64_t id = entry.id.packed();
  ++lender.stats_.leases_timed_out;
  lender.end(id, LeaseEnd::timeout);
  if (owner != nullptr) owner->lease_over(id, LeaseEnd::timeout);
}

// The end of the lease is the first thing that happens; only then anybody is told.
void Lender::over(Entry& entry, LeaseEnd reason, bool tell_owner) {
  entry.lease->end(reason);
  if (reason == LeaseEnd::released) ++stats_.leases_released;
  LendOwner* owner = tell_owner ? entry.owner : nullptr;
  const std::uint64_t id = entry.id.packed();
  if (entry.terms.hold_until_ack) {
    if (reason == LeaseEnd::released || reason == LeaseEnd::connection) {
      entry.lease->settle();
    } else {
      entry.list.held_.push_back({entry.terms.call, std::move(entry.lease)});
    }
  }
  entry.unlink();
  entries_.erase(entry.id);
  if (owner != nullptr) owner->lease_over(id, reason);
}

}  // namespace pawl::bulk
