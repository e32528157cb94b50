// SPDX-License-Identifier: Apache-2.0
#include "memory/lease.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/extent.h"
#include "memory/lease_table.h"
#include "memory/pool_core.h"

namespace pawl::memory {

std::string_view lease_end_name(LeaseEnd reason) {
  switch (reason) {
    case LeaseEnd::released:
      return "released";
    case LeaseEnd::timeout:
      return "timeout";
    case LeaseEnd::cancelled:
      return "cancelled";
    case LeaseEnd::failed:
      return "failed";
    case LeaseEnd::withdrawn:
      return "withdrawn";
    case LeaseEnd::room:
      return "room";
    case LeaseEnd::connection:
      return "connection";
  }
  return "unknown";
}

std::span<const std::byte> Lease::segment_bytes(std::size_t i) const {
  PAWL_CHECK(i < segment_count_, "a lease has no such segment");
  return segment(i).bytes;
}

MemoryHandle Lease::segment_handle(std::size_t i, std::size_t device) const {
  PAWL_CHECK(i < segment_count_, "a lease has no such segment");
  return segment(i).extent->handle(device);
}

std::span<std::byte> Lease::segment_extent(std::size_t i) const {
  PAWL_CHECK(i < segment_count_, "a lease has no such segment");
  const detail::Extent& extent = *segment(i).extent;
  return {extent.base(), extent.bytes()};
}

// --- lend -----------------------------------------------------------------------------------

void Lease::prepare(std::span<const Block> segments, Guard guard, bool settles_later,
                    LeaseListener* listener, TimePoint now) {
  const std::size_t more =
      segments.size() > kInlineSegments ? segments.size() - kInlineSegments : 0;
  if (more > more_capacity_) {
    more_ = std::make_unique<LeaseSegment[]>(more);
    more_capacity_ = more;
  }
  generation_ = word_->load(std::memory_order_relaxed) + 1;
  segment_count_ = static_cast<std::uint32_t>(segments.size());
  guard_ = guard;
  settles_later_ = settles_later;
  listener_ = listener;
  lent_at_ = now;
  bytes_ = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    LeaseSegment& s = segment(i);
    s.lease = this;
    s.index = static_cast<std::uint32_t>(i);
    s.memory = BufferAccess::reference(segments[i]);
    s.extent = s.memory.get();
    s.bytes = segments[i].bytes();
    s.use = BufferAccess::use(segments[i]);
    s.place.store(LeaseSegment::Place::unlisted, std::memory_order_relaxed);
    bytes_ += s.bytes.size();
  }
  phase_.store(0, std::memory_order_relaxed);
  remaining_.store(segment_count_, std::memory_order_relaxed);
  listener_gate_.store(kGateClosed, std::memory_order_relaxed);
  settled_.store(!settles_later, std::memory_order_relaxed);
  // The handle, the one that will finish, and the one that will settle.
  holds_.store(settles_later ? 3 : 2, std::memory_order_relaxed);
}

Status Lease::list_segments() { return segment_count_ == 1 ? list_single() : list_many(); }

// The segment is listed and then the word opens, in one critical section: whoever finds the lease
// on the extent's list, or wins its end, finds all of it.
Status Lease::list_single() {
  LeaseSegment& s = inline_[0];
  std::lock_guard lock(s.extent->mutex());
  if (Status refused = s.extent->admit(s.bytes, s.use); !refused.ok()) {
    return refused;
  }
  if (listener_ != nullptr) listener_gate_.store(0, std::memory_order_relaxed);
  s.word.lend(generation_, std::memory_order_relaxed);
  s.extent->list(s);
  word_->lend(generation_, std::memory_order_release);
  return {};
}

// With several extents a withdrawal can end the lease when only some segments are listed. Then
// finishing is left to whoever comes last, the ender or this function (`phase_`), and the
// listener is told after all are listed.
Status Lease::list_many() {
  for (std::size_t i = 0; i < segment_count_; ++i) {
    segment(i).word.lend(generation_, std::memory_order_relaxed);
  }
  word_->lend(generation_, std::memory_order_release);
  Status refused;
  for (std::size_t i = 0; i < segment_count_ && refused.ok(); ++i) {
    LeaseSegment& s = segment(i);
    std::lock_guard lock(s.extent->mutex());
    refused = s.extent->admit(s.bytes, s.use);
    if (refused.ok()) s.extent->list(s);
  }
  if (refused.ok() && listener_ != nullptr) listener_gate_.store(0, std::memory_order_release);
  if ((phase_.fetch_or(kListed, std::memory_order_acq_rel) & kEnded) != 0) finish();
  return refused;
}

// After list_segments failed: nobody got the lease. A single one was never LENT.
void Lease::refused() {
  if (segment_count_ == 1) {
    give_back(inline_[0]);
    holds_.fetch_sub(settles_later_ ? 2 : 1, std::memory_order_relaxed);
  } else {
    end(LeaseEnd::failed);
    if (settles_later_) settle();
  }
  drop_hold();
}

// --- end ------------------------------------------------------------------------------------

bool Lease::end(LeaseEnd reason) {
  if (!end_word(*word_, generation_)) return false;
  ended(reason);
  return true;
}

void Lease::ended(LeaseEnd reason) {
  reason_.store(reason, std::memory_order_relaxed);
  if (segment_count_ > 1 && (phase_.fetch_or(kEnded, std::memory_order_acq_rel) & kListed) == 0) {
    return;  // list_many finishes
  }
  finish();
}

void Lease::finish() {
  if (!settles_later_) give_back_all();
  if (enter_listener()) {
    listener_->lease_ended(*this, end_reason());
    leave_listener();
  }
  drop_hold();
}

void Lease::give_back_all() {
  for (std::size_t i = 0; i < segment_count_; ++i) give_back(segment(i));
}

// Off the list, and the reference dropped with no lock held. For several segments the exchange
// decides between this and a withdrawal: the one that takes the segment owns its reference, which
// keeps the extent; the other one must not touch it.
void Lease::give_back(LeaseSegment& s) {
  using Place = LeaseSegment::Place;
  const Place place = segment_count_ == 1
                          ? s.place.load(std::memory_order_relaxed)
                          : s.place.exchange(Place::taken, std::memory_order_acq_rel);
  if (place == Place::taken) return;
  s.place.store(Place::taken, std::memory_order_relaxed);
  detail::ExtentRef memory = std::move(s.memory);
  if (place == Place::unlisted) return;
  bool idle = false;
  {
    std::lock_guard lock(memory->mutex());
    idle = memory->unlist(s);
  }
  if (idle) memory->region_idle();
}

void Lease::settle() {
  PAWL_CHECK(settles_later_ && !live(), "a lease is settled that is live, or settles at its end");
  PAWL_CHECK(!settled_.exchange(true, std::memory_order_acq_rel), "a lease is settled twice");
  quarantine_.clear();
  give_back_all();
  drop_hold();
}

void Lease::settle_segment(std::size_t i) {
  PAWL_CHECK(settles_later_ && i < segment_count_ && !segment_valid(generation_, i),
             "a segment is settled that was not withdrawn");
  give_back(segment(i));
}

// --- withdrawal -----------------------------------------------------------------------------

bool Lease::withdraw(LeaseSegment& s) {
  using Place = LeaseSegment::Place;
  if (ends_whole()) return end_word(*word_, generation_);
  if (!end_word(s.word, generation_)) return false;
  hold();  // the segment is listed, so the lease is not finished
  if (!settles_later_ &&
      s.place.exchange(Place::taken, std::memory_order_acq_rel) != Place::taken) {
    const bool idle = s.extent->unlist(s);
    s.idle_due = idle;
    s.memory_due = true;
  }
  return true;
}

void Lease::withdrawn(LeaseSegment& s, LeaseEnd reason) {
  if (ends_whole()) {
    ended(reason);
    return;
  }
  if (std::exchange(s.memory_due, false)) {
    detail::ExtentRef memory = std::move(s.memory);
    if (std::exchange(s.idle_due, false)) memory->region_idle();
  }
  if (enter_listener()) {
    listener_->segment_withdrawn(*this, s.index);
    leave_listener();
  }
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) end(reason);
  drop_hold();
}

void Lease::set_quarantine(QuarantineReason reason, TimePoint now) {
  quarantine_.set(table_.core().quarantine(), reason, bytes_, true, now);
}

// --- the listener's gate --------------------------------------------------------------------

bool Lease::enter_listener() {
  if (listener_ == nullptr) return false;
  if ((listener_gate_.fetch_add(1, std::memory_order_acquire) & kGateClosed) == 0) return true;
  leave_listener();
  return false;
}

void Lease::close_listener() {
  if (listener_ == nullptr) return;
  listener_gate_.fetch_or(kGateClosed, std::memory_order_acq_rel);
  // A call under way only posts to a poller.
  while ((listener_gate_.load(std::memory_order_acquire) & ~kGateClosed) != 0) {
    std::this_thread::yield();
  }
}

// --- holds ----------------------------------------------------------------------------------

bool Lease::try_hold() {
  std::uint32_t holds = holds_.load(std::memory_order_relaxed);
  while (holds != 0) {
    if (holds_.compare_exchange_weak(holds, holds + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void Lease::drop_hold() {
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) table_.recycle(*this);
}

void LeaseHandle::reset() noexcept {
  if (lease_ == nullptr) return;
  Lease* lease = std::exchange(lease_, nullptr);
  lease->close_listener();
  lease->end(LeaseEnd::cancelled);
  lease->drop_hold();
}

}  // namespace pawl::memory
