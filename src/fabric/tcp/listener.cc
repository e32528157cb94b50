// SPDX-License-Identifier: Apache-2.0
// The accepting end: sockets, half-open handshakes and their bounds, and the application's answer.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/tcp/fabric_impl.h"

namespace pawl::fabric::tcp {
namespace {

Status listen_error(std::string_view address, const char* call, int error) {
  std::string text =
      "cannot listen on " + std::string(address) + ": " + call + ": " + errno_text(error);
  Code code = Code::unavailable;
  switch (error) {
    case EADDRINUSE:
      code = Code::already_exists;
      text += "; another listener is there, or take port 0";
      break;
    case EADDRNOTAVAIL:
      code = Code::invalid_argument;
      text += "; no interface of this machine has the address";
      break;
    case EACCES:
      code = Code::permission_denied;
      text += "; take a port above 1023 or a folder that may be written";
      break;
    case EMFILE:
    case ENFILE:
      code = Code::resource_exhausted;
      text += "; raise nofile";
      break;
    default:
      break;
  }
  return Status::with_detail(code, std::move(text), Ran::no, error);
}

std::uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

/// True if a socket file is there whose listener is not.
bool is_stale(const SocketAddress& address, const std::string& path) {
  if (inode_of(path) == 0) return false;
  const UniqueFd probe = stream_socket(AF_UNIX);
  return probe && ::connect(probe.get(), address.get(), address.length) != 0 &&
         errno == ECONNREFUSED;
}

int bind_socket(int fd, const SocketAddress& address) {
  const int one = 1;
  const int zero = 0;
  if (address.family() != AF_UNIX) {
    static_cast<void>(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
  }
  if (address.family() == AF_INET6) {  // [::] takes IPv4 as well
    static_cast<void>(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero));
  }
  if (::bind(fd, address.get(), address.length) == 0) return 0;
  const int error = errno;
  const std::string path = unix_path(address);
  if (error != EADDRINUSE || path.empty() || !is_stale(address, path)) return error;
  static_cast<void>(::unlink(path.c_str()));  // left behind by a process that died
  return ::bind(fd, address.get(), address.length) == 0 ? 0 : errno;
}

std::string peer_text(int fd, const SocketAddress& address, const std::string& listener) {
  if (address.family() != AF_UNIX) return format_address(address);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return listener;
  return listener + " (process " + std::to_string(peer.pid) + ", user " + std::to_string(peer.uid) +
         ")";
}

}  // namespace

// --- listeners -------------------------------------------------------------------------------

Result<ListenerId> TcpFabric::listen(std::string_view text) {
  Result<Target> target = parse_target(text);
  if (!target.ok()) return target.status();
  if (target->addresses.empty()) {
    return Status::with_detail(Code::invalid_argument,
                               "cannot listen on the name " + target->host +
                                   "; write an address of this machine, or 0.0.0.0 or [::]");
  }
  SocketAddress address = target->addresses.front();
  Listener listener;
  listener.fd = stream_socket(address.family());
  if (!listener.fd) return listen_error(text, "socket", errno);
  const int fd = listener.fd.get();
  if (const int error = bind_socket(fd, address); error != 0) {
    return listen_error(text, "bind", error);
  }
  listener.path = unix_path(address);
  if (!listener.path.empty()) listener.inode = inode_of(listener.path);
  if (::listen(fd, kListenBacklog) != 0) return listen_error(text, "listen", errno);
  if (address.family() != AF_UNIX) {
    address.length = sizeof address.storage;
    if (getsockname(fd, address.get(), &address.length) != 0) {
      return listen_error(text, "getsockname", errno);
    }
  }
  listener.address = format_address(reachable_address(address));
  const ListenerId id{listeners_.insert(std::move(listener))};
  if (Status watched = watch(fd, id.value | kListenerTag); !watched.ok()) {
    close_listener(id);
    return watched;
  }
  return id;
}

std::string TcpFabric::listener_address(ListenerId id) const {
  const Listener* const listener = listeners_.find(id.value);
  return listener == nullptr ? std::string() : listener->address;
}

void TcpFabric::close_listener(ListenerId id) {
  const Listener* const listener = listeners_.find(id.value);
  if (listener == nullptr) return;
  // Another process may have taken the path meanwhile: only our own file is removed.
  if (!listener->path.empty() && listener->inode != 0 &&
      inode_of(listener->path) == listener->inode) {
    static_cast<void>(::unlink(listener->path.c_str()));
  }
  listeners_.erase(id.value);
}

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
        ::accept4(listener.fd.get(), peer.get(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
      "cannot accept connections on " + listener.address + ": " + errno_text(error) +
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
  endpoint.set_peer(peer_text(number, peer, listener.address));
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
