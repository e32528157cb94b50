// SPDX-License-Identifier: Apache-2.0
// The handshake: each end sends one greeting with its limits and the application's hello.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

void Endpoint::set_options(const EndpointOptions& options) {
  options_ = options;
  options_.send_depth = std::clamp(options.send_depth, 1U, kSendDepthMax);
  options_.receive_depth = std::clamp(options.receive_depth, 1U, kReceiveDepthMax);
  options_.read_depth = std::clamp(options.read_depth, 1U, kReadDepthMax);
  receive_.depth = options_.receive_depth;  // receives that were posted before accept stay
  receive_.ring.reserve(receive_.depth, receive_.head, receive_.tail);
}

void Endpoint::send_greeting(GreetingKind kind, std::span<const std::byte> hello) {
  words_.resize(kGreetingBytes);
  words_sent_ = 0;
  Greeting greeting;
  greeting.kind = kind;
  greeting.hello_bytes = static_cast<std::uint16_t>(hello.size());
  greeting.limits = {.message_bytes_max = kMessageBytesMax,
                     .read_bytes_max = kReadBytesMax,
                     .read_depth = options_.read_depth,
                     .piece_bytes_max = kPieceBytesMax};
  encode_greeting(greeting, std::span(words_).first<kGreetingBytes>());
  words_.insert(words_.end(), hello.begin(), hello.end());
  writable_ = true;  // the first call finds out
  wake();
}

/// Reads exactly the greeting, never a byte of the frames behind it.
Endpoint::GreetingProgress Endpoint::read_greeting(Code& code, std::string& why) {
  if (!greeting_input) greeting_input = std::make_unique<GreetingInput>();
  GreetingInput& input = *greeting_input;
  while (readable_) {
    std::byte* const to = input.whole_head ? input.hello.data() : input.head.data();
    const std::size_t size = input.whole_head ? input.hello.size() : input.head.size();
    if (input.have < size) {
      const ssize_t n = ::recv(fd_.get(), to + input.have, size - input.have, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        readable_ = false;
        return GreetingProgress::incomplete;
      }
      if (n <= 0) {
        code = Code::unavailable;
        why = n < 0 ? errno_text(errno) : "the peer closed the connection";
        return GreetingProgress::failed;
      }
      ++core_.work_done;
      input.have += static_cast<std::size_t>(n);
      if (input.have < size) continue;
    }
    if (input.whole_head) return GreetingProgress::complete;
    if (const char* const wrong = decode_greeting(input.head, input.greeting)) {
      code = Code::protocol_error;
      why = wrong;
      return GreetingProgress::failed;
    }
    input.whole_head = true;
    input.have = 0;
    input.hello.resize(input.greeting.hello_bytes);
    if (input.hello.empty()) return GreetingProgress::complete;
  }
  return GreetingProgress::incomplete;
}

void Endpoint::become_ready(const Limits& peer, std::vector<std::byte> hello) {
  state_ = State::ready;
  deadline_ = TimePoint::never();
  attempt.reset();
  greeting_input.reset();
  peer_limits_ = peer;
  send_.depth = options_.send_depth;
  send_.ring.reserve(send_.depth, 0, 0);
  service_.depth = options_.read_depth;
  service_.ring.reserve(service_.depth, 0, 0);
  reads_.depth = std::min(options_.read_depth, peer.read_depth);
  reads_.ring.reserve(std::max(reads_.depth, 1U), 0, 0);
  if (options_.bulk) limit_unsent(fd_.get(), static_cast<int>(kPieceBytesMax));
  Event event;
  event.kind = EventKind::connected;
  event.endpoint = id_;
  event.peer_address = peer_;
  event.hello = std::move(hello);
  core_.events.push_back(std::move(event));
}

void Endpoint::announced() {
  announced_ = true;
  readable_ = true;  // frames may have come behind the greeting, which was read exactly
  wake();
}

}  // namespace pawl::fabric::tcp
