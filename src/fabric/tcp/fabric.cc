// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fabric/tcp/fabric_impl.h"

namespace pawl::fabric::tcp {

Result<std::unique_ptr<Fabric>> make_tcp_fabric(const TcpOptions& options) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Status::with_detail(
        Code::resource_exhausted,
        "the tcp fabric needs an epoll descriptor: " + errno_text(errno) + "; raise nofile",
        Ran::no, errno);
  }
  auto fabric = std::make_unique<TcpFabric>(options, std::move(epoll));
  if (Status status = fabric->start(); !status.ok()) return status;
  return std::unique_ptr<Fabric>(std::move(fabric));
}

TcpFabric::TcpFabric(const TcpOptions& options, UniqueFd epoll)
    : core_(options), epoll_(std::move(epoll)), resolver_(options.look_up) {
  capabilities_ = {.message_bytes_max = kMessageBytesMax,
                   .inline_bytes_max = kInlineBytesMax,
                   .send_segments_max = kSegmentsMax,
                   .receive_segments_max = kSegmentsMax,
                   .read_segments_max = kSegmentsMax,
                   .read_bytes_max = kReadBytesMax,
                   .read_depth_max = kReadDepthMax,
                   .send_depth_max = kSendDepthMax,
                   .receive_depth_max = kReceiveDepthMax,
                   .windows = options.windows};
}

TcpFabric::~TcpFabric() = default;

Status TcpFabric::start() { return watch(resolver_.event_fd(), kResolverTag); }

Status TcpFabric::watch(int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = tag;
  if (fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status::with_detail(Code::resource_exhausted, "epoll: " + errno_text(errno), Ran::no,
                             errno);
}

Endpoint* TcpFabric::find(EndpointId endpoint) {
  std::unique_ptr<Endpoint>* const found = endpoints_.find(endpoint.value);
  return found == nullptr ? nullptr : found->get();
}

EndpointId TcpFabric::add_endpoint() {
  const EndpointId id{endpoints_.insert(nullptr)};
  *endpoints_.find(id.value) = std::make_unique<Endpoint>(core_, id);
  return id;
}

// --- memory ----------------------------------------------------------------------------------

Result<MemoryHandle> TcpFabric::register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                                MemoryUse use) {
  return core_.memory.add(memory, kind, use);
}

Status TcpFabric::deregister_memory(MemoryHandle handle) { return core_.memory.remove(handle); }

void TcpFabric::close_group(PeerGroup group) { core_.memory.close_group(group); }

Result<RemoteAddress> TcpFabric::expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                                        std::uint64_t length) {
  return core_.memory.expose(group, memory, base, length);
}

Result<WindowId> TcpFabric::allocate_window() {
  if (capabilities_.windows == WindowSupport::none) {
    return Status(Code::unimplemented, "windows are switched off on this tcp fabric");
  }
  return core_.memory.allocate_window();
}

std::uint64_t TcpFabric::next_window_key(WindowId window) const {
  return core_.memory.next_window_key(window);
}

Status TcpFabric::free_window(WindowId window) { return core_.memory.free_window(window); }

// --- endpoints -------------------------------------------------------------------------------

void TcpFabric::set_error(EndpointId id) {
  if (Endpoint* const endpoint = find(id)) endpoint->set_error();
}

void TcpFabric::close(EndpointId id) {
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr) return;
  if (endpoint->state() == State::resolving) resolver_.forget(id.value);
  endpoint->close();
}

std::size_t TcpFabric::post(EndpointId id, std::span<const WorkRequest> chain, Status& why) {
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr) {
    why = Status(Code::failed_precondition, "post: the endpoint is closed");
    return 0;
  }
  return endpoint->post(chain, why);
}

// --- turns -----------------------------------------------------------------------------------

std::size_t TcpFabric::poll(TimePoint now, std::span<Completion> out) {
  core_.now = now;
  core_.receive_budget = kReceiveBytesPerTurn;
  fire_deadlines();
  ++core_.turn;
  // First what was posted since the last turn, so that it does not wait for the input. Nobody is
  // added to the list here: an endpoint wakes itself only, and is listed.
  for (std::size_t i = 0; i < core_.active.size(); ++i) {
    Endpoint* const endpoint = find(core_.active[i]);
    if (endpoint != nullptr && endpoint->state() == State::ready && endpoint->wants_to_send()) {
      endpoint->send_turn();
    }
  }
  take_system_events();
  accept_all();
  run_active();
  return collect(out);
}

void TcpFabric::take_system_events() {
  std::array<epoll_event, kEpollEventsPerTurn> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const std::uint64_t tag = event.data.u64;
    if (tag == kResolverTag) {
      take_answers();
    } else if ((tag & kListenerTag) != 0) {
      Listener* const listener = listeners_.find(tag & ~kListenerTag);
      if (listener == nullptr || listener->ready) continue;
      listener->ready = true;
      ready_listeners_.push_back(ListenerId{tag & ~kListenerTag});
    } else if (Endpoint* const endpoint = find(EndpointId{tag})) {
      endpoint->on_events((event.events & EPOLLIN) != 0, (event.events & EPOLLOUT) != 0,
                          (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
    }
  }
}

void TcpFabric::run_active() {
  turn_list_.swap(core_.active);
  std::size_t at = 0;
  for (; at < turn_list_.size() && core_.receive_budget != 0; ++at) {
    Endpoint* const endpoint = find(turn_list_[at]);
    if (endpoint == nullptr) continue;
    endpoint->listed.active = false;
    turn(*endpoint);
  }
  // Without budget the rest keeps its place in front of the next turn.
  turn_list_.erase(turn_list_.begin(), turn_list_.begin() + static_cast<std::ptrdiff_t>(at));
  turn_list_.insert(turn_list_.end(), core_.active.begin(), core_.active.end());
  turn_list_.swap(core_.active);
  turn_list_.clear();
}

void TcpFabric::turn(Endpoint& endpoint) {
  switch (endpoint.state()) {
    case State::resolving:
      return;
    case State::connecting:
      return connect_turn(endpoint);
    case State::greeting:
      return greeting_turn(endpoint);
    case State::incoming:
    case State::asked:
      return incoming_turn(endpoint);
    case State::error:
    case State::closing:
      return endpoint.linger_turn();
    case State::ready:
      break;
  }
  if (endpoint.wants_to_receive()) endpoint.receive_turn();
  // An acknowledgement waits for the next turn, when an answer may travel with it.
  if (endpoint.wants_to_send() && !endpoint.only_acknowledges() && !endpoint.sent_this_turn()) {
    endpoint.send_turn();
  }
  if (endpoint.state() == State::ready &&
      (endpoint.wants_to_send() || endpoint.wants_to_receive())) {
    endpoint.wake();
  }
}

void TcpFabric::fire_deadlines() {
  if (core_.now < core_.next_deadline) return;
  core_.next_deadline = TimePoint::never();
  timed_list_.swap(core_.timed);
  for (const EndpointId id : timed_list_) {
    Endpoint* const endpoint = find(id);
    if (endpoint == nullptr) continue;
    endpoint->listed.timed = false;
    const TimePoint deadline = endpoint->deadline();
    if (deadline == TimePoint::never()) continue;
    if (deadline > core_.now) {
      endpoint->set_deadline(deadline);
    } else {
      deadline_passed(*endpoint);
    }
  }
  timed_list_.clear();
  retry_listeners();
}

void TcpFabric::deadline_passed(Endpoint& endpoint) {
  endpoint.set_deadline(TimePoint::never());
  switch (endpoint.state()) {
    case State::resolving:
    case State::greeting:
      return give_up(endpoint, "no answer in time");
    case State::connecting:
      return attempt_timed_out(endpoint);
    case State::incoming:
      return drop_handshake(endpoint);
    case State::error:
    case State::closing:
      return endpoint.stop_lingering();
    case State::asked:
    case State::ready:
      return;
  }
}

// --- completions and events ------------------------------------------------------------------

std::size_t TcpFabric::collect(std::span<Completion> out) {
  std::size_t n = 0;
  for (std::size_t left = core_.completing.size(); left != 0; --left) {
    const EndpointId id = core_.completing.front();
    core_.completing.pop_front();
    Endpoint* const endpoint = find(id);
    if (endpoint == nullptr) continue;
    endpoint->listed.completing = false;
    n += endpoint->take_completions(out.subspan(n));
    Event last;
    bool has_last = false;
    if (endpoint->finished(last, has_last)) {
      if (has_last) core_.events.push_back(std::move(last));
      endpoints_.erase(id.value);
    } else if (endpoint->has_completions()) {
      endpoint->complete_soon();  // behind the others
      if (n == out.size()) break;
    }
  }
  return n;
}

bool TcpFabric::poll_event(Event& out) {
  if (core_.events.empty()) return false;
  out = std::move(core_.events.front());
  core_.events.pop_front();
  if (out.kind == EventKind::connected) {
    if (Endpoint* const endpoint = find(out.endpoint)) endpoint->announced();
  }
  return true;
}

TimePoint TcpFabric::next_event_time() const { return core_.next_deadline; }

bool TcpFabric::arm() {
  // What waits for a socket is in epoll's hands, whose descriptor is readable as soon as one of
  // them has something. What waits for a turn is in these lists.
  return core_.active.empty() && core_.completing.empty() && core_.events.empty() &&
         ready_listeners_.empty() && core_.next_deadline > core_.now;
}

Fabric::Resources TcpFabric::resources() const {
  const MemoryTable::Counts counts = core_.memory.counts();
  return {.endpoints = endpoints_.size(),
          .listeners = listeners_.size(),
          .keys = counts.keys,
          .windows = counts.windows,
          .registrations = counts.registrations,
          .work_requests = core_.work_requests};
}

}  // namespace pawl::fabric::tcp
