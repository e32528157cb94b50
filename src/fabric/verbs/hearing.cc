// SPDX-License-Identifier: Apache-2.0
// What the bootstrap connection says, from the first word to the news that the peer's end is over.
#include <string>
#include <utility>

#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {
namespace {

const char* reason_text(EndReason reason) {
  switch (reason) {
    case EndReason::closed:
      return "the peer closed its end, or took it to ERR";
    case EndReason::failed:
      return "work failed at the peer's end, which went to ERR";
    case EndReason::hung_up:
      return "the peer lost the bootstrap connection";
  }
  return "the peer's end is over";
}

}  // namespace

void VerbsFabric::bootstrap_event(Endpoint& endpoint) {
  if (endpoint.state == State::connecting) return socket_connected(endpoint);
  if (endpoint.bootstrap.wants_to_send()) {
    endpoint.bootstrap.send();
    watch_bootstrap(endpoint);
  }
  hear(endpoint);
}

void VerbsFabric::hear(Endpoint& endpoint) {
  while (endpoint.bootstrap.fd() >= 0) {
    Greeting greeting;
    std::vector<std::byte> hello;
    std::string why;
    switch (endpoint.bootstrap.hear(greeting, hello, why)) {
      case Bootstrap::Heard::nothing:
        return;
      case Bootstrap::Heard::greeting:
        heard(endpoint, greeting, std::move(hello));
        break;
      case Bootstrap::Heard::gone:
        return peer_gone(endpoint, Code::unavailable, why);
      case Bootstrap::Heard::nonsense:
        return peer_gone(endpoint, Code::protocol_error, why);
    }
  }
}

void VerbsFabric::heard(Endpoint& endpoint, const Greeting& greeting,
                        std::vector<std::byte> hello) {
  const State state = endpoint.state;
  const GreetingKind kind = greeting.kind;
  if (kind == GreetingKind::request && state == State::incoming) {
    endpoint.theirs = greeting;
    return requested(endpoint, std::move(hello));
  }
  const bool known = state == State::greeting || state == State::accepting || state == State::ready;
  if (known && greeting.attempt != endpoint.own.attempt) {
    return peer_gone(endpoint, Code::protocol_error, "its word belongs to another attempt");
  }
  if (kind == GreetingKind::accept && state == State::greeting) {
    endpoint.theirs = greeting;
    return accepted(endpoint, std::move(hello));
  }
  if (kind == GreetingKind::reject && state == State::greeting) {
    return connect_failed(endpoint, Code::unavailable, "it rejected the connection",
                          std::move(hello));
  }
  if (kind == GreetingKind::ready && !endpoint.confirmed &&
      (state == State::accepting || state == State::ready)) {
    endpoint.confirmed = true;
    // A message may have been faster, and have said the same.
    if (state == State::accepting) announce(endpoint, std::move(endpoint.hello));
    return;
  }
  if (kind == GreetingKind::end && known) {
    return peer_gone(endpoint, Code::unavailable, reason_text(greeting.reason));
  }
  peer_gone(endpoint, Code::protocol_error, "a word of its bootstrap came out of order");
}

void VerbsFabric::peer_gone(Endpoint& endpoint, Code code, const std::string& why) {
  switch (endpoint.state) {
    case State::incoming:
      return end_silently(endpoint);  // the application has not heard of it
    case State::greeting:
      return connect_failed(endpoint, code, why + " during the handshake");
    case State::asked:
    case State::accepting:
      return connect_failed(endpoint, code, "it gave up before it was connected: " + why);
    case State::ready:
      return hung_up(endpoint, why);
    case State::resolving:
    case State::connecting:
    case State::error:
      return endpoint.bootstrap.drop();
  }
}

/// Work in flight may end by itself, with its own reason: it gets a little time for that.
void VerbsFabric::hung_up(Endpoint& endpoint, const std::string& why) {
  endpoint.bootstrap.drop();
  endpoint.hung_up = true;
  endpoint.why_hung_up = why;
  set_deadline(endpoint, endpoint.sends.empty() ? now_ : now_ + kHangUpGrace);
}

void VerbsFabric::announce(Endpoint& endpoint, std::vector<std::byte> hello) {
  endpoint.state = State::ready;
  endpoint.deadline = TimePoint::never();
  Event event;
  event.kind = EventKind::connected;
  event.peer_address = endpoint.peer;
  event.hello = std::move(hello);
  push_event(endpoint, std::move(event));
}

void VerbsFabric::tell_end(Endpoint& endpoint, EndReason reason) {
  if (endpoint.bootstrap.fd() < 0) return;
  Greeting word = endpoint.own;
  word.kind = GreetingKind::end;
  word.reason = reason;
  endpoint.bootstrap.say(word, {});
  endpoint.bootstrap.send();  // what does not fit is said by the end of the stream
}

}  // namespace pawl::fabric::verbs
