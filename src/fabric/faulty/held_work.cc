// SPDX-License-Identifier: Apache-2.0
// What is posted, held and completed. Every request has a number, which is the id that the device
// sees; the device is asked to signal each, and unsignalled ones are held back here, since those
// that are held reach the device in another order.
#include <algorithm>
#include <utility>

#include "fabric/check_work.h"
#include "fabric/faulty/faulty_fabric.h"

namespace pawl::fabric {

// --- posting ---------------------------------------------------------------------------------

std::size_t FaultyFabric::post(EndpointId id, std::span<const WorkRequest> chain, Status& why) {
  why = {};
  std::size_t accepted = 0;
  for (const WorkRequest& request : chain) {
    Endpoint* endpoint = find(id);
    if (endpoint == nullptr) {
      why = Status(Code::failed_precondition, "the endpoint is closed");
      break;
    }
    if (!take_work(id, *endpoint, request, why)) break;
    ++accepted;
    const bool fails =
        ++counters_.operations == plan_.fail_at_operation || random_.chance(plan_.fail_endpoint);
    if (fails) fail(id, *endpoint, Status(Code::unavailable, "the endpoint failed (injected)"));
  }
  return accepted;
}

Status FaultyFabric::check(const Endpoint& endpoint, const WorkRequest& request) {
  if (endpoint.error || endpoint.closing) {
    return Status(Code::failed_precondition, "the endpoint is in ERR: close it and connect again");
  }
  if (request.op != Opcode::receive) {
    if (!endpoint.connected) {
      return Status(Code::failed_precondition, "the endpoint is not connected yet");
    }
    if (endpoint.sends_held >= endpoint.send_depth) {
      return Status(Code::resource_exhausted, "the send queue is full: poll first");
    }
  }
  Status status = check_work(capabilities(), request);
  if (status.ok() && random_.chance(plan_.refuse_post)) {
    ++counters_.posts_refused;
    return Status(Code::resource_exhausted, "the queue is full (injected)");
  }
  return status;
}

bool FaultyFabric::take_work(EndpointId id, Endpoint& endpoint, const WorkRequest& request,
                             Status& why) {
  why = check(endpoint, request);
  if (!why.ok()) return false;
  TimePoint due = now_;
  const bool hold = must_hold(endpoint, request, due);
  Work& work = keep(id, request);
  const std::uint64_t number = work.request.id;
  if (!hold) {
    if (!give_to_device(work, why)) {
      work_.erase(number);
      return false;
    }
  } else {
    work.due = due;
    if (request.op == Opcode::read && !request.fence) {
      ++counters_.reads_held;
      if (oracle_ != nullptr) work.oracle_state = oracle_->on_read_posted(request.remote);
      endpoint.held_reads.insert(number);
      held_reads_.emplace(due, number);
    } else {
      endpoint.queue.push_back(number);
    }
  }
  ++endpoint.outstanding;
  if (request.op != Opcode::receive) {
    ++endpoint.sends_held;
    work.ticket = endpoint.signals.add(request.signalled, endpoint.send_depth);
  }
  return true;
}

/// READs are held one by one, everything else of the send queue in order.
bool FaultyFabric::must_hold(Endpoint& endpoint, const WorkRequest& request, TimePoint& due) {
  if (request.op == Opcode::receive) return false;
  if (request.op == Opcode::read && !request.fence) {
    const Duration delay =
        draw(random_, plan_.hold_read_by ? plan_.hold_read_by(request) : plan_.hold_read);
    due = hold_reads_ ? TimePoint::never() : now_ + delay;
    return hold_reads_ || delay > Duration{0};
  }
  const bool send = request.op == Opcode::send;
  const Duration delay = send ? draw(random_, plan_.delay_send) : Duration{0};
  const bool held = send && hold_sends_;
  if (held || delay > Duration{0}) ++counters_.sends_delayed;
  due = std::max(held ? TimePoint::never() : now_ + delay, endpoint.send_order);
  endpoint.send_order = due;
  return due > now_ || !endpoint.queue.empty() || (request.fence && !endpoint.held_reads.empty());
}

FaultyFabric::Work& FaultyFabric::keep(EndpointId id, const WorkRequest& request) {
  const std::uint64_t number = next_work_++;
  Work& work = work_[number];
  work.request = request;
  work.user_id = request.id;
  work.endpoint = id;
  work.accepted = now_;
  work.local.assign(request.local.begin(), request.local.end());
  if (request.op == Opcode::send && request.inline_payload) {
    for (const LocalSegment& segment : request.local) {
      work.inline_bytes.insert(work.inline_bytes.end(), segment.address,
                               segment.address + segment.length);
    }
    work.local.assign(1, {.address = work.inline_bytes.data(),
                          .length = static_cast<std::uint32_t>(work.inline_bytes.size()),
                          .memory = {}});
  }
  work.request.local = work.local;
  work.request.id = number;
  work.request.signalled = true;
  return work;
}

bool FaultyFabric::give_to_device(const Work& work, Status& why) {
  return inner_.post(work.endpoint, std::span(&work.request, 1), why) == 1;
}

// --- what is held ----------------------------------------------------------------------------

std::size_t FaultyFabric::release_reads(std::size_t count) {
  std::vector<std::uint64_t> oldest;
  oldest.reserve(held_reads_.size());
  for (const TimedKey& key : held_reads_) oldest.push_back(key.second);
  std::sort(oldest.begin(), oldest.end());
  if (oldest.size() > count) oldest.resize(count);
  for (const std::uint64_t number : oldest) {
    Work& work = work_.at(number);
    held_reads_.erase({work.due, number});
    work.due = now_;
    held_reads_.emplace(work.due, number);
  }
  return oldest.size();
}

void FaultyFabric::release_due_reads() {
  while (!held_reads_.empty() && held_reads_.begin()->first <= now_) {
    execute_read(held_reads_.begin()->second);
  }
}

void FaultyFabric::execute_read(std::uint64_t number) {
  const Work& work = work_.at(number);
  held_reads_.erase({work.due, number});
  Endpoint& endpoint = endpoints_.at(work.endpoint);
  endpoint.held_reads.erase(number);
  const bool late = now_ - work.accepted >= plan_.late_after;
  const ReadVerdict verdict =
      oracle_ == nullptr ? ReadVerdict::unknown
                         : oracle_->on_read_executed(work.request.remote, work.oracle_state);
  Status why;
  if (!give_to_device(work, why)) {
    ++counters_.reads_flushed_while_held;
    const EndpointId id = work.endpoint;
    complete({.id = number, .status = CompletionStatus::flushed});
    fail(id, endpoint, std::move(why));
    return;
  }
  ++counters_.reads_executed;
  if (late) ++counters_.reads_late;
  if (verdict == ReadVerdict::reused) {
    ++counters_.reads_of_reused;
    if (late) ++counters_.reads_late_of_reused;
  }
}

void FaultyFabric::advance_queue(Endpoint& endpoint) {
  while (!endpoint.queue.empty()) {
    const std::uint64_t number = endpoint.queue.front();
    const Work& work = work_.at(number);
    if (work.due > now_) return;
    // A fence waits for the READs that were accepted before it.
    if (work.request.fence && !endpoint.held_reads.empty() &&
        *endpoint.held_reads.begin() < number) {
      return;
    }
    endpoint.queue.pop_front();
    Status why;
    if (!give_to_device(work, why)) {
      const EndpointId id = work.endpoint;
      complete({.id = number, .status = CompletionStatus::flushed});
      fail(id, endpoint, std::move(why));
      return;
    }
  }
}

std::size_t FaultyFabric::release_sends() {
  const std::size_t held = sends_held();
  for (auto& [id, endpoint] : endpoints_) {
    for (const std::uint64_t number : endpoint.queue) work_.at(number).due = now_;
    endpoint.send_order = now_;
    advance_queue(endpoint);
  }
  return held;
}

std::size_t FaultyFabric::sends_held() const {
  std::size_t held = 0;
  for (const auto& [id, endpoint] : endpoints_) held += endpoint.queue.size();
  return held;
}

void FaultyFabric::flush_held(Endpoint& endpoint) {
  for (const std::uint64_t number : endpoint.held_reads) {
    ++counters_.reads_flushed_while_held;
    held_reads_.erase({work_.at(number).due, number});
    complete({.id = number, .status = CompletionStatus::flushed});
  }
  endpoint.held_reads.clear();
  while (!endpoint.queue.empty()) {
    complete({.id = endpoint.queue.front(), .status = CompletionStatus::flushed});
    endpoint.queue.pop_front();
  }
}

Status FaultyFabric::free_window(WindowId window) {
  for (const auto& [id, endpoint] : endpoints_) {
    for (const std::uint64_t number : endpoint.queue) {
      const WorkRequest& held = work_.at(number).request;
      if ((held.op == Opcode::bind || held.op == Opcode::invalidate) && held.window == window) {
        return Status(Code::failed_precondition,
                      "a bind or invalidate that names this window is held");
      }
    }
  }
  return inner_.free_window(window);
}

// --- completions -----------------------------------------------------------------------------

/// A completion of the device: handed out now, or held.
void FaultyFabric::take_completion(const Completion& completion) {
  const auto found = work_.find(completion.id);
  if (found == work_.end()) return;
  Endpoint& endpoint = endpoints_.at(found->second.endpoint);
  const bool receive = found->second.request.op == Opcode::receive;
  TimePoint due = now_ + draw(random_, plan_.delay_completion);
  if (holds_completion(found->second.request.op) || endpoint.lost) due = TimePoint::never();
  // Behind a receive that is still held, also where that one is due by now: they stay in order.
  const bool behind = receive && endpoint.receives_delayed > 0;
  if (behind) due = std::max(due, endpoint.receive_order);
  if (behind || (due > now_ && !endpoint.closing)) {
    ++counters_.completions_delayed;
    held_completions_[{due, next_held_++}] = completion;
    if (receive) {
      ++endpoint.receives_delayed;
      endpoint.receive_order = due;
    }
  } else {
    complete(completion);
  }
  if (completion.status != CompletionStatus::success) goes_to_error(endpoint);
}

/// `completion` names the work by its number; of the rest, what the device said counts.
void FaultyFabric::complete(const Completion& completion) {
  const auto found = work_.find(completion.id);
  const Work& work = found->second;
  Endpoint& endpoint = endpoints_.at(work.endpoint);
  Completion out = completion;
  out.id = work.user_id;
  out.endpoint = work.endpoint;
  out.op = work.request.op;
  if (endpoint.lost || endpoint.ended) {
    out.status = CompletionStatus::flushed;  // the user never saw `connected`
    out.bytes = 0;
  }
  const std::uint64_t ticket = work.ticket;
  work_.erase(found);
  if (out.op == Opcode::receive) return hand_out(out);
  endpoint.signals.done(ticket, out, [this](const Completion& c) { hand_out(c); });
  if (endpoint.error) endpoint.signals.flush([this](const Completion& c) { hand_out(c); });
}

void FaultyFabric::hand_out(const Completion& completion) {
  ready_.push_back(completion);
  ++ready_pushed_;
}

void FaultyFabric::release_completion(std::map<TimedKey, Completion>::iterator held) {
  const Completion completion = held->second;
  held_completions_.erase(held);
  const Work& work = work_.at(completion.id);
  if (work.request.op == Opcode::receive) --endpoints_.at(work.endpoint).receives_delayed;
  complete(completion);
}

void FaultyFabric::release_due_completions() {
  while (!held_completions_.empty() && held_completions_.begin()->first.first <= now_) {
    release_completion(held_completions_.begin());
  }
}

std::size_t FaultyFabric::release_completions(std::size_t count) {
  std::vector<std::pair<std::uint64_t, TimePoint>> oldest;
  oldest.reserve(held_completions_.size());
  for (const auto& [key, completion] : held_completions_)
    oldest.emplace_back(key.second, key.first);
  std::sort(oldest.begin(), oldest.end());
  if (oldest.size() > count) oldest.resize(count);
  for (const auto& [order, due] : oldest) release_completion(held_completions_.find({due, order}));
  return oldest.size();
}

void FaultyFabric::release_completions_of(EndpointId endpoint) {
  std::vector<std::pair<std::uint64_t, TimePoint>> held;
  for (const auto& [key, completion] : held_completions_) {
    if (completion.endpoint == endpoint) held.emplace_back(key.second, key.first);
  }
  std::sort(held.begin(), held.end());
  for (const auto& [order, due] : held) release_completion(held_completions_.find({due, order}));
}

}  // namespace pawl::fabric
