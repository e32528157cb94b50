// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <optional>

#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

bool Endpoint::wants_to_send() const {
  // Binds and invalidates never wait for the socket.
  if (state_ == State::ready && announced_ && send_.execute != send_.tail && !stalled_) return true;
  if (!writable_ || output_broken_) return false;
  if (words_sent_ < words_.size()) return true;
  if (state_ != State::ready || !announced_) return false;
  return has_current_ || send_.transmit != send_.execute || received_ != acknowledged_ ||
         service_.head != service_.tail;
}

bool Endpoint::only_acknowledges() const {
  return words_sent_ == words_.size() && !has_current_ && send_.transmit == send_.execute &&
         (send_.execute == send_.tail || stalled_) && service_.head == service_.tail;
}

// --- execution, in the order of posts --------------------------------------------------------

void Endpoint::fail_slot(SendSlot& slot, CompletionStatus completion, const char* what) {
  slot.done = true;
  slot.status = completion;
  fail(status(Code::failed_precondition, what));
}

/// False if it has to wait, or ended the endpoint.
bool Endpoint::execute(SendSlot& slot, std::uint64_t sequence) {
  if (slot.fence && reads_.head != reads_.tail) return false;
  switch (slot.op) {
    case Opcode::bind:
      slot.status = core_.memory.bind(slot.window, slot.window_key, id_, slot.bind_target);
      if (slot.status != CompletionStatus::success) {
        fail_slot(slot, slot.status,
                  "a bind failed: the window is bound, or the memory may not be");
        return false;
      }
      slot.done = true;
      return true;
    case Opcode::invalidate:
      slot.status = core_.memory.invalidate(slot.window, id_);
      if (slot.status != CompletionStatus::success) {
        fail_slot(slot, slot.status, "an invalidate of a window that is not bound through it");
        return false;
      }
      slot.done = true;
      return true;
    case Opcode::read:
      if (reads_.tail - reads_.head >= reads_.depth) return false;
      if (!slot.covered || slot.local.length > peer_limits_.read_bytes_max) {
        fail_slot(slot, CompletionStatus::local_error,
                  "a READ whose segments lie outside of their registrations, or larger than the "
                  "peer serves");
        return false;
      }
      slot.read_id = reads_.tail;
      slot.landing_left = static_cast<std::uint32_t>(slot.local.length);
      reads_.ring[reads_.tail++] = sequence;
      reads_.bytes += slot.local.length;
      return true;
    case Opcode::send:
    case Opcode::receive:
      break;
  }
  if (!slot.covered || slot.local.length > peer_limits_.message_bytes_max) {
    fail_slot(slot, CompletionStatus::local_error,
              "a message whose segments lie outside of their registrations, or larger than the "
              "peer takes");
    return false;
  }
  return true;
}

void Endpoint::execute_requests() {
  stalled_ = false;
  while (state_ == State::ready && send_.execute != send_.tail) {
    // Advanced first: a request that fails must lie in what `fail` flushes around it.
    if (!execute(send_.ring[send_.execute], send_.execute)) {
      stalled_ = true;
      return;
    }
    ++send_.execute;
  }
  skip_transmitted();
}

void Endpoint::skip_transmitted() {
  while (send_.transmit != send_.execute) {
    const SendSlot& slot = send_.ring[send_.transmit];
    const bool on_wire = slot.op == Opcode::send || slot.op == Opcode::read;
    if (on_wire ? !slot.transmitted : !slot.done) break;
    ++send_.transmit;
  }
  const std::uint64_t emit = send_.emit;
  send_.settle();
  if (send_.emit != emit) complete_soon();
}

// --- gathering -------------------------------------------------------------------------------

void Endpoint::gather_memory(Plan& plan, const std::byte* from, std::size_t bytes,
                             const MemoryKind* kind) {
  if (bytes == 0 || plan.cut) return;
  if (kind == nullptr) return plan.add(from, bytes);
  const std::size_t taken = std::min(bytes, kStagingBytes - plan.staged);
  if (taken != 0) {
    std::byte* const to = core_.staging.get() + plan.staged;
    kind->copy_out({to, taken}, from);
    plan.add(to, taken);
    plan.staged += taken;
  }
  plan.cut = taken < bytes;
}

/// Adds what the socket has not taken of a frame. `lent`: the body of a READ piece.
void Endpoint::gather(Plan& plan, OutFrame& frame, const std::byte* lent, const MemoryKind* kind) {
  std::size_t skip = frame.sent;
  const auto part = [&skip](std::size_t bytes) {  // how much of the next part is behind us
    const std::size_t done = std::min(skip, bytes);
    skip -= done;
    return done;
  };
  if (const std::size_t done = part(frame.head_bytes); done < frame.head_bytes) {
    plan.add(frame.head.data() + done, frame.head_bytes - done);
  }
  if (frame.type == FrameType::message) {
    const SendSlot& slot = send_.ring[frame.sequence];
    if (slot.inlined) {
      const std::size_t done = part(frame.body_bytes);
      gather_memory(plan, slot.inline_bytes.data() + done, frame.body_bytes - done, nullptr);
    }
    for (std::size_t i = 0; i < slot.local.count; ++i) {
      const Segment& segment = slot.local.segments[i];
      const std::size_t done = part(segment.length);
      gather_memory(plan, segment.address + done, segment.length - done, segment.kind);
    }
  } else if (frame.type == FrameType::read_piece) {
    const std::size_t done = part(frame.body_bytes);
    if (lent != nullptr) gather_memory(plan, lent + done, frame.body_bytes - done, kind);
    plan.lent = true;
  }
  if (plan.cut) return;
  if (const std::size_t done = part(frame.trailer_bytes); done < frame.trailer_bytes) {
    plan.add(frame.trailer.data() + done, frame.trailer_bytes - done);
  }
}

void Endpoint::plan_requests(Plan& plan) {
  for (std::uint64_t at = send_.transmit; at != send_.execute && plan.room(); ++at) {
    SendSlot& slot = send_.ring[at];
    if (slot.transmitted || slot.done) continue;
    if (has_current_ && current_.sequence == at &&
        (current_.type == FrameType::message || current_.type == FrameType::read_request)) {
      continue;
    }
    OutFrame& frame = plan.frames[plan.frame_count++];
    frame = OutFrame{};
    frame.sequence = at;
    if (slot.op == Opcode::send) {
      frame.type = FrameType::message;
      frame.body_bytes = static_cast<std::uint32_t>(slot.local.length);
      frame.acknowledged = received_;
      encode_frame({.type = frame.type, .length = frame.body_bytes, .value = received_},
                   std::span(frame.head).first<kFrameBytes>());
    } else {
      frame.type = FrameType::read_request;
      frame.head_bytes = kReadRequestBytes;
      encode_frame({.type = frame.type,
                    .length = static_cast<std::uint32_t>(slot.local.length),
                    .value = slot.read_id},
                   std::span(frame.head).first<kFrameBytes>());
      encode_read_target({.key = slot.remote.key, .address = slot.remote.address},
                         std::span(frame.head).last<kReadRequestBytes - kFrameBytes>());
    }
    gather(plan, frame, nullptr, nullptr);
  }
}

void Endpoint::plan_acknowledgement(Plan& plan) {
  if (received_ == acknowledged_ || !plan.room()) return;
  for (std::size_t i = 0; i < plan.frame_count; ++i) {
    const OutFrame& frame = plan.frames[i];
    if (frame.type == FrameType::message && frame.acknowledged == received_) return;
  }
  OutFrame& frame = plan.frames[plan.frame_count++];
  frame = OutFrame{};
  frame.acknowledged = received_;
  encode_frame({.type = FrameType::ack, .value = received_},
               std::span(frame.head).first<kFrameBytes>());
  gather(plan, frame, nullptr, nullptr);
}

// --- one system call -------------------------------------------------------------------------

void Endpoint::send_turn() {
  if (state_ == State::ready && announced_) execute_requests();
  if (!writable_ || output_broken_) return;
  if (words_sent_ < words_.size() && !send_words()) return;
  if (state_ != State::ready || !announced_) return;
  Plan& plan = core_.plan;
  plan.clear();
  const bool pieces =
      service_.head != service_.tail || (has_current_ && current_.type == FrameType::read_piece);
  ssize_t taken = 0;
  {
    // Keys are looked up and bytes leave while this exists; see MemoryTable.
    std::optional<MemoryTable::Sampling> sampling;
    if (pieces) sampling.emplace(core_.memory);
    if (!resume_current(plan, pieces ? &*sampling : nullptr)) return;
    plan_requests(plan);
    plan_acknowledgement(plan);
    if (pieces && !plan_pieces(plan, *sampling)) return;
    if (plan.bytes == 0) return;
    msghdr message{};
    message.msg_iov = plan.vectors.data();
    message.msg_iovlen = plan.vector_count;
    send_turn_ = core_.turn;
    taken = plan.lent ? send_lent(fd_.get(), message) : send_message(fd_.get(), message);
  }
  if (taken < 0) {
    writable_ = false;
    if (errno == EAGAIN) return;
    // What the peer said before it went away is still to be read: the end of the stream is met
    // there, or here if no receive lets us read on.
    output_broken_ = readable_ = hangup_ = true;
    if (input_.phase == Input::Phase::waiting) connection_ended(errno);
    return;
  }
  ++core_.work_done;
  if (static_cast<std::size_t>(taken) < plan.bytes) writable_ = false;
  settle_plan(plan, static_cast<std::size_t>(taken));
}

void Endpoint::settle_plan(Plan& plan, std::size_t taken) {
  has_current_ = false;
  for (std::size_t i = 0; i < plan.frame_count; ++i) {
    OutFrame& frame = plan.frames[i];
    const std::size_t part = std::min<std::size_t>(taken, frame.bytes() - frame.sent);
    frame.sent += static_cast<std::uint32_t>(part);
    taken -= part;
    if (frame.sent < frame.bytes()) {
      if (frame.sent != 0) {
        has_current_ = true;
        current_ = frame;
      }
      break;
    }
    frame_sent(frame);
  }
  skip_transmitted();
}

void Endpoint::frame_sent(const OutFrame& frame) {
  switch (frame.type) {
    case FrameType::message:
      ++sent_;
      send_.ring[frame.sequence].transmitted = true;
      acknowledged_ = std::max(acknowledged_, frame.acknowledged);
      break;
    case FrameType::ack:
      acknowledged_ = std::max(acknowledged_, frame.acknowledged);
      break;
    case FrameType::read_request:
      send_.ring[frame.sequence].transmitted = true;
      break;
    case FrameType::read_piece: {
      ServedRead& read = service_.ring[service_.head];
      read.sent += frame.body_bytes;
      if (read.sent == read.length) ++service_.head;
      break;
    }
    case FrameType::fault:
      break;
  }
}

/// True when all are out.
bool Endpoint::send_words() {
  iovec vector{.iov_base = words_.data() + words_sent_, .iov_len = words_.size() - words_sent_};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  const ssize_t n = send_message(fd_.get(), message);
  if (n < 0) {
    writable_ = false;
    if (errno != EAGAIN) output_broken_ = readable_ = hangup_ = true;
    return false;
  }
  ++core_.work_done;
  words_sent_ += static_cast<std::size_t>(n);
  if (words_sent_ < words_.size()) {
    writable_ = false;
    return false;
  }
  words_ = {};
  words_sent_ = 0;
  return true;
}

}  // namespace pawl::fabric::tcp
