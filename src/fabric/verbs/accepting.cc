// SPDX-License-Identifier: Apache-2.0
// The accepting end: listeners, requests and their bounds, and the application's answer.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/socket/socket.h"
#include "fabric/verbs/call_error.h"
#include "fabric/verbs/fabric_impl.h"
#include "fabric/verbs/tags.h"

namespace pawl::fabric::verbs {
namespace {

void watch_listener(int epoll, int fd, ListenerId id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id.value | kListenerTag;
  static_cast<void>(::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
}

}  // namespace

// --- listeners -------------------------------------------------------------------------------

Result<ListenerId> VerbsFabric::listen(std::string_view text) {
  Result<ListenSocket> socket = ListenSocket::open(text);
  if (!socket.ok()) return socket.status();
  Listener listener;
  listener.socket = *std::move(socket);
  const int fd = listener.socket.fd();
  const ListenerId id{listeners_.insert(std::move(listener))};
  if (Status watched = watch(fd, id.value | kListenerTag); !watched.ok()) {
    close_listener(id);
    return watched;
  }
  return id;
}

std::string VerbsFabric::listener_address(ListenerId id) const {
  const Listener* const listener = listeners_.find(id.value);
  return listener == nullptr ? std::string() : listener->socket.address();
}

void VerbsFabric::close_listener(ListenerId id) { listeners_.erase(id.value); }

void VerbsFabric::accept_from(ListenerId id, Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (dead_ || half_open_ >= kHalfOpenMax || events_.size() >= kUnannouncedEventsMax) {
      return pause(id, listener);
    }
    SocketAddress peer;
    peer.length = sizeof peer.storage;
    UniqueFd fd(
        ::accept4(listener.socket.fd(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      descriptors_short_ = false;
      adopt(id, listener, std::move(fd), peer);
      continue;
    }
    const int error = errno;
    if (error == EAGAIN) return;
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) continue;
    if (!descriptors_short_) {  // said once, until it is over
      descriptors_short_ = true;
      report(Code::resource_exhausted, "cannot accept connections on " + listener.socket.address() +
                                           ": " + errno_text(error) +
                                           "; raise nofile or close some; tried again each 100 ms");
    }
    return pause(id, listener);
  }
}

void VerbsFabric::pause(ListenerId id, Listener& listener) {
  listener.paused = true;
  watch_listener(epoll_.get(), listener.socket.fd(), id, 0);
  accept_retry_ = std::min(accept_retry_, now_ + kAcceptRetry);
  next_deadline_ = std::min(next_deadline_, accept_retry_);
}

void VerbsFabric::resume_listeners() {
  accept_retry_ = TimePoint::never();
  listeners_.for_each([this](std::uint64_t id, Listener& listener) {
    if (!listener.paused) return;
    listener.paused = false;
    watch_listener(epoll_.get(), listener.socket.fd(), ListenerId{id}, EPOLLIN);
  });
}

void VerbsFabric::adopt(ListenerId id, const Listener& listener, UniqueFd fd,
                        const SocketAddress& peer) {
  Result<Endpoint*> added = add_endpoint(State::incoming);
  if (!added.ok()) return;  // the peer sees its socket closed
  Endpoint& endpoint = **added;
  ++half_open_;
  endpoint.listener = id;
  endpoint.peer = peer_text(fd.get(), peer, listener.socket.address());
  tune_connection(fd.get(), {});
  endpoint.bootstrap.attach(std::move(fd));
  watch_bootstrap(endpoint);
  set_deadline(endpoint, now_ + kHandshakeDeadline);
}

void VerbsFabric::requested(Endpoint& endpoint, std::vector<std::byte> hello) {
  --half_open_;
  endpoint.state = State::asked;
  endpoint.deadline = TimePoint::never();
  endpoint.hello = std::move(hello);
  Event event;
  event.kind = EventKind::connect_request;
  event.listener = endpoint.listener;
  event.peer_address = endpoint.peer;
  event.hello = endpoint.hello;
  push_event(endpoint, std::move(event));
}

// --- the answer ------------------------------------------------------------------------------

Status VerbsFabric::accept(EndpointId id, const EndpointOptions& options,
                           std::span<const std::byte> hello) {
  if (hello.size() > kHelloBytesMax) {
    return Status(Code::too_large, "accept: the hello is larger than 4096 bytes");
  }
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != State::asked) {
    return Status(Code::not_found, "accept: no such request; the peer gave up, or it was answered");
  }
  if (endpoint->early.size() > options.receive_depth) {
    return Status(Code::resource_exhausted, "accept: more receives are posted than receive_depth");
  }
  if (Status seen = look_at_port(); !seen.ok()) return seen;
  const GidEntry* const source = entry_for_peer(device_->port(), endpoint->theirs.gid);
  endpoint->source = source != nullptr ? *source : device_->port().gids.front();
  if (Status made = make_queue_pair(*endpoint, options); !made.ok()) return made;
  Greeting answer = describe(*device_, endpoint->qp, endpoint->options, endpoint->source);
  answer.kind = GreetingKind::accept;
  answer.attempt = endpoint->theirs.attempt;
  endpoint->own = answer;
  Status status = give_early_receives(*endpoint);
  if (status.ok()) status = reach(*endpoint);
  if (!status.ok()) {
    drop_queue_pair(*endpoint);
    return status;
  }
  endpoint->early.clear();
  endpoint->state = State::accepting;
  set_deadline(*endpoint, now_ + kReadyDeadline);
  endpoint->bootstrap.say(answer, hello);
  endpoint->bootstrap.send();
  watch_bootstrap(*endpoint);
  return {};
}

void VerbsFabric::reject(EndpointId id, std::span<const std::byte> hello) {
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != State::asked) return;
  Greeting answer;
  answer.kind = GreetingKind::reject;
  answer.attempt = endpoint->theirs.attempt;
  endpoint->bootstrap.say(answer, hello.first(std::min(hello.size(), kHelloBytesMax)));
  endpoint->bootstrap.send();  // it fits into the buffer of a socket that said nothing yet
  end_silently(*endpoint);
}

// --- queue pairs -----------------------------------------------------------------------------

Status VerbsFabric::make_queue_pair(Endpoint& endpoint, const EndpointOptions& options) {
  if (dead_) return Status(Code::unavailable, "the RDMA device failed; make a new node");
  endpoint.options = clamp_options(*device_, options);
  const std::uint32_t entries = completion_entries(endpoint.options);
  Result<ibv_cq*> cq = queues_.reserve(entries);
  if (!cq.ok()) return cq.status();
  Status made = endpoint.qp.create(*device_, *cq, endpoint.options, endpoint.id.value);
  if (!made.ok()) {
    queues_.release(*cq, entries);
    return made;
  }
  endpoint.cq = *cq;
  endpoint.sends.reserve(endpoint.options.send_depth + kMarkers);
  endpoint.receives.reserve(endpoint.options.receive_depth);
  return {};
}

/// Of an endpoint that stays: its request can still be answered.
void VerbsFabric::drop_queue_pair(Endpoint& endpoint) {
  if (endpoint.qp.destroy(*device_) != 0) {
    return connect_failed(endpoint, Code::internal, "its queue pair cannot be destroyed");
  }
  queues_.release(endpoint.cq, completion_entries(endpoint.options));
  endpoint.cq = nullptr;
}

/// To RTS with what the peer said, if the two can reach each other at all.
Status VerbsFabric::reach(Endpoint& endpoint) {
  const Greeting& own = endpoint.own;
  const Greeting& theirs = endpoint.theirs;
  if (own.link_layer != theirs.link_layer) {
    return Status::with_detail(Code::unavailable,
                               endpoint.peer + ": one end is InfiniBand, the other is Ethernet; " +
                                   device_->name() + " cannot reach it");
  }
  if (device_->port().ethernet && family_of(own.gid) != family_of(theirs.gid)) {
    return Status::with_detail(
        Code::unavailable,
        endpoint.peer + ": its RoCE address is " + gid_text(theirs.gid) + ", ours on " +
            device_->name() + " is " + gid_text(own.gid) +
            "; give both ports an address of one family, or choose by gid_index");
  }
  Status connected =
      endpoint.qp.connect(*device_, endpoint.options, own, theirs, endpoint.source, endpoint.peer);
  if (!connected.ok()) port_changed_ = true;  // perhaps, and it did not say so
  return connected;
}

Status VerbsFabric::give_early_receives(Endpoint& endpoint) {
  std::uint64_t sequence = endpoint.receives.first();
  for (EarlyReceive& receive : endpoint.early) {
    ibv_recv_wr wr{};
    wr.wr_id = WorkName::of(endpoint.id, WorkQueue::receive, sequence++).packed();
    wr.sg_list = receive.segments.data();
    wr.num_sge = receive.count;
    ibv_recv_wr* bad = nullptr;
    if (const int error = device_->calls().post_recv(endpoint.qp.get(), &wr, &bad); error != 0) {
      return call_error(Call::post_recv, error, "a receive of " + endpoint.peer);
    }
  }
  return {};
}

}  // namespace pawl::fabric::verbs
