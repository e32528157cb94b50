// SPDX-License-Identifier: Apache-2.0
// The end of an endpoint: ERR, flushes, windows, the destruction of its queue pair, its last event.
#include <string>
#include <utility>

#include "fabric/verbs/call_error.h"
#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {

void VerbsFabric::set_error(EndpointId id) {
  Endpoint* const endpoint = find(id);
  if (endpoint != nullptr && endpoint->state == State::ready) {
    to_error(*endpoint, EndReason::closed);
  }
}

void VerbsFabric::close(EndpointId id) {
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr) return;
  endpoint->abandoned = true;
  end(*endpoint, EventKind::closed, {});
}

void VerbsFabric::to_error(Endpoint& endpoint, EndReason reason) {
  if (endpoint.state == State::error) return;
  const bool connected = endpoint.state == State::ready || endpoint.state == State::accepting;
  if (endpoint.state == State::incoming) --half_open_;
  if (endpoint.state == State::resolving) resolver_.forget(endpoint.id.value);
  endpoint.state = State::error;
  endpoint.qp.to_error(*device_);
  windows_.endpoint_failed(endpoint.id);
  if (connected && !endpoint.sends.empty()) post_marker(endpoint);
  if (connected) tell_end(endpoint, reason);
  endpoint.bootstrap.drop();
  // Nothing can arrive at a queue pair that was never connected, and not all devices flush it.
  endpoint.drain_over = !connected || dead_;
  set_deadline(endpoint, endpoint.drain_over ? TimePoint::never() : now_ + kDrainMax);
  list_ending(endpoint);
}

/// Silent work that is done leaves no trace at the device; the flush of a request behind it does.
/// It is empty, and never sent: the queue pair is in ERR.
void VerbsFabric::post_marker(Endpoint& endpoint) {
  ibv_send_wr wr{};
  wr.wr_id = WorkName::of(endpoint.id, WorkQueue::send, endpoint.sends.next()).packed();
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (device_->calls().post_send(endpoint.qp.get(), &wr, &bad) != 0) return;
  endpoint.sends.push({.id = 0, .window = {}, .op = Opcode::send, .marker = true});
}

/// To ERR by itself.
void VerbsFabric::fail(Endpoint& endpoint, EndReason reason, Status why) {
  if (endpoint.state == State::error) return;
  if (endpoint.state == State::incoming) return end_silently(endpoint);
  if (endpoint.state != State::ready) {
    return connect_failed(endpoint, Code::unavailable, std::string(why.what()));
  }
  to_error(endpoint, reason);
  Event event;
  event.kind = EventKind::failed;
  event.status = std::move(why);
  if (endpoint.announced) {
    push_event(endpoint, std::move(event));
  } else {
    endpoint.held_failure = std::make_unique<Event>(std::move(event));
  }
}

/// `kind` comes after the last completion. From here on the application's calls do not find it.
void VerbsFabric::end(Endpoint& endpoint, EventKind kind, Status status,
                      std::vector<std::byte> hello) {
  if (endpoint.closing) return;
  endpoint.closing = true;
  endpoint.last.kind = kind;
  endpoint.last.hello = std::move(hello);
  endpoint.last.status = std::move(status);
  to_error(endpoint, EndReason::closed);
  list_ending(endpoint);
}

void VerbsFabric::connect_failed(Endpoint& endpoint, Code code, const std::string& why,
                                 std::vector<std::byte> hello) {
  const bool connecting = endpoint.attempt != nullptr;
  std::string text = connecting ? "cannot connect to " + endpoint.attempt->text : endpoint.peer;
  text += ": " + why;
  if (connecting && code == Code::deadline && !endpoint.attempt->last_error.empty()) {
    text += ", before that " + endpoint.attempt->last_error;
  }
  end(endpoint, EventKind::connect_failed, Status::with_detail(code, std::move(text)),
      std::move(hello));
}

void VerbsFabric::end_silently(Endpoint& endpoint) {
  endpoint.silent = true;
  end(endpoint, EventKind::closed, {});
}

// --- what there is to wait for ---------------------------------------------------------------

void VerbsFabric::list_ending(Endpoint& endpoint) {
  if (endpoint.ending) return;
  endpoint.ending = true;
  ending_.push_back(endpoint.id);
}

void VerbsFabric::advance_ending() {
  std::size_t kept = 0;
  // Whatever happens here may add to the list, at its end.
  for (std::size_t i = 0; i < ending_.size(); ++i) {
    const EndpointId id = ending_[i];
    Endpoint* endpoint = find_any(id);
    if (endpoint == nullptr) continue;
    if (!advance(*endpoint)) {
      ending_[kept++] = id;
    } else if (endpoint = find_any(id); endpoint != nullptr) {
      endpoint->ending = false;
    }
  }
  ending_.resize(kept);
}

/// False while there is something to wait for.
bool VerbsFabric::advance(Endpoint& endpoint) {
  if (!endpoint.gone) {
    const bool drained = endpoint.sends.empty() && endpoint.receives.empty();
    if (!endpoint.closing && drained) return true;  // the rest comes with `close`
    if (!endpoint.drain_over && (!endpoint.closing || !drained || endpoint.undying)) return false;
    if (windows_.holds(endpoint.id)) return false;  // free_window wakes the poller
    if (!destroy(endpoint)) return false;
  }
  if (!endpoint.closing) return true;
  flush_rest(endpoint);
  if (endpoint.completions_until == 0) endpoint.completions_until = ready_.pushed() + 1;
  if (ready_.taken() + 1 < endpoint.completions_until) return false;
  if (!endpoint.silent) push_event(endpoint, std::move(endpoint.last));
  erase(endpoint.id);
  return true;
}

/// The return of the device's call is the proof that it has let go of all memory.
bool VerbsFabric::destroy(Endpoint& endpoint) {
  take_device_events();  // one that was not acknowledged would block the call
  poll_queues(SIZE_MAX);
  if (const int error = endpoint.qp.destroy(*device_); error != 0) {
    if (!endpoint.undying) {
      const Status why = call_error(Call::destroy_qp, error, "the queue pair of " + endpoint.peer);
      report(why.code(), std::string(why.what()) + "; its memory stays in use, tried again");
    }
    endpoint.undying = true;
    endpoint.drain_over = false;
    set_deadline(endpoint, now_ + kDestroyRetry);
    return false;
  }
  poll_queues(SIZE_MAX);  // the entries that it left are real, and nothing comes after them
  endpoint.gone = true;
  endpoint.deadline = TimePoint::never();
  if (endpoint.cq != nullptr) queues_.release(endpoint.cq, completion_entries(endpoint.options));
  endpoint.cq = nullptr;
  flush_rest(endpoint);
  return true;
}

}  // namespace pawl::fabric::verbs
