// SPDX-License-Identifier: Apache-2.0
#include "fabric/tcp/endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace pawl::fabric::tcp {

Status Endpoint::status(Code code, const std::string& text, int native) const {
  return Status::with_detail(code,
                             "tcp endpoint to " + (peer_.empty() ? "a peer" : peer_) + ": " + text,
                             Ran::unknown, native);
}

// --- turns -----------------------------------------------------------------------------------

void Endpoint::wake() {
  if (listed.active) return;
  listed.active = true;
  core_.active.push_back(id_);
}

void Endpoint::complete_soon() {
  if (listed.completing) return;
  listed.completing = true;
  core_.completing.push_back(id_);
}

void Endpoint::set_deadline(TimePoint deadline) {
  deadline_ = deadline;
  if (deadline == TimePoint::never()) return;
  core_.next_deadline = std::min(core_.next_deadline, deadline);
  if (listed.timed) return;
  listed.timed = true;
  core_.timed.push_back(id_);
}

void Endpoint::on_events(bool readable, bool writable, bool hangup) {
  readable_ = readable_ || readable || hangup;
  writable_ = writable_ || writable;
  hangup_ = hangup_ || hangup;
  wake();
}

// --- ERR -------------------------------------------------------------------------------------

void Endpoint::set_error() {
  if (state_ != State::ready || !announced_) return;
  flush();
  state_ = State::error;
  drop_socket();
}

void Endpoint::fail(Status why) {
  if (state_ != State::ready) return;
  flush();
  state_ = State::error;
  Event event;
  event.kind = EventKind::failed;
  event.endpoint = id_;
  event.status = std::move(why);
  core_.events.push_back(std::move(event));
  if (!lingering_) drop_socket();
}

void Endpoint::fail_with_words(Status why, std::span<const std::byte> words) {
  if (state_ != State::ready) return;
  // Behind the greeting, if that is still on its way, and the rest of the frame that the socket has
  // begun: so the peer can tell where these start.
  words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(words_sent_));
  words_sent_ = 0;
  const std::vector<std::byte> rest = rest_of_current();
  words_.insert(words_.end(), rest.begin(), rest.end());
  if (received_ != acknowledged_) {
    std::array<std::byte, kFrameBytes> frame;
    encode_frame({.type = FrameType::ack, .value = received_}, frame);
    words_.insert(words_.end(), frame.begin(), frame.end());
  }
  words_.insert(words_.end(), words.begin(), words.end());
  lingering_ = true;
  set_deadline(core_.now + kLinger);
  fail(std::move(why));
  wake();
}

void Endpoint::violation(const std::string& what) {
  fault(FaultCode::protocol, what,
        status(Code::protocol_error, "the peer broke the wire protocol: " + what));
}

void Endpoint::fault(FaultCode code, const std::string& text, Status why) {
  const std::size_t length = std::min(text.size(), kFaultDetailBytesMax);
  std::vector<std::byte> frame(kFrameBytes + length);
  encode_frame({.type = FrameType::fault,
                .status = static_cast<std::uint8_t>(code),
                .length = static_cast<std::uint32_t>(length)},
               std::span(frame).first<kFrameBytes>());
  std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length),
                 frame.begin() + kFrameBytes, [](char c) { return static_cast<std::byte>(c); });
  fail_with_words(std::move(why), frame);
}

void Endpoint::connection_ended(int error) {
  if (error == 0) return fail(status(Code::connection_lost, "the peer closed the connection"));
  // Silence is what a device reports as retries exceeded.
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    fail_oldest(CompletionStatus::retry_exceeded, error);
  }
  fail(status(Code::connection_lost, errno_text(error), error));
}

void Endpoint::fail_oldest(CompletionStatus completion, int native) {
  for (std::uint64_t at = send_.settled; at != send_.execute; ++at) {
    SendSlot& slot = send_.ring[at];
    if (slot.done) continue;
    slot.done = true;
    slot.status = completion;
    slot.native = native;
    return;
  }
}

void Endpoint::flush() {
  for (std::uint64_t at = send_.settled; at != send_.tail; ++at) {
    SendSlot& slot = send_.ring[at];
    if (slot.done) continue;
    slot.status = CompletionStatus::flushed;
    slot.done = true;
    if (slot.op == Opcode::bind || slot.op == Opcode::invalidate) core_.memory.release(slot.window);
  }
  send_.settled = send_.emit = send_.transmit = send_.execute = send_.tail;
  for (; receive_.filled != receive_.tail; ++receive_.filled) {
    ReceiveSlot& slot = receive_.ring[receive_.filled];
    if (slot.status == CompletionStatus::success) slot.status = CompletionStatus::flushed;
  }
  // From here on nothing of these queues is touched: the memory is the caller's again.
  reads_.head = reads_.tail;
  reads_.bytes = 0;
  service_.head = service_.tail;
  has_current_ = false;
  input_.target = nullptr;
  stash_.clear();
  stash_.shrink_to_fit();
  complete_soon();
}

void Endpoint::drop_socket() {
  // What the socket holds is still delivered; then the peer sees the end of the stream.
  if (fd_) static_cast<void>(::shutdown(fd_.get(), SHUT_RDWR));
  readable_ = writable_ = false;
}

// --- last words ------------------------------------------------------------------------------

void Endpoint::linger_turn() {
  if (!lingering_) return;
  if (writable_ && words_sent_ < words_.size() && send_words()) {
    static_cast<void>(::shutdown(fd_.get(), SHUT_WR));
  }
  if (output_broken_) return stop_lingering();
  // The rest of the input is thrown away: closing a socket with unread input would take the last
  // words back.
  std::size_t budget = kReceiveBytesPerEndpointTurn;
  while (readable_ && budget != 0) {
    const ssize_t n = ::recv(fd_.get(), core_.input.get(), kInputBytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      readable_ = false;
      break;
    }
    if (n <= 0) return stop_lingering();
    budget -= std::min(budget, static_cast<std::size_t>(n));
  }
  if (readable_) wake();
}

void Endpoint::stop_lingering() {
  if (!lingering_) return;
  lingering_ = false;
  deadline_ = TimePoint::never();
  words_ = {};
  drop_socket();
  if (state_ == State::closing) {
    fd_.reset();
    complete_soon();
  }
}

// --- close -----------------------------------------------------------------------------------

void Endpoint::close() {
  if (state_ == State::closing) return;
  flush();
  state_ = State::closing;
  attempt.reset();
  greeting_input.reset();
  last_.kind = EventKind::closed;
  last_.endpoint = id_;
  has_last_ = true;
  if (!lingering_) {
    deadline_ = TimePoint::never();
    fd_.reset();
  }
  complete_soon();
}

void Endpoint::close_silently() {
  close();
  has_last_ = false;
}

void Endpoint::connect_failed(Status why, std::vector<std::byte> hello) {
  if (state_ == State::closing) return;
  close();
  last_.kind = EventKind::connect_failed;
  last_.status = std::move(why);
  last_.hello = std::move(hello);
  last_.peer_address = peer_;
}

void Endpoint::reject(std::span<const std::byte> hello) {
  if (state_ != State::asked) return;
  flush();
  send_greeting(GreetingKind::reject, hello.first(std::min(hello.size(), kHelloBytesMax)));
  state_ = State::closing;
  lingering_ = true;
  set_deadline(core_.now + kLinger);
  complete_soon();
  wake();
}

bool Endpoint::finished(Event& last, bool& has_last) {
  if (state_ != State::closing || lingering_) return false;
  if (send_.head != send_.tail || receive_.head != receive_.tail) return false;
  last = std::move(last_);
  has_last = has_last_;
  return true;
}

// --- completions -----------------------------------------------------------------------------

std::size_t Endpoint::take_completions(std::span<Completion> out) {
  std::size_t n = 0;
  for (; n < out.size() && receive_.head != receive_.filled; ++n, ++receive_.head) {
    const ReceiveSlot& slot = receive_.ring[receive_.head];
    out[n] = {.id = slot.id,
              .endpoint = id_,
              .op = Opcode::receive,
              .status = slot.status,
              .bytes = slot.bytes,
              .native = 0};
  }
  for (; n < out.size() && send_.head != send_.emit; ++n, ++send_.head) {
    const SendSlot& slot = send_.ring[send_.head];
    out[n] = {.id = slot.id,
              .endpoint = id_,
              .op = slot.op,
              .status = slot.status,
              .bytes = 0,
              .native = slot.native};
  }
  core_.work_requests -= n;
  return n;
}

}  // namespace pawl::fabric::tcp
