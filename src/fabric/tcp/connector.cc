// SPDX-License-Identifier: Apache-2.0
// The connecting end: look the name up, try its addresses in turn, greet.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/tcp/fabric_impl.h"

namespace pawl::fabric::tcp {

Result<EndpointId> TcpFabric::connect(std::string_view address, const EndpointOptions& options,
                                      std::span<const std::byte> hello, TimePoint deadline) {
  if (hello.size() > kHelloBytesMax) {
    return Status(Code::too_large, "connect: the hello is larger than 4096 bytes");
  }
  Result<Target> target = parse_peer(address);
  if (!target.ok()) return target.status();
  const EndpointId id = add_endpoint();
  Endpoint& endpoint = *find(id);
  endpoint.set_options(options);
  endpoint.set_peer(std::string(address));
  auto attempt = std::make_unique<ConnectAttempt>();
  attempt->text = address;
  attempt->addresses = std::move(target->addresses);
  attempt->deadline = deadline;
  attempt->hello.assign(hello.begin(), hello.end());
  const bool known = !attempt->addresses.empty();
  endpoint.attempt = std::move(attempt);
  if (known) {
    endpoint.set_state(State::connecting);
    endpoint.set_deadline(core_.now);  // the next turn starts it, which knows the time
    return id;
  }
  endpoint.set_state(State::resolving);
  endpoint.set_deadline(deadline);
  if (Status asked = resolver_.ask(id.value, target->host, target->port); !asked.ok()) {
    endpoint.close_silently();
    return asked;
  }
  return id;
}

void TcpFabric::take_answers() {
  Resolver::Answer answer;
  while (resolver_.take(answer)) {
    Endpoint* const endpoint = find(EndpointId{answer.id});
    if (endpoint == nullptr || endpoint->state() != State::resolving) continue;
    ConnectAttempt& attempt = *endpoint->attempt;
    if (answer.addresses.empty()) {
      attempt.last_error = "the name cannot be resolved: " + answer.error;
      give_up(*endpoint, nullptr);
      continue;
    }
    attempt.addresses = std::move(answer.addresses);
    endpoint->set_state(State::connecting);
    start_attempt(*endpoint);
  }
}

void TcpFabric::give_up(Endpoint& endpoint, const char* why) {
  const ConnectAttempt& attempt = *endpoint.attempt;
  if (endpoint.state() == State::resolving) resolver_.forget(endpoint.id().value);
  std::string text = "cannot connect to " + attempt.text + ": ";
  if (why != nullptr) text += why;
  if (why != nullptr && !attempt.last_error.empty()) text += ", before that ";
  text += attempt.last_error;
  const bool late = core_.now >= attempt.deadline;
  endpoint.connect_failed(
      Status::with_detail(late ? Code::deadline : Code::unavailable, std::move(text)));
}

void TcpFabric::address_failed(Endpoint& endpoint, const SocketAddress& address,
                               const std::string& why) {
  ConnectAttempt& attempt = *endpoint.attempt;
  const std::string text = format_address(address);
  attempt.last_error = text == attempt.text ? why : text + ": " + why;
}

void TcpFabric::attempt_timed_out(Endpoint& endpoint) {
  const ConnectAttempt& attempt = *endpoint.attempt;
  if (endpoint.fd() >= 0) {
    address_failed(endpoint, attempt.addresses[attempt.next - 1], "no answer in time");
    endpoint.set_socket({});
  }
  start_attempt(endpoint);
}

/// Tries the addresses that are left until one is under way. Each gets an equal share of the time
/// that is left, so that one that does not answer leaves time for the others.
void TcpFabric::start_attempt(Endpoint& endpoint) {
  ConnectAttempt& attempt = *endpoint.attempt;
  while (endpoint.state() == State::connecting) {
    if (core_.now >= attempt.deadline) return give_up(endpoint, "no connection in time");
    if (attempt.next == attempt.addresses.size()) return give_up(endpoint, nullptr);
    const auto left = static_cast<std::int64_t>(attempt.addresses.size() - attempt.next);
    const SocketAddress& address = attempt.addresses[attempt.next++];
    endpoint.set_deadline(core_.now + (attempt.deadline - core_.now) / left);
    if (try_address(endpoint, address)) return;
    endpoint.set_socket({});
  }
}

/// True if the connection is under way, or will be tried again.
bool TcpFabric::try_address(Endpoint& endpoint, const SocketAddress& address) {
  UniqueFd fd = stream_socket(address.family());
  if (!fd) {
    address_failed(endpoint, address, "socket: " + errno_text(errno));
    return false;
  }
  int error = ::connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == EAGAIN && address.family() == AF_UNIX) {
    address_failed(endpoint, address, "its listen backlog is full");
    --endpoint.attempt->next;
    endpoint.set_deadline(std::min(core_.now + kUnixConnectRetry, endpoint.attempt->deadline));
    return true;
  }
  if (error == EINPROGRESS || error == EINTR) error = 0;
  if (error != 0) {
    address_failed(endpoint, address, errno_text(error));
    return false;
  }
  const int number = fd.get();
  endpoint.set_socket(std::move(fd));
  if (Status watched = watch(number, endpoint.id().value); !watched.ok()) {
    address_failed(endpoint, address, std::string(watched.what()));
    return false;
  }
  return true;
}

void TcpFabric::connect_turn(Endpoint& endpoint) {
  if (endpoint.fd() < 0 || (!endpoint.writable() && !endpoint.hangup())) return;
  ConnectAttempt& attempt = *endpoint.attempt;
  const SocketAddress address = attempt.addresses[attempt.next - 1];
  int error = take_socket_error(endpoint.fd());
  if (error == 0 && connected_to_itself(endpoint.fd())) error = ECONNREFUSED;
  if (error != 0) {
    address_failed(endpoint, address, errno_text(error));
    endpoint.set_socket({});
    return start_attempt(endpoint);
  }
  tune_connection(endpoint.fd(), core_.options.keep_alive);
  const std::string text = format_address(address);
  endpoint.set_peer(attempt.text == text ? text : attempt.text + " (" + text + ")");
  endpoint.set_state(State::greeting);
  endpoint.set_deadline(attempt.deadline);
  endpoint.send_greeting(GreetingKind::connect, attempt.hello);
  greeting_turn(endpoint);
}

void TcpFabric::greeting_turn(Endpoint& endpoint) {
  endpoint.send_turn();
  Code code = Code::unavailable;
  std::string why;
  switch (endpoint.read_greeting(code, why)) {
    case Endpoint::GreetingProgress::incomplete:
      return;
    case Endpoint::GreetingProgress::failed:
      endpoint.connect_failed(Status::with_detail(
          code, "cannot connect to " + endpoint.peer() + ": " + why + " during the handshake"));
      return;
    case Endpoint::GreetingProgress::complete:
      break;
  }
  const Greeting greeting = endpoint.greeting_input->greeting;
  std::vector<std::byte> hello = std::move(endpoint.greeting_input->hello);
  if (greeting.kind == GreetingKind::accept) {
    return endpoint.become_ready(greeting.limits, std::move(hello));
  }
  const bool rejected = greeting.kind == GreetingKind::reject;
  endpoint.connect_failed(
      Status::with_detail(rejected ? Code::unavailable : Code::protocol_error,
                          endpoint.peer() + (rejected ? " rejected the connection"
                                                      : " answered with a greeting of its own")),
      std::move(hello));
}

}  // namespace pawl::fabric::tcp
