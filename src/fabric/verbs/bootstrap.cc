// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/bootstrap.h"

#include <sys/socket.h>

#include <cerrno>

#include "fabric/socket/socket.h"

namespace pawl::fabric::verbs {

void Bootstrap::attach(UniqueFd fd) {
  fd_ = std::move(fd);
  out_.clear();
  sent_ = have_ = 0;
  whole_head_ = false;
  hello_.clear();
}

void Bootstrap::say(const Greeting& greeting, std::span<const std::byte> hello) {
  std::array<std::byte, kGreetingBytes> head;
  Greeting whole = greeting;
  whole.hello_bytes = static_cast<std::uint16_t>(hello.size());
  encode_greeting(whole, head);
  out_.insert(out_.end(), head.begin(), head.end());
  out_.insert(out_.end(), hello.begin(), hello.end());
}

void Bootstrap::send() {
  while (wants_to_send()) {
    const ssize_t n =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    sent_ += static_cast<std::size_t>(n);
  }
  out_.clear();
  sent_ = 0;
}

Bootstrap::Heard Bootstrap::hear(Greeting& greeting, std::vector<std::byte>& hello,
                                 std::string& why) {
  for (;;) {
    std::byte* const to = whole_head_ ? hello_.data() : head_.data();
    const std::size_t size = whole_head_ ? hello_.size() : head_.size();
    if (have_ == size) {
      if (whole_head_) break;
      if (const char* const wrong = decode_greeting(head_, greeting_)) {
        why = wrong;
        return Heard::nonsense;
      }
      whole_head_ = true;
      have_ = 0;
      hello_.resize(greeting_.hello_bytes);
      continue;
    }
    const ssize_t n = ::recv(fd_.get(), to + have_, size - have_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return Heard::nothing;
    if (n <= 0) {
      why = n < 0 ? "the bootstrap connection broke: " + errno_text(errno)
                  : "the peer closed the bootstrap connection";
      return Heard::gone;
    }
    have_ += static_cast<std::size_t>(n);
  }
  greeting = greeting_;
  hello = std::move(hello_);
  hello_.clear();
  have_ = 0;
  whole_head_ = false;
  return Heard::greeting;
}

}  // namespace pawl::fabric::verbs
