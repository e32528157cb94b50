// SPDX-License-Identifier: Apache-2.0
// The accepting end: sockets, half-open handshakes and their bounds, and the application's answer.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/tcp/fabric_impl.h"

namespace pawl::fabric::tcp {

// --- listeners -------------------------------------------------------------------------------

Result<ListenerId> TcpFabric::listen(std::string_view text) {
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

std::string TcpFabric::listener_address(ListenerId id) const {
  const Listener* const listener = listeners_.find(id.value);
  return listener == nullptr ? std::string() : listener->socket.address();
}

void TcpFabric::close_listener(ListenerId id) { listeners_.erase(id.value); }

// --- sockets ---------------------------------------------------------------------------------

void TcpFabric::accept_all() {
  for (std::size_t left = ready_listeners_.size(); left != 0; --left) {
    const ListenerId id = ready_listeners_.front();
    ready_listeners_.erase(ready_listeners_.begin());
    Listener* const listener = listeners_.find(id.value);
    if (listener != nullptr && accept_from(id, *listener)) ready_listeners_.push_back(id);
  }
}

/// True if more may wait.
bool TcpFabric::accept_from(ListenerId id, Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    TimePoint retry;
    if (!room_for_handshake(retry)) {
      retry_later(listener, retry);
      return false;
    }
    SocketAddress peer;
    peer.length = sizeof peer.storage;
    UniqueFd fd(
        ::accept4(listener.socket.fd(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      descriptors_short_ = false;
      ++core_.work_done;
      adopt(id, std::move(fd), peer, listener);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        listener.ready = false;
        return false;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        no_descriptor(listener, errno);
        retry_later(listener, core_.now + kAcceptRetry);
        return false;
      default:
        break;  // the connection died in the queue; the next one may be good
    }
  }
  return true;
}

void TcpFabric::retry_later(Listener& listener, TimePoint retry) {
  listener.retry = retry;
  core_.next_deadline = std::min(core_.next_deadline, retry);
}

void TcpFabric::retry_listeners() {
  listeners_.for_each([this](std::uint64_t id, Listener& listener) {
    if (listener.retry == TimePoint::never()) return;
    if (listener.retry <= core_.now) {
      listener.retry = TimePoint::never();
      ready_listeners_.push_back(ListenerId{id});
    } else {
      core_.next_deadline = std::min(core_.next_deadline, listener.retry);
    }
  });
}

void TcpFabric::no_descriptor(const Listener& listener, int error) {
  if (descriptors_short_) return;  // said once, until it is over
  descriptors_short_ = true;
  Event event;
  event.kind = EventKind::device;
  event.status = Status::with_detail(
      Code::resource_exhausted,
      "cannot accept connections on " + listener.socket.address() + ": " + errno_text(error) +
          "; existing connections go on; raise nofile or close some; tried again each 100 ms",
      Ran::no, error);
  core_.events.push_back(std::move(event));
}

/// False if too many handshakes are half open and none is old enough to be dropped for it.
bool TcpFabric::room_for_handshake(TimePoint& retry) {
  if (core_.events.size() >= kUnannouncedEventsMax) {
    retry = core_.now + kAcceptRetry;
    return false;
  }
  if (half_open_.size() < kHalfOpenMax) return true;
  retry = half_open_.front().since + kHandshakeEvictAge;
  if (retry > core_.now) return false;
  if (Endpoint* const oldest = find(half_open_.front().endpoint)) {
    drop_handshake(*oldest);
  } else {
    half_open_.pop_front();
  }
  return true;
}

void TcpFabric::adopt(ListenerId id, UniqueFd fd, const SocketAddress& peer,
                      const Listener& listener) {
  const int number = fd.get();
  const EndpointId endpoint_id = add_endpoint();
  Endpoint& endpoint = *find(endpoint_id);
  endpoint.set_state(State::incoming);
  endpoint.set_peer(peer_text(number, peer, listener.socket.address()));
  endpoint.listener = id;
  tune_connection(number, core_.options.keep_alive);
  endpoint.set_socket(std::move(fd));
  if (!watch(number, endpoint_id.value).ok()) return endpoint.close_silently();
  half_open_.push_back({.endpoint = endpoint_id, .since = core_.now});
  endpoint.set_deadline(core_.now + kHandshakeDeadline);
}

// --- handshakes ------------------------------------------------------------------------------

void TcpFabric::handshake_over(EndpointId endpoint) {
  std::erase_if(half_open_, [endpoint](const HalfOpen& half) { return half.endpoint == endpoint; });
  // Whoever waited for room may go on in the next turn.
  if (half_open_.size() + 1 == kHalfOpenMax) {
    listeners_.for_each([this](std::uint64_t, Listener& listener) {
      if (listener.retry != TimePoint::never()) retry_later(listener, core_.now);
    });
  }
}

void TcpFabric::drop_handshake(Endpoint& endpoint) {
  handshake_over(endpoint.id());
  endpoint.close_silently();
}

void TcpFabric::incoming_turn(Endpoint& endpoint) {
  if (endpoint.state() == State::asked) {
    if (endpoint.hangup()) {
      endpoint.connect_failed(Status::with_detail(
          Code::unavailable, endpoint.peer() + " gave up before it was accepted"));
    }
    return;
  }
  Code code = Code::unavailable;
  std::string why;
  const Endpoint::GreetingProgress progress = endpoint.read_greeting(code, why);
  if (progress == Endpoint::GreetingProgress::incomplete) return;
  const GreetingInput& input = *endpoint.greeting_input;
  if (progress == Endpoint::GreetingProgress::failed ||
      input.greeting.kind != GreetingKind::connect) {
    return drop_handshake(endpoint);
  }
  handshake_over(endpoint.id());
  endpoint.set_deadline(TimePoint::never());
  endpoint.set_state(State::asked);
  endpoint.set_options({});  // until accept says
  Event event;
  event.kind = EventKind::connect_request;
  event.endpoint = endpoint.id();
  event.listener = endpoint.listener;
  event.peer_address = endpoint.peer();
  event.hello = input.hello;
  core_.events.push_back(std::move(event));
}

Status TcpFabric::accept(EndpointId id, const EndpointOptions& options,
                         std::span<const std::byte> hello) {
  if (hello.size() > kHelloBytesMax) {
    return Status(Code::too_large, "accept: the hello is larger than 4096 bytes");
  }
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr || endpoint->state() != State::asked) {
    return Status(Code::not_found, "accept: no such request; the peer gave up, or it was answered");
  }
  if (endpoint->receives_posted() > options.receive_depth) {
    return Status(Code::resource_exhausted, "accept: more receives are posted than receive_depth");
  }
  endpoint->set_options(options);
  endpoint->send_greeting(GreetingKind::accept, hello);
  GreetingInput input = std::move(*endpoint->greeting_input);
  endpoint->become_ready(input.greeting.limits, std::move(input.hello));
  return {};
}

void TcpFabric::reject(EndpointId id, std::span<const std::byte> hello) {
  if (Endpoint* const endpoint = find(id)) endpoint->reject(hello);
}

}  // namespace pawl::fabric::tcp
