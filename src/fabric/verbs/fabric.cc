// SPDX-License-Identifier: Apache-2.0
// Turns, deadlines, events, memory.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fabric/socket/socket.h"
#include "fabric/verbs/fabric_impl.h"
#include "fabric/verbs/tags.h"

namespace pawl::fabric::verbs {

VerbsFabric::VerbsFabric(std::unique_ptr<Device> device, UniqueFd epoll, UniqueFd wake)
    : device_(std::move(device)),
      registrar_name_("verbs:" + device_->name()),
      regions_(*device_),
      windows_(*device_),
      queues_(*device_),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)) {}

// All to ERR, then the windows, since a queue pair under a bound one may take a minute to go.
VerbsFabric::~VerbsFabric() {
  endpoints_.for_each([this](std::uint64_t, std::unique_ptr<Endpoint>& endpoint) {
    endpoint->qp.to_error(*device_);
  });
  windows_.free_all();
  take_device_events();
  endpoints_.for_each([this](std::uint64_t, std::unique_ptr<Endpoint>& endpoint) {
    static_cast<void>(endpoint->qp.destroy(*device_));
  });
}

Status VerbsFabric::start() {
  const std::array<std::pair<int, std::uint64_t>, 4> all = {
      {{resolver_.event_fd(), kResolverTag},
       {wake_.get(), kWakeTag},
       {device_->channel()->fd, kChannelTag},
       {device_->context()->async_fd, kDeviceTag}}};
  for (const auto& [fd, tag] : all) {
    if (Status watched = watch(fd, tag); !watched.ok()) return watched;
  }
  return {};
}

Status VerbsFabric::watch(int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status::with_detail(
      Code::resource_exhausted,
      "the verbs fabric cannot watch a descriptor: epoll: " + errno_text(errno) + "; raise nofile",
      Ran::no, errno);
}

void VerbsFabric::watch_bootstrap(Endpoint& endpoint) {
  const int fd = endpoint.bootstrap.fd();
  if (fd < 0) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (endpoint.state == State::connecting || endpoint.bootstrap.wants_to_send()) {
    event.events |= EPOLLOUT;
  }
  event.data.u64 = endpoint.id.value;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return;
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event));
}

// --- endpoints -------------------------------------------------------------------------------

Endpoint* VerbsFabric::find_any(EndpointId endpoint) {
  std::unique_ptr<Endpoint>* const found = endpoints_.find(endpoint.value);
  return found == nullptr ? nullptr : found->get();
}

Endpoint* VerbsFabric::find(EndpointId id) {
  Endpoint* const endpoint = find_any(id);
  return endpoint == nullptr || endpoint->closing ? nullptr : endpoint;
}

Result<Endpoint*> VerbsFabric::add_endpoint(State state) {
  if (dead_) return Status(Code::unavailable, "the RDMA device failed; make a new node");
  if (endpoints_.size() == kEndpointsMax) {
    return Status(Code::resource_exhausted, "a verbs fabric has at most 1048576 endpoints");
  }
  const EndpointId id{endpoints_.insert(std::make_unique<Endpoint>())};
  Endpoint* const endpoint = find_any(id);
  endpoint->id = id;
  endpoint->state = state;
  return endpoint;
}

void VerbsFabric::erase(EndpointId endpoint) { endpoints_.erase(endpoint.value); }

void VerbsFabric::set_deadline(Endpoint& endpoint, TimePoint deadline) {
  endpoint.deadline = deadline;
  next_deadline_ = std::min(next_deadline_, deadline);
}

void VerbsFabric::fire_deadlines() {
  if (now_ < next_deadline_) return;
  next_deadline_ = TimePoint::never();
  std::vector<EndpointId> due;
  endpoints_.for_each([&](std::uint64_t id, const std::unique_ptr<Endpoint>& endpoint) {
    if (endpoint->deadline <= now_) {
      due.push_back(EndpointId{id});
    } else {
      next_deadline_ = std::min(next_deadline_, endpoint->deadline);
    }
  });
  for (const EndpointId id : due) {
    Endpoint* const endpoint = find_any(id);
    if (endpoint != nullptr && endpoint->deadline <= now_) deadline_passed(*endpoint);
  }
  if (accept_retry_ <= now_) resume_listeners();
  next_deadline_ = std::min(next_deadline_, accept_retry_);
}

void VerbsFabric::deadline_passed(Endpoint& endpoint) {
  endpoint.deadline = TimePoint::never();
  switch (endpoint.state) {
    case State::resolving:
    case State::greeting:
      return connect_failed(endpoint, Code::deadline, "no answer in time");
    case State::connecting:
      return attempt_timed_out(endpoint);
    case State::incoming:
      return end_silently(endpoint);
    case State::accepting:
      return connect_failed(endpoint, Code::unavailable, "it did not confirm the connection");
    case State::ready:
      if (!endpoint.hung_up) return;
      poll_queues(SIZE_MAX);  // what came before the end counts
      return fail(endpoint, EndReason::hung_up,
                  Status::with_detail(Code::connection_lost,
                                      endpoint.peer + ": " + endpoint.why_hung_up, Ran::unknown));
    case State::error:
      endpoint.drain_over = true;
      return;
    case State::asked:
      return;
  }
}

// --- turns -----------------------------------------------------------------------------------

std::size_t VerbsFabric::poll(TimePoint now, std::span<Completion> out) {
  now_ = now;
  fire_deadlines();
  poll_queues(out.size());
  if (armed_ || now_ >= next_look_) look();
  advance_ending();
  return ready_.take(out);
}

void VerbsFabric::look() {
  next_look_ = now_ + kLookEvery;
  if (armed_) queues_.take_events();
  armed_ = false;
  std::array<epoll_event, kSystemEventsPerTurn> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), kSystemEventsPerTurn, 0);
  if (n == kSystemEventsPerTurn) next_look_ = now_;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const std::uint64_t tag = event.data.u64;
    if (tag == kChannelTag) continue;  // the queues are polled in any case
    ++work_done_;
    if (tag == kDeviceTag) {
      take_device_events();
    } else if (tag == kResolverTag) {
      take_answers();
    } else if (tag == kWakeTag) {
      std::uint64_t count = 0;
      static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    } else if ((tag & kListenerTag) != 0) {
      Listener* const listener = listeners_.find(tag & ~kListenerTag);
      if (listener != nullptr) accept_from(ListenerId{tag & ~kListenerTag}, *listener);
    } else if (Endpoint* const endpoint = find_any(EndpointId{tag})) {
      bootstrap_event(*endpoint);
    }
  }
}

bool VerbsFabric::arm() {
  const auto quiet = [this] { return ready_.empty() && events_.empty() && next_deadline_ > now_; };
  if (!quiet()) return false;
  // The queues of a device that is gone say nothing any more, and cannot be asked to.
  if (Status armed = dead_ ? Status() : queues_.arm(); !armed.ok()) {
    device_failed(std::string(armed.what()));
    return false;
  }
  armed_ = true;
  // What came before the request raises no event.
  return poll_queues(kCompletionsAtOnce) == 0 && quiet();
}

// --- events ----------------------------------------------------------------------------------

void VerbsFabric::push_event(Endpoint& endpoint, Event event) {
  event.endpoint = endpoint.id;
  events_.push_back(std::move(event));
}

bool VerbsFabric::poll_event(Event& out) {
  while (!events_.empty()) {
    out = std::move(events_.front());
    events_.pop_front();
    Endpoint* const endpoint = find_any(out.endpoint);
    if (endpoint == nullptr) return true;
    const bool about_life = out.kind == EventKind::connected || out.kind == EventKind::failed;
    if (endpoint->abandoned && about_life) continue;  // closed meanwhile: only the end counts
    if (out.kind == EventKind::connected) {
      endpoint->announced = true;
      for (const Completion& completion : endpoint->held) ready_.push(completion);
      endpoint->held.clear();
      if (endpoint->held_failure) push_event(*endpoint, std::move(*endpoint->held_failure));
      endpoint->held_failure.reset();
    }
    return true;
  }
  return false;
}

Fabric::Resources VerbsFabric::resources() const {
  const Regions::Counts regions = regions_.counts();
  return {.endpoints = endpoints_.size(),
          .listeners = listeners_.size(),
          .keys = regions.keys,
          .windows = windows_.count(),
          .registrations = regions.registrations,
          .work_requests = work_requests_};
}

// --- memory ----------------------------------------------------------------------------------

Result<MemoryHandle> VerbsFabric::register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                                  MemoryUse use) {
  return regions_.add(memory, kind, use);
}

Status VerbsFabric::deregister_memory(MemoryHandle handle) { return regions_.remove(handle); }

Result<RemoteAddress> VerbsFabric::expose(PeerGroup, MemoryHandle memory, std::byte* base,
                                          std::uint64_t length) {
  return regions_.expose(memory, base, length);
}

Result<WindowId> VerbsFabric::allocate_window() {
  if (capabilities().windows == WindowSupport::none) {
    return Status::with_detail(Code::unimplemented, device_->name() + " has no type-2 windows");
  }
  return windows_.allocate();
}

std::uint64_t VerbsFabric::next_window_key(WindowId window) const {
  return windows_.next_key(window);
}

Status VerbsFabric::free_window(WindowId window) {
  Status freed = windows_.free(window);
  // An endpoint may have waited for it, and its poller may sleep.
  const std::uint64_t one = 1;
  if (freed.ok()) static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  return freed;
}

}  // namespace pawl::fabric::verbs
