// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

Status Endpoint::check(const WorkRequest& request) const {
  if (state_ == State::error || state_ == State::closing) {
    return Status(Code::failed_precondition, "post: the endpoint is in ERR or closed");
  }
  const bool receive = request.op == Opcode::receive;
  if (!announced_ && !receive) {
    return Status(Code::failed_precondition,
                  "post: the endpoint is still connecting and takes receives only");
  }
  if (receive ? receive_.tail - receive_.head >= receive_.depth
              : send_.tail - send_.head >= send_.depth) {
    return Status(Code::resource_exhausted, "post: the endpoint's queue is full");
  }
  if (request.op == Opcode::bind) {
    return request.bind_target.length != 0
               ? Status()
               : Status(Code::invalid_argument, "post: a bind needs at least one byte");
  }
  if (request.op == Opcode::invalidate) return {};
  if (request.local.size() > kSegmentsMax) {
    return Status(Code::too_large, "post: more than 8 segments");
  }
  std::uint64_t bytes = 0;
  for (const LocalSegment& segment : request.local) {
    if (segment.length == 0) {
      return Status(Code::invalid_argument, "post: a segment needs at least one byte");
    }
    bytes += segment.length;
  }
  if (bytes == 0) return Status(Code::invalid_argument, "post: a request needs at least one byte");
  if (request.op == Opcode::send && request.inline_payload && bytes > kInlineBytesMax) {
    return Status(Code::too_large, "post: more than 128 bytes inline");
  }
  if (request.op == Opcode::send && bytes > kMessageBytesMax) {
    return Status(Code::too_large, "post: a message has at most 1048576 bytes");
  }
  if (request.op == Opcode::read && bytes > kReadBytesMax) {
    return Status(Code::too_large, "post: a READ has at most 1073741824 bytes");
  }
  return {};
}

std::size_t Endpoint::post(std::span<const WorkRequest> chain, Status& why) {
  std::size_t accepted = 0;
  for (const WorkRequest& request : chain) {
    why = check(request);
    if (!why.ok()) break;
    if (request.op == Opcode::receive) {
      post_receive(request);
    } else {
      why = post_send(request);
      if (!why.ok()) break;
    }
    ++accepted;
  }
  core_.work_requests += accepted;
  if (accepted != 0) wake();
  return accepted;
}

bool Endpoint::take_segments(std::span<const LocalSegment> local, Scatter& out) const {
  out = Scatter{};
  bool covered = true;
  for (const LocalSegment& segment : local) {
    Segment& to = out.segments[out.count++];
    to = {.address = segment.address, .length = segment.length, .kind = nullptr};
    covered = core_.memory.covers(segment, to.kind) && covered;
    out.length += segment.length;
  }
  return covered;
}

void Endpoint::post_receive(const WorkRequest& request) {
  ReceiveSlot& slot = receive_.ring[receive_.tail];
  slot.id = request.id;
  slot.status = CompletionStatus::success;
  slot.bytes = 0;
  slot.covered = take_segments(request.local, slot.local);
  ++receive_.tail;
}

Status Endpoint::post_send(const WorkRequest& request) {
  SendSlot& slot = send_.ring[send_.tail];
  if (request.op == Opcode::bind &&
      !core_.memory.take_window_key(request.window, slot.window_key)) {
    return Status(Code::invalid_argument, "post: no such window");
  }
  if (request.op == Opcode::invalidate && !core_.memory.hold(request.window)) {
    return Status(Code::invalid_argument, "post: no such window");
  }
  slot.id = request.id;
  slot.op = request.op;
  slot.signalled = request.signalled;
  slot.fence = request.fence;
  slot.covered = true;
  slot.inlined = false;
  slot.transmitted = false;
  slot.done = false;
  slot.status = CompletionStatus::success;
  slot.native = 0;
  slot.remote = request.remote;
  slot.window = request.window;
  slot.bind_target = request.bind_target;
  if (request.op == Opcode::send && request.inline_payload) {
    slot.inlined = true;
    slot.local = Scatter{};
    for (const LocalSegment& segment : request.local) {
      std::memcpy(slot.inline_bytes.data() + slot.local.length, segment.address, segment.length);
      slot.local.length += segment.length;
    }
  } else if (request.op == Opcode::send || request.op == Opcode::read) {
    slot.covered = take_segments(request.local, slot.local);
  }
  ++send_.tail;
  return {};
}

}  // namespace pawl::fabric::tcp
