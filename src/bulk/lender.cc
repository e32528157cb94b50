// SPDX-License-Identifier: Apache-2.0
#include "bulk/lender.h"

#include <limits>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "memory/buffer_access.h"
#include "memory/lease_table.h"
#include "memory/pool_core.h"

namespace pawl::bulk {

Lender::Lender(Poller& poller, fabric::Fabric& fabric, std::size_t device, detail::PoolCore& pool,
               NodeStats& stats, Logger& log, const Options& options)
    : poller_(poller),
      fabric_(fabric),
      device_(device),
      pool_(pool),
      stats_(stats),
      log_(log),
      options_(options),
      taken_back_(poller, "ends of leases", &Lender::end_taken_back, this),
      entries_(options.leases_max, options.first_generation) {}

Lender::~Lender() = default;

Result<LeaseDescriptor> Lender::lend(LendHost& host, LentList& list, LendOwner* owner,
                                     std::span<const Block> segments, Terms& terms,
                                     std::span<SegmentDescriptor> out) {
  PAWL_CHECK(segments.size() == out.size(), "one descriptor for each segment");
  if (entries_.full()) {
    return Status(Code::resource_exhausted, "leases_max leases of this poller are in use");
  }
  const guard::Policy policy = guard::policy_of(terms.guard);
  if (terms.hold_until_ack || policy.binds_windows) {  // after its end it may be in quarantine
    if (Status full = pool_.admit_transfer(); !full.ok()) return full;
  }
  PAWL_CHECK(policy.binds_windows == static_cast<bool>(terms.windows),
             "windows are reserved for the guards that bind them");
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const detail::ExtentRef& extent = BufferAccess::reference(segments[i]);
    if (!BufferAccess::of_pool(segments[i], pool_)) {
      return Status(Code::failed_precondition,
                    "a lent block is of another node's pool: a node lends its own memory");
    }
    if (!extent->handle(device_)) {
      return Status(Code::failed_precondition,
                    "the memory of a lent block is not registered with this connection's device");
    }
    if (policy.binds_windows) {
      if (segments[i].size() <= std::numeric_limits<std::uint32_t>::max()) continue;
      return Status(Code::too_large,
                    "a memory window opens less than 4 GiB: lend the block in several slices");
    }
    if (Status exposed = expose(host, segments[i], out[i]); !exposed.ok()) return exposed;
  }
  const bool settles_later = policy.settles_later || terms.hold_until_ack;
  Result<LeaseHandle> lease = pool_.leases().lend(
      segments, terms.guard, settles_later, policy.binds_windows ? this : nullptr, poller_.now());
  if (!lease.ok()) return lease.status();
  const SlotId id = *entries_.emplace(*this, host, list, owner, terms.call, terms.hold_until_ack,
                                      *std::move(lease));
  Entry& entry = *entries_.find(id);
  entry.id = id;
  list.entries_.push_back(entry);
  entry.deadline.arm(poller_, terms.deadline, &Lender::on_deadline, &entry);
  if (policy.binds_windows) bind(entry, std::move(terms.windows), out);
  ++stats_.leases_lent;

  LeaseDescriptor descriptor;
  descriptor.lease = {id.packed(), entry.lease->generation()};
  descriptor.guard = terms.guard;
  descriptor.segments = static_cast<std::uint16_t>(segments.size());
  return descriptor;
}

// A key of the memory, for this peer. Of a pool's buffer the whole buffer, of a user's region the
// whole blocks: a peer that is lent ever different parts of them gets one key each.
Status Lender::expose(LendHost& host, const Block& block, SegmentDescriptor& out) {
  const detail::ExtentRef& extent = BufferAccess::reference(block);
  std::byte* const data = const_cast<std::byte*>(block.bytes().data());
  const std::span<std::byte> whole = extent->whole(block.bytes());
  Result<fabric::RemoteAddress> key =
      fabric_.expose(host.lend_group(), extent->handle(device_), whole.data(), whole.size());
  if (!key.ok()) return key.status();
  out.kind = KeyKind::region;
  out.length = block.size();
  out.key = key->key;
  out.address = key->address + static_cast<std::uint64_t>(data - whole.data());
  return {};
}

// A window over exactly the lent bytes of each segment, zero-based.
void Lender::bind(Entry& entry, guard::WindowReservation windows,
                  std::span<SegmentDescriptor> out) {
  detail::FrameVector<fabric::LocalSegment> targets(out.size());
  detail::FrameVector<std::uint64_t> keys(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::span<const std::byte> bytes = entry.lease->segment_bytes(i);
    targets[i] = {const_cast<std::byte*>(bytes.data()), static_cast<std::uint32_t>(bytes.size()),
                  entry.lease->segment_handle(i, device_)};
  }
  entry.windows = windows.end();
  entry.bound = entry.windows->bind(std::move(windows), targets, keys);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].kind = KeyKind::window;
    out[i].length = targets[i].length;
    out[i].key = keys[i];
    out[i].address = 0;
  }
}

// A name is good only from the peer that the lease was made for.
Lender::Entry* Lender::find(const LendHost& host, const LeaseName& name) {
  Entry* entry = entries_.find(SlotId::unpack(name.id));
  if (entry == nullptr || &entry->host != &host || !entry->lease ||
      entry->lease->generation() != name.generation) {
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
    if (host.release_held(name)) return true;
    ++stats_.releases_ignored;
    return false;
  }
  over(*entry, LeaseEnd::released, true);
  return true;
}

void Lender::end(std::uint64_t lease_id, LeaseEnd reason) {
  const SlotId id = SlotId::unpack(lease_id);
  if (Entry* entry = entries_.find(id)) {
    if (!entry->lease) entry->owner = nullptr;  // it is just ending
    end(id, reason, false);
  }
}

void Lender::end(SlotId id, LeaseEnd reason, bool tell_owner) {
  Entry* entry = entries_.find(id);
  if (entry == nullptr || !entry->lease) return;
  if (reason != LeaseEnd::released && reason != LeaseEnd::connection &&
      guard::policy_of(entry->lease->guard()).breaks_connection) {
    // Guard `disconnect`: nobody reads over this connection any more before the bytes are reused.
    entry->host.break_connection("a lent buffer was taken back (guard disconnect)");
    entry = entries_.find(id);
    if (entry == nullptr || !entry->lease) return;
  }
  over(*entry, reason, tell_owner);
}

void Lender::acknowledge(LentList& list, std::uint64_t call) { give_back(list, call); }

void Lender::end_all(LentList& list, LeaseEnd reason) {
  list.closing_ = true;
  while (Entry* entry = list.entries_.front()) over(*entry, reason, true);
  for (LentList::Held& held : list.held_) {
    held.lease->set_quarantine(QuarantineReason::endpoint_drain, poller_.now());
  }
  if (!list.held_.empty()) arm_watch(list);
}

void Lender::end_bound(LentList& list, const guard::WindowEnd& windows) {
  const auto next = [&]() -> Entry* {
    for (Entry& entry : list.entries_) {
      if (entry.windows == &windows) return &entry;
    }
    return nullptr;
  };
  while (Entry* entry = next()) over(*entry, LeaseEnd::connection, true);
}

void Lender::endpoints_gone(LentList& list) { give_back(list, std::nullopt); }

// --- what is held ----------------------------------------------------------------------------

// The lease is over, and its memory stays until the peer said that it reads no more, or cannot.
void Lender::hold(Entry& entry, LeaseHandle lease, LeaseEnd reason) {
  LentList& list = entry.list;
  lease->set_quarantine(reason == LeaseEnd::connection ? QuarantineReason::endpoint_drain
                                                       : QuarantineReason::cancel_unacked,
                        poller_.now());
  list.held_.push_back({entry.call, poller_.now(), std::move(lease), {}});
  list.lender_ = this;
  list.host_ = &entry.host;
  if (!list.watch_.armed() && !list.broken_) arm_watch(list);
}

// The proof is there, for one call or for all.
void Lender::give_back(LentList& list, std::optional<std::uint64_t> call) {
  std::vector<LentList::Held> back;
  std::erase_if(list.held_, [&](LentList::Held& held) {
    if (call && held.call != *call) return false;
    back.push_back(std::move(held));
    return true;
  });
  if (list.held_.empty()) list.watch_.cancel();
  for (LentList::Held& held : back) {
    held.lease->settle();
    held.lease.reset();
    held.back.complete({});
  }
}

QuarantineReason Lender::held(LentList& list, std::uint64_t call, Operation<Status>& back) {
  for (LentList::Held& held : list.held_) {
    if (held.call != call) continue;
    auto [operation, completer] = make_completer<Status>();
    back = std::move(operation);
    held.back = std::move(completer);
    return list.closing_ ? QuarantineReason::endpoint_drain : QuarantineReason::cancel_unacked;
  }
  return QuarantineReason::none;
}

void Lender::arm_watch(LentList& list) {
  const TimePoint from = list.closing_ ? poller_.now() : list.held_.front().since;
  list.watch_.arm(poller_, from + options_.quarantine_timeout, &Lender::on_held_long, &list);
}

// Too long: the connection goes. Still there after as long again: somebody has to know. The bytes
// stay in any case.
void Lender::on_held_long(void* context) {
  LentList& list = *static_cast<LentList*>(context);
  Lender& lender = *list.lender_;
  if (list.closing_) return lender.alarm(list);
  if (list.held_.front().since + lender.options_.quarantine_timeout > lender.poller_.now()) {
    return lender.arm_watch(list);
  }
  list.broken_ = true;
  ++lender.stats_.quarantine_breaks;
  list.host_->break_connection(
      "the peer did not acknowledge the end of a call within quarantine_timeout, and memory that "
      "was lent to it under hold_until_ack waits for that");
}

void Lender::alarm(const LentList& list) {
  ++stats_.quarantine_alarms;
  std::uint64_t bytes = 0;
  for (const LentList::Held& held : list.held_) bytes += held.lease->bytes();
  log_.error(std::to_string(bytes) + " bytes that were lent to " + list.host_->peer_address() +
             " stay in quarantine: the device has not closed the endpoints of that connection "
             "within quarantine_timeout, so the peer may still read them");
}

// The owner took the bytes back, on whichever thread. They are free once the windows are, which
// begins at the poller.
void Lender::lease_ended(memory::Lease&, LeaseEnd reason) {
  if (reason == LeaseEnd::withdrawn) taken_back_.post();
}

void Lender::end_taken_back(void* context) {
  Lender& lender = *static_cast<Lender*>(context);
  detail::FrameVector<SlotId> ids;
  lender.entries_.for_each([&](SlotId id, const Entry& entry) {
    if (entry.windows != nullptr && entry.lease && !entry.lease->live()) ids.push_back(id);
  });
  for (const SlotId id : ids) lender.end(id, LeaseEnd::withdrawn, true);
}

void Lender::on_deadline(void* context) {
  Entry& entry = *static_cast<Entry*>(context);
  Lender& lender = entry.lender;
  ++lender.stats_.leases_timed_out;
  lender.end(entry.id, LeaseEnd::timeout, true);
}

// The end of the lease is the first thing that happens; only then anybody is told. What goes with
// its memory (the keep-alive of a region) may come back here: it finds the entry without its lease,
// in no list.
void Lender::over(Entry& entry, LeaseEnd reason, bool tell_owner) {
  if (!tell_owner) entry.owner = nullptr;
  LeaseHandle lease = std::move(entry.lease);
  entry.unlink();
  lease->end(reason);
  if (reason == LeaseEnd::released) ++stats_.leases_released;
  let_go(entry, std::move(lease), reason);
  const SlotId id = entry.id;
  LendOwner* const owner = entry.owner;
  entries_.erase(id);
  if (owner != nullptr) owner->lease_over(id.packed(), reason);
}

// The memory is free with the handle, unless somebody still has to prove something.
void Lender::let_go(Entry& entry, LeaseHandle lease, LeaseEnd reason) {
  const bool released = reason == LeaseEnd::released;
  if (entry.windows != nullptr) {
    entry.windows->hold(entry.bound, std::move(lease), entry.id.packed(), entry.call, released);
  } else if (entry.hold_until_ack && !released) {
    hold(entry, std::move(lease), reason);
  } else if (entry.hold_until_ack) {
    lease->settle();
  }
}

}  // namespace pawl::bulk
