// SPDX-License-Identifier: Apache-2.0
// The connecting end: look the name up, try its addresses in turn, ask, and take the answer.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/random.h"
#include "fabric/socket/socket.h"
#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {
namespace {

void address_failed(ConnectAttempt& attempt, const SocketAddress& address, const std::string& why) {
  const std::string text = format_address(address);
  attempt.last_error = text == attempt.text ? why : text + ": " + why;
}

}  // namespace

Result<EndpointId> VerbsFabric::connect(std::string_view address, const EndpointOptions& options,
                                        std::span<const std::byte> hello, TimePoint deadline) {
  if (hello.size() > kHelloBytesMax) {
    return Status(Code::too_large, "connect: the hello is larger than 4096 bytes");
  }
  Result<Target> target = parse_peer(address);
  if (!target.ok()) return target.status();
  if (Status seen = look_at_port(); !seen.ok()) return seen;
  Result<Endpoint*> added = add_endpoint(State::connecting);
  if (!added.ok()) return added.status();
  Endpoint& endpoint = **added;
  const EndpointId id = endpoint.id;
  endpoint.peer = address;
  endpoint.source = device_->port().gids.front();
  if (Status made = make_queue_pair(endpoint, options); !made.ok()) {
    erase(id);
    return made;
  }
  endpoint.own.kind = GreetingKind::request;
  endpoint.own.attempt = random_u64();
  endpoint.attempt = std::make_unique<ConnectAttempt>();
  endpoint.attempt->text = address;
  endpoint.attempt->addresses = std::move(target->addresses);
  endpoint.attempt->deadline = deadline;
  endpoint.attempt->hello.assign(hello.begin(), hello.end());
  if (!endpoint.attempt->addresses.empty()) {
    set_deadline(endpoint, now_);  // the next turn starts it, which knows the time
    return id;
  }
  endpoint.state = State::resolving;
  set_deadline(endpoint, deadline);
  if (Status asked = resolver_.ask(id.value, target->host, target->port); !asked.ok()) {
    end_silently(endpoint);
    return asked;
  }
  return id;
}

void VerbsFabric::take_answers() {
  Resolver::Answer answer;
  while (resolver_.take(answer)) {
    Endpoint* const endpoint = find(EndpointId{answer.id});
    if (endpoint == nullptr || endpoint->state != State::resolving) continue;
    ConnectAttempt& attempt = *endpoint->attempt;
    if (answer.addresses.empty()) {
      connect_failed(*endpoint, Code::unavailable, "the name cannot be resolved: " + answer.error);
      continue;
    }
    attempt.addresses = std::move(answer.addresses);
    endpoint->state = State::connecting;
    start_attempt(*endpoint);
  }
}

/// Tries the addresses that are left until one is under way. Each gets an equal share of the time
/// that is left, so that one that does not answer leaves time for the others.
void VerbsFabric::start_attempt(Endpoint& endpoint) {
  ConnectAttempt& attempt = *endpoint.attempt;
  while (endpoint.state == State::connecting) {
    if (now_ >= attempt.deadline) {
      return connect_failed(endpoint, Code::deadline, "no connection in time");
    }
    if (attempt.next == attempt.addresses.size()) {
      return connect_failed(endpoint, Code::unavailable, attempt.last_error);
    }
    const auto left = static_cast<std::int64_t>(attempt.addresses.size() - attempt.next);
    const SocketAddress& address = attempt.addresses[attempt.next++];
    set_deadline(endpoint, now_ + (attempt.deadline - now_) / left);
    if (try_address(endpoint, address)) return;
    endpoint.bootstrap.drop();
  }
}

/// True if the connection is under way, or will be tried again.
bool VerbsFabric::try_address(Endpoint& endpoint, const SocketAddress& address) {
  ConnectAttempt& attempt = *endpoint.attempt;
  UniqueFd fd = stream_socket(address.family());
  if (!fd) {
    address_failed(attempt, address, "socket: " + errno_text(errno));
    return false;
  }
  int error = ::connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == EAGAIN && address.family() == AF_UNIX) {
    address_failed(attempt, address, "its listen backlog is full");
    --attempt.next;
    set_deadline(endpoint, std::min(now_ + kUnixConnectRetry, attempt.deadline));
    return true;
  }
  if (error == EINPROGRESS || error == EINTR) error = 0;
  if (error != 0) {
    address_failed(attempt, address, errno_text(error));
    return false;
  }
  endpoint.bootstrap.attach(std::move(fd));
  watch_bootstrap(endpoint);
  return true;
}

void VerbsFabric::attempt_timed_out(Endpoint& endpoint) {
  ConnectAttempt& attempt = *endpoint.attempt;
  if (endpoint.bootstrap.fd() >= 0) {
    address_failed(attempt, attempt.addresses[attempt.next - 1], "no answer in time");
    endpoint.bootstrap.drop();
  }
  start_attempt(endpoint);
}

void VerbsFabric::socket_connected(Endpoint& endpoint) {
  ConnectAttempt& attempt = *endpoint.attempt;
  const SocketAddress address = attempt.addresses[attempt.next - 1];
  const int fd = endpoint.bootstrap.fd();
  int error = take_socket_error(fd);
  if (error == 0 && connected_to_itself(fd)) error = ECONNREFUSED;
  if (error != 0) {
    address_failed(attempt, address, errno_text(error));
    endpoint.bootstrap.drop();
    return start_attempt(endpoint);
  }
  tune_connection(fd, {});
  const std::string text = format_address(address);
  if (attempt.text != text) endpoint.peer = attempt.text + " (" + text + ")";
  endpoint.state = State::greeting;
  set_deadline(endpoint, attempt.deadline);
  Greeting greeting = describe(*device_, endpoint.qp, endpoint.options, endpoint.source);
  greeting.kind = GreetingKind::request;
  greeting.attempt = endpoint.own.attempt;
  endpoint.own = greeting;
  endpoint.bootstrap.say(greeting, attempt.hello);
  endpoint.bootstrap.send();
  watch_bootstrap(endpoint);
}

void VerbsFabric::accepted(Endpoint& endpoint, std::vector<std::byte> hello) {
  if (Status reached = reach(endpoint); !reached.ok()) {
    return connect_failed(endpoint, reached.code(), std::string(reached.what()));
  }
  Greeting ready = endpoint.own;
  ready.kind = GreetingKind::ready;
  endpoint.bootstrap.say(ready, {});
  endpoint.bootstrap.send();
  watch_bootstrap(endpoint);
  endpoint.attempt.reset();
  endpoint.confirmed = true;
  announce(endpoint, std::move(hello));
}

}  // namespace pawl::fabric::verbs
