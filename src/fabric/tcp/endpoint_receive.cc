// SPDX-License-Identifier: Apache-2.0
// The input of an endpoint: a state machine over bytes. Every number that comes in is checked
// before it is used; what is wrong ends this endpoint with a sentence and nothing else.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

void Scatter::fill(const std::byte* from, std::size_t bytes) {
  while (bytes != 0) {
    const Segment& segment = segments[at];
    const std::size_t part = std::min<std::size_t>(bytes, segment.length - offset);
    if (segment.kind != nullptr) {
      segment.kind->copy_in(segment.address + offset, {from, part});
    } else {
      std::memcpy(segment.address + offset, from, part);
    }
    from += part;
    bytes -= part;
    skip(part);
  }
}

void Scatter::skip(std::size_t bytes) {
  while (bytes != 0) {
    const std::size_t part = std::min<std::size_t>(bytes, segments[at].length - offset);
    bytes -= part;
    offset += static_cast<std::uint32_t>(part);
    if (offset == segments[at].length) {
      ++at;
      offset = 0;
    }
  }
}

bool Endpoint::wants_to_receive() const {
  if (state_ != State::ready || !announced_) return false;
  if (input_.phase == Input::Phase::waiting) {
    // The peer is gone, and with it what no receive will take.
    return receive_.filled != receive_.tail || hangup_;
  }
  return readable_ || stash_at_ != stash_.size();
}

void Endpoint::receive_turn() {
  if (input_.phase == Input::Phase::waiting) {
    begin_message();
    if (state_ != State::ready) return;
    if (input_.phase == Input::Phase::waiting) {
      if (hangup_) connection_ended(output_broken_ ? ECONNRESET : 0);
      return;
    }
  }
  if (stash_at_ != stash_.size()) {
    stash_at_ += consume(stash_.data() + stash_at_, stash_.size() - stash_at_);
    if (stash_at_ >= stash_.size()) {  // a failure has cleared it
      stash_.clear();
      stash_at_ = 0;
    }
  }
  std::size_t budget = std::min(kReceiveBytesPerEndpointTurn, core_.receive_budget);
  const std::size_t start = budget;
  while (state_ == State::ready && readable_ && input_.phase != Input::Phase::waiting &&
         budget != 0) {
    if (!receive_some(budget)) break;
  }
  core_.receive_budget -= std::min(core_.receive_budget, start - budget);
}

/// The landing memory of the rest of the body, where it is large and the CPU may store there.
std::size_t Endpoint::direct_vectors(std::span<iovec> out, std::size_t& count) const {
  count = 0;
  if (input_.phase != Input::Phase::body || input_.body_left < kDirectBytesMin) return 0;
  const Scatter& target = *input_.target;
  std::size_t left = input_.body_left;
  std::uint32_t offset = target.offset;
  for (std::size_t i = target.at; i < target.count && left != 0; ++i) {
    const Segment& segment = target.segments[i];
    if (segment.kind != nullptr) break;
    const std::size_t part = std::min<std::size_t>(left, segment.length - offset);
    out[count++] = {.iov_base = segment.address + offset, .iov_len = part};
    left -= part;
    offset = 0;
  }
  // Behind a part that cannot be received directly nothing else may land.
  return left == 0 ? input_.body_left : 0;
}

/// One system call. False when the socket has nothing more, or the endpoint ended.
bool Endpoint::receive_some(std::size_t& budget) {
  std::array<iovec, kSegmentsMax + 1> vectors;
  std::size_t count = 0;
  const std::size_t direct = direct_vectors(vectors, count);
  if (direct == 0) count = 0;
  // With READs on the way bodies follow: taking more than their headers would copy them twice.
  const std::size_t buffered =
      direct != 0 || reads_.bytes >= kDirectBytesMin ? kLookaheadBytes : kInputBytes;
  vectors[count++] = {.iov_base = core_.input.get(), .iov_len = buffered};
  ssize_t n = 0;
  do {
    n = count == 1 ? ::recv(fd_.get(), core_.input.get(), buffered, MSG_DONTWAIT)
                   : ::readv(fd_.get(), vectors.data(), static_cast<int>(count));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) {
    readable_ = false;
    return false;
  }
  if (n <= 0) {
    connection_ended(n < 0 ? errno : 0);
    return false;
  }
  ++core_.work_done;
  const auto got = static_cast<std::size_t>(n);
  budget -= std::min(budget, got);
  // Less than asked for means that nothing is left; an end of the stream makes no second edge.
  if (got < direct + buffered && !hangup_) readable_ = false;
  const std::size_t landed = std::min(got, direct);
  if (landed != 0) {
    input_.target->skip(landed);
    input_.body_left -= static_cast<std::uint32_t>(landed);
    if (input_.body_left == 0) body_complete();
  }
  const std::size_t rest = got - landed;
  const std::size_t used = rest != 0 ? consume(core_.input.get(), rest) : 0;
  if (used < rest && state_ == State::ready) {
    stash_.assign(core_.input.get() + used, core_.input.get() + rest);
    stash_at_ = 0;
  }
  return state_ == State::ready;
}

/// Consumes bytes until there are none, a message waits for a receive, or the endpoint ended.
std::size_t Endpoint::consume(const std::byte* data, std::size_t size) {
  std::size_t used = 0;
  while (used != size && state_ == State::ready) {
    const std::size_t left = size - used;
    switch (input_.phase) {
      case Input::Phase::waiting:
        return used;
      case Input::Phase::header:
      case Input::Phase::trailer: {
        const std::size_t part = std::min<std::size_t>(left, input_.need - input_.have);
        std::memcpy(input_.bytes.data() + input_.have, data + used, part);
        input_.have += static_cast<std::uint32_t>(part);
        used += part;
        if (input_.have < input_.need) break;
        input_.phase == Input::Phase::header ? header_complete() : on_trailer();
        break;
      }
      case Input::Phase::body: {
        const std::size_t part = std::min<std::size_t>(left, input_.body_left);
        input_.target->fill(data + used, part);
        input_.body_left -= static_cast<std::uint32_t>(part);
        used += part;
        if (input_.body_left == 0) body_complete();
        break;
      }
      case Input::Phase::fault: {
        const std::size_t part = std::min<std::size_t>(left, input_.body_left);
        for (std::size_t i = 0; i < part; ++i) {
          const auto c = static_cast<char>(data[used + i]);
          input_.fault_text.push_back(c >= ' ' && c <= '~' ? c : '?');
        }
        input_.body_left -= static_cast<std::uint32_t>(part);
        used += part;
        if (input_.body_left == 0) on_fault();
        break;
      }
    }
  }
  return used;
}

void Endpoint::header_complete() {
  if (input_.need == kFrameBytes) {
    const char* const wrong =
        decode_frame(std::span(input_.bytes).first<kFrameBytes>(), input_.frame);
    if (wrong != nullptr) return violation(wrong);
    if (input_.frame.type == FrameType::read_request) {
      input_.need = kReadRequestBytes;
      return;
    }
  }
  input_.have = 0;
  input_.need = kFrameBytes;
  const FrameHeader& frame = input_.frame;
  switch (frame.type) {
    case FrameType::message:
      if (frame.length == 0 || frame.length > kMessageBytesMax) {
        return violation("a message of " + std::to_string(frame.length) +
                         " bytes, allowed are 1 to " + std::to_string(kMessageBytesMax));
      }
      on_acknowledgement(frame.value);
      if (state_ == State::ready) begin_message();
      return;
    case FrameType::ack:
      if (frame.length != 0) return violation("an acknowledgement with a length");
      return on_acknowledgement(frame.value);
    case FrameType::read_request:
      return on_read_request();
    case FrameType::read_piece:
      return on_piece();
    case FrameType::fault:
      if (frame.length > kFaultDetailBytesMax) return violation("a fault with too long a text");
      input_.fault_text.clear();
      input_.body_left = frame.length;
      input_.phase = Input::Phase::fault;
      if (frame.length == 0) on_fault();
      return;
  }
}

// --- messages --------------------------------------------------------------------------------

void Endpoint::begin_message() {
  if (receive_.filled == receive_.tail) {
    input_.phase = Input::Phase::waiting;
    return;
  }
  ReceiveSlot& slot = receive_.ring[receive_.filled];
  const std::uint32_t length = input_.frame.length;
  if (!slot.covered || slot.local.length < length) {
    const std::string what =
        slot.covered ? "a message of " + std::to_string(length) + " bytes met a receive of " +
                           std::to_string(slot.local.length)
                     : std::string("a receive whose segments lie outside of their registrations");
    slot.status = CompletionStatus::local_error;
    return fault(FaultCode::receive, what, status(Code::too_large, what));
  }
  input_.target = &slot.local;
  input_.body_left = length;
  input_.phase = Input::Phase::body;
}

void Endpoint::body_complete() {
  if (input_.frame.type == FrameType::read_piece) {
    input_.phase = Input::Phase::trailer;
    input_.need = kTrailerBytes;
    return;
  }
  ReceiveSlot& slot = receive_.ring[receive_.filled];
  slot.bytes = input_.frame.length;
  ++receive_.filled;
  ++received_;
  input_.target = nullptr;
  input_.phase = Input::Phase::header;
  complete_soon();
}

void Endpoint::on_acknowledgement(std::uint64_t count) {
  if (count < sent_acknowledged_ || count > sent_) {
    return violation("it acknowledged " + std::to_string(count) + " of " + std::to_string(sent_) +
                     " messages, after " + std::to_string(sent_acknowledged_));
  }
  send_.unacknowledged = std::max(send_.unacknowledged, send_.settled);
  for (; sent_acknowledged_ != count; ++send_.unacknowledged) {
    SendSlot& slot = send_.ring[send_.unacknowledged];
    if (slot.op != Opcode::send) continue;
    slot.done = true;
    ++sent_acknowledged_;
  }
  skip_transmitted();
}

// --- READs -----------------------------------------------------------------------------------

void Endpoint::on_read_request() {
  const FrameHeader& frame = input_.frame;
  if (frame.length == 0 || frame.length > kReadBytesMax) {
    return violation("a READ of " + std::to_string(frame.length) + " bytes, allowed are 1 to " +
                     std::to_string(kReadBytesMax));
  }
  if (service_.tail - service_.head >= service_.depth) {
    return violation("more READs outstanding than the " + std::to_string(service_.depth) +
                     " that were announced");
  }
  const ReadTarget target =
      decode_read_target(std::span(input_.bytes).last<kReadRequestBytes - kFrameBytes>());
  service_.ring[service_.tail++] = {.id = frame.value,
                                    .key = target.key,
                                    .address = target.address,
                                    .length = frame.length,
                                    .sent = 0};
}

void Endpoint::on_piece() {
  const FrameHeader& frame = input_.frame;
  if (reads_.head == reads_.tail || frame.value != reads_.head) {
    return violation("a READ piece for READ " + std::to_string(frame.value) +
                     ", which is not the oldest outstanding");
  }
  SendSlot& slot = send_.ring[reads_.ring[reads_.head]];
  if (!slot.transmitted) return violation("a READ piece for a READ that was not requested");
  if (frame.length > kPieceBytesMax || frame.length > slot.landing_left) {
    return violation("a READ piece of " + std::to_string(frame.length) + " bytes where " +
                     std::to_string(std::min(slot.landing_left, kPieceBytesMax)) + " are left");
  }
  slot.landing_left -= frame.length;
  reads_.bytes -= frame.length;
  input_.target = &slot.local;
  input_.body_left = frame.length;
  input_.phase = Input::Phase::body;
  if (frame.length == 0) body_complete();
}

void Endpoint::on_trailer() {
  Trailer trailer;
  const char* const wrong = decode_trailer(std::span(input_.bytes).first<kTrailerBytes>(), trailer);
  input_.have = 0;
  input_.need = kFrameBytes;
  input_.phase = Input::Phase::header;
  if (wrong != nullptr) return violation(wrong);
  if (trailer.read_id_low != static_cast<std::uint32_t>(reads_.head)) {
    return violation("a READ piece whose trailer belongs to another READ");
  }
  SendSlot& slot = send_.ring[reads_.ring[reads_.head]];
  if (trailer.status != PieceStatus::ok) {
    slot.done = true;
    slot.status = CompletionStatus::remote_access;
    return fail(
        status(Code::permission_denied, trailer.status == PieceStatus::refused
                                            ? "the peer refused a READ: its key, bounds or endpoint"
                                            : "the peer revoked a READ on its way"));
  }
  if (input_.frame.length == 0) return violation("a READ piece without bytes");
  if (slot.landing_left != 0) return;
  slot.done = true;
  ++reads_.head;
  stalled_ = false;
  skip_transmitted();
}

// --- the peer's last words -------------------------------------------------------------------

void Endpoint::on_fault() {
  const auto code = static_cast<FaultCode>(input_.frame.status);
  if (code == FaultCode::receive) {
    // Its receive could not take the oldest message that it has not acknowledged.
    for (std::uint64_t at = send_.settled; at != send_.execute; ++at) {
      SendSlot& slot = send_.ring[at];
      if (slot.op != Opcode::send || slot.done) continue;
      slot.done = true;
      slot.status = CompletionStatus::remote_operation;
      break;
    }
    return fail(status(Code::too_large, "the peer could not take a message: " + input_.fault_text));
  }
  fail(status(Code::protocol_error,
              "the peer says that this end broke the wire protocol: " + input_.fault_text));
}

}  // namespace pawl::fabric::tcp
