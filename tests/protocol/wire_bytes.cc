// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire_bytes.h"

#include "rpc/wire.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc::test {

namespace {

constexpr std::size_t kRoomBytes = 1 << 17;

template <class Body>
Bytes body_again(std::span<const std::byte> in, const char*& why) {
  Body body;
  if (!decode(in, body, why)) return {};
  static Bytes room(kRoomBytes);  // not cleared each time: this runs a million times
  const auto bytes = static_cast<std::ptrdiff_t>(encode(body, room));
  return {room.begin(), room.begin() + bytes};
}

Bytes body_again(FrameType type, std::span<const std::byte> in, const char*& why) {
  switch (type) {
    case FrameType::request:
      return body_again<Request>(in, why);
    case FrameType::response:
      return body_again<Response>(in, why);
    case FrameType::fragment:
      return body_again<Fragment>(in, why);
    case FrameType::hello:
      return body_again<Hello>(in, why);
    case FrameType::confirm:
      return body_again<Confirm>(in, why);
    case FrameType::confirm_answer:
      return body_again<ConfirmAnswer>(in, why);
    case FrameType::release:
      return body_again<Release>(in, why);
    case FrameType::cancel:
      return body_again<Cancel>(in, why);
    case FrameType::cancel_ack:
      return body_again<CancelAck>(in, why);
    case FrameType::credit:
    case FrameType::goaway_ack:
      if (!in.empty()) why = "this frame has no body";
      return {};
    case FrameType::goaway:
      return body_again<Goaway>(in, why);
    case FrameType::ping:
    case FrameType::pong:
      return body_again<Ping>(in, why);
    case FrameType::data_lost:
      return body_again<DataLost>(in, why);
    case FrameType::data_lost_answer:
      return body_again<DataLostAnswer>(in, why);
    case FrameType::relend:
      return body_again<Relend>(in, why);
    case FrameType::relend_answer:
      return body_again<RelendAnswer>(in, why);
  }
  why = "the decoder let an unknown type pass";
  return {};
}

}  // namespace

Bytes reencode(std::span<const std::byte> frame, const char*& why) {
  why = nullptr;
  FrameHeader header;
  std::span<const std::byte> body;
  if (!next_frame(frame, header, body, why)) return {};
  const Bytes again = body_again(header.type, body, why);
  if (why != nullptr) return {};
  Bytes out(FrameHeader::kBytes);
  encode(header, out);
  out.insert(out.end(), again.begin(), again.end());
  return out;
}

}  // namespace pawl::rpc::test
