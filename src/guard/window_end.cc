// SPDX-License-Identifier: Apache-2.0
#include "guard/window_end.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pawl::guard {

namespace {
constexpr std::uint32_t kSlotsPerWindow = 2;  // its bind and its invalidate may both be queued

std::uint32_t slots_of(const Windows& windows) {
  return static_cast<std::uint32_t>(windows.size()) * kSlotsPerWindow;
}
}  // namespace

WindowReservation& WindowReservation::operator=(WindowReservation&& other) noexcept {
  if (this != &other) {
    reset();
    end_ = std::exchange(other.end_, nullptr);
    windows_ = std::move(other.windows_);
  }
  return *this;
}

void WindowReservation::reset() noexcept {
  if (end_ == nullptr) return;
  for (const Window& window : windows_) end_->pool_.give_back(window);
  end_->slots_used_ -= slots_of(windows_);
  if (!windows_.empty()) end_->pool_.look_again();
  end_ = nullptr;
  windows_.clear();
}

WindowEnd::WindowEnd(Host& host, fabric::Fabric& fabric, fabric::EndpointId endpoint,
                     Poller& poller, WindowPool& pool, NodeStats& stats, Logger& log,
                     const Options& options)
    : host_(host),
      fabric_(fabric),
      endpoint_(endpoint),
      poller_(poller),
      pool_(pool),
      stats_(stats),
      log_(log),
      options_(options),
      records_(std::min<std::size_t>(kLeasesMax, options.slots_max / kSlotsPerWindow)) {}

WindowEnd::~WindowEnd() {
  PAWL_CHECK(idle() && slots_used_ == 0, "a lending end goes after the last of its windows");
}

bool WindowEnd::reserve(std::size_t windows, WindowReservation& out) {
  if (lost_ || records_.full()) return false;
  if (slots_used_ + windows * kSlotsPerWindow > options_.slots_max) return false;
  WindowReservation reservation;
  if (!pool_.take(windows, reservation.windows_)) return false;
  reservation.end_ = this;
  slots_used_ += slots_of(reservation.windows_);
  out = std::move(reservation);
  return true;
}

SlotId WindowEnd::bind(WindowReservation reservation, std::span<const fabric::LocalSegment> targets,
                       std::span<std::uint64_t> keys) {
  PAWL_CHECK(reservation.end_ == this && reservation.windows_.size() >= targets.size() &&
                 keys.size() == targets.size(),
             "windows are bound that were reserved here");
  const SlotId id = *records_.emplace(*this);
  Record& record = *records_.find(id);
  record.id = id;
  while (record.windows.size() < targets.size()) {
    record.windows.push_back(reservation.windows_.back());
    reservation.windows_.pop_back();
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Window& window = record.windows[i];
    keys[i] = fabric_.next_window_key(window.id);
    ++window.binds;
    fabric::WorkRequest request;
    request.id = id.packed();
    request.op = fabric::Opcode::bind;
    request.signalled = false;
    request.window = window.id;
    request.bind_target = targets[i];
    pending_.push_back(request);
  }
  record.outstanding = targets.size();
  stats_.window_binds += targets.size();
  stats_.windows_bound += targets.size();
  return id;
}

void WindowEnd::take_pending(detail::FrameVector<fabric::WorkRequest>& chain) {
  chain.insert(chain.end(), pending_.begin(), pending_.end());
  pending_.clear();
}

// The key that it would have opened was never bound, nor was it sent: the message stood behind it.
void WindowEnd::not_posted(const fabric::WorkRequest& bind) {
  Record* record = records_.find(SlotId::unpack(bind.id));
  PAWL_CHECK(record != nullptr, "a bind belongs to a lease");
  record->failed = true;
  --record->outstanding;
  if (record->outstanding == 0) settled_work(*record);
}

void WindowEnd::hold(SlotId bound, memory::LeaseHandle lease, std::uint64_t lease_id,
                     std::uint64_t call, bool released) {
  Record* record = records_.find(bound);
  PAWL_CHECK(record != nullptr && !record->lease, "a lease is held once");
  record->lease = std::move(lease);
  record->lease_id = lease_id;
  record->call = call;
  if (released) return release(*record);
  record->lease->set_quarantine(QuarantineReason::window_revoke, poller_.now());
  if (lost_) return revoke(*record);
  record->timer.arm(poller_, poller_.now() + options_.cancel_grace, &WindowEnd::on_timer, record);
}

bool WindowEnd::release(std::uint64_t lease_id, std::uint64_t generation) {
  for (const SlotId id : ids()) {
    Record* record = records_.find(id);
    if (record == nullptr || !record->lease || record->lease_id != lease_id ||
        record->lease->generation() != generation) {
      continue;
    }
    release(*record);
    return true;
  }
  return false;
}

void WindowEnd::acknowledge(std::uint64_t call) {
  for (const SlotId id : ids()) {
    Record* record = records_.find(id);
    if (record != nullptr && record->lease && record->call == call) release(*record);
  }
}

// The reader is done, so it had the key: the bind was executed, whether its completion was seen or
// not. This is the one invalidate of the bind.
void WindowEnd::release(Record& record) {
  if (record.state != State::binding && record.state != State::bound) return;
  if (lost_ || record.failed) return revoke(record);
  detail::FrameVector<fabric::WorkRequest> chain(record.windows.size());
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i].id = record.id.packed();
    chain[i].op = fabric::Opcode::invalidate;
    chain[i].signalled = i + 1 == chain.size();
    chain[i].fence = true;
    chain[i].window = record.windows[i].id;
  }
  record.state = State::invalidating;
  Status why;
  const std::size_t posted = fabric_.post(endpoint_, chain, why);
  record.outstanding += posted;
  stats_.window_invalidates += posted;
  record.timer.arm(poller_, poller_.now() + options_.revoke_deadline, &WindowEnd::on_timer,
                   &record);
  if (posted == chain.size()) return;
  record.failed = true;
  host_.break_endpoint("an invalidate of memory windows was not accepted by the device");
}

void WindowEnd::on_completion(const fabric::Completion& completion) {
  Record* record = records_.find(SlotId::unpack(completion.id));
  PAWL_CHECK(record != nullptr && record->outstanding > 0,
             "a window's work completes before its lease is settled");
  if (completion.status != fabric::CompletionStatus::success) record->failed = true;
  if (--record->outstanding == 0) settled_work(*record);
}

// Nothing that names its windows can be executed any more.
void WindowEnd::settled_work(Record& record) {
  switch (record.state) {
    case State::binding:
      record.state = State::bound;
      if (record.failed && !lost_) host_.break_endpoint("a memory window could not be bound");
      return;
    case State::invalidating:
      if (record.failed) return revoke(record);
      stats_.windows_bound -= record.windows.size();
      for (const Window& window : record.windows) pool_.give_back(window);
      return done(record);
    case State::revoking:
      return free_windows(record);
    case State::bound:
      return;
  }
}

// Without the reader's word. Freeing a window proves that it gives no byte any more.
void WindowEnd::revoke(Record& record) {
  if (record.state != State::revoking) {
    ++stats_.window_revokes;
    record.lease->set_quarantine(QuarantineReason::window_revoke, poller_.now());
  }
  record.state = State::revoking;
  if (record.outstanding == 0) return free_windows(record);
  const Duration limit = lost_ ? options_.quarantine_timeout : options_.revoke_deadline;
  record.timer.arm(poller_, poller_.now() + limit, &WindowEnd::on_timer, &record);
}

void WindowEnd::on_timer(void* context) {
  Record& record = *static_cast<Record*>(context);
  WindowEnd& end = record.end;
  if (record.state == State::binding || record.state == State::bound) return end.revoke(record);
  if (end.lost_ || record.freeing != 0) {
    end.alarm(record);
    if (record.outstanding == 0 && record.freeing == 0) end.free_windows(record);
    return;
  }
  end.host_.break_endpoint("a memory window's work did not complete within revoke_deadline");
}

void WindowEnd::free_windows(Record& record) {
  record.timer.arm(poller_, poller_.now() + options_.quarantine_timeout, &WindowEnd::on_timer,
                   &record);
  while (!record.windows.empty()) {
    const Window window = record.windows.back();
    record.windows.pop_back();
    ++record.freeing;
    const std::optional<Status> freed = pool_.free(window, *this, record.id.packed());
    if (freed && !window_freed(record, window, *freed)) return;
  }
  if (record.freeing == 0) done(record);
}

// Where the pool's thread freed it: after `device_goes` nothing comes, so the record is there.
void WindowEnd::window_freed(std::uint64_t tag, const Window& window, const Status& status) {
  Record* record = records_.find(SlotId::unpack(tag));
  PAWL_CHECK(record != nullptr && record->freeing > 0, "a window that is freed belongs to a lease");
  if (!window_freed(*record, window, status)) return;
  if (record->freeing == 0 && record->windows.empty()) done(*record);
}

bool WindowEnd::window_freed(Record& record, const Window& window, const Status& status) {
  --record.freeing;
  if (status.ok()) {
    slots_used_ -= kSlotsPerWindow;
    --stats_.windows_bound;
    return true;
  }
  // The memory stays: nothing is proven. ERR and its flushes are what is left to try.
  record.windows.push_back(window);
  if (lost_) {
    alarm(record);
  } else {
    host_.break_endpoint("a memory window could not be freed");
  }
  return false;
}

// The device does not flush, or does not free: the memory stays, and somebody has to know.
void WindowEnd::alarm(Record& record) {
  if (std::exchange(record.alarmed, true)) return;
  ++stats_.quarantine_alarms;
  log_.error(std::to_string(record.lease->bytes()) + " bytes that were lent to " +
             host_.peer_address() +
             " stay in quarantine: the device has not ended the memory windows through which the "
             "peer may still read them; it is tried again");
}

// What goes with the memory may run the user's code: the record is gone by then.
void WindowEnd::done(Record& record) {
  slots_used_ -= slots_of(record.windows);
  memory::LeaseHandle lease = std::move(record.lease);
  Completer<Status> back = std::move(record.back);
  records_.erase(record.id);
  lease->settle();
  lease.reset();
  back.complete({});
  host_.windows_back();
}

bool WindowEnd::held(std::uint64_t call, Operation<Status>& back) {
  for (const SlotId id : ids()) {
    Record* record = records_.find(id);
    if (!record->lease || record->call != call) continue;
    auto [operation, completer] = make_completer<Status>();
    back = std::move(operation);
    record->back = std::move(completer);
    return true;
  }
  return false;
}

void WindowEnd::lost() {
  if (std::exchange(lost_, true)) return;
  for (const SlotId id : ids()) {
    Record* record = records_.find(id);
    if (record == nullptr) continue;
    PAWL_CHECK(static_cast<bool>(record->lease), "the leases of a lost endpoint end first");
    revoke(*record);
  }
}

void WindowEnd::device_gone() {
  lost_ = true;
  for (const SlotId id : ids()) {
    Record& record = *records_.find(id);
    const std::size_t windows = record.windows.size() + record.freeing;
    pool_.forget(windows);
    stats_.windows_bound -= windows;
    slots_used_ -= static_cast<std::uint32_t>(record.freeing) * kSlotsPerWindow;
    done(record);
  }
}

detail::FrameVector<SlotId> WindowEnd::ids() {
  detail::FrameVector<SlotId> ids;
  records_.for_each([&](SlotId id, Record&) { ids.push_back(id); });
  return ids;
}

}  // namespace pawl::guard
