// SPDX-License-Identifier: Apache-2.0
#include "fuzz/bodies.h"

#include <optional>

#include "rpc/handshake.h"
#include "rpc/wire_recovery.h"

namespace pawl::fuzz {
namespace {

using namespace rpc;  // NOLINT: the bodies of frames

/// Which bytes of a body may come back as others: reserved ones, which are sent as zeros.
class Ignored {
 public:
  void add(std::size_t from, std::size_t bytes) { parts_.push_back({from, from + bytes}); }
  [[nodiscard]] bool has(std::size_t at) const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [at](const Part& part) { return at >= part.from && at < part.to; });
  }

 private:
  struct Part {
    std::size_t from, to;
  };
  std::vector<Part> parts_;
};

void add_descriptor(Ignored& ignored, std::size_t at, bool there) {
  if (there) ignored.add(at + 20, 4);
}

// --- what is particular to each body: views, reserved bytes, room
// ---------------------------------

std::size_t room_for(const Request& body) { return encoded_bytes(body); }
std::size_t room_for(const Response& body) { return encoded_bytes(body); }
std::size_t room_for(const RelendAnswer& body) { return encoded_bytes(body); }
std::size_t room_for(const Fragment& body) { return Fragment::kFixedBytes + body.bytes.size(); }
std::size_t room_for(const Hello& body) { return Hello::kFixedBytes + body.proof.size(); }
std::size_t room_for(const ConfirmAnswer& body) {
  return ConfirmAnswer::kFixedBytes + body.bitmap.size();
}
template <class Body>
std::size_t room_for(const Body&) {
  return Body::kBytes;
}

void require_descriptor(const std::optional<LeaseDescriptor>& lease, Input segments) {
  require(lease.has_value() || segments.empty(), "segments come with a descriptor");
  if (!lease) return;
  require(lease->segments * SegmentDescriptor::kBytes == segments.size(),
          "a descriptor has as many segments as it says");
}

void look_at(const Request& body, Input in, Ignored& ignored) {
  require_inside(body.metadata, in);
  require_inside(body.segments, in);
  require_inside(body.payload, in);
  require_descriptor(body.lease, body.segments);
  require(body.payload.size() == body.payload_bytes, "a payload is as long as its length says");
  const std::size_t trace = body.trace ? 25 : 0;
  add_descriptor(ignored, Request::kFixedBytes + trace + body.metadata.size(),
                 body.lease.has_value());
}
void look_at(const Response& body, Input in, Ignored& ignored) {
  require_inside(body.message, in);
  require_inside(body.detail, in);
  require_inside(body.segments, in);
  require_inside(body.payload, in);
  require_descriptor(body.lease, body.segments);
  require(body.payload.size() == body.payload_bytes, "a payload is as long as its length says");
  ignored.add(3, 1);
  ignored.add(10, 2);
  ignored.add(24, 8);
  if (body.code == Code::internal) {  // perhaps an unknown one, which becomes the native number
    ignored.add(0, 1);
    ignored.add(4, 4);
  }
  add_descriptor(ignored, Response::kFixedBytes + body.message.size() + body.detail.size(),
                 body.lease.has_value());
}
void look_at(const Fragment& body, Input in, Ignored&) {
  require_inside(body.bytes, in);
  require(!body.bytes.empty() && std::uint64_t{body.offset} + body.bytes.size() <= body.body_bytes,
          "a fragment lies in its body");
}
void look_at(const Hello& body, Input in, Ignored&) {
  require_inside(body.proof, in);
  require(body.proof.size() <= kProofBytesMax, "a proof is within its limit");
}
void look_at(const Confirm&, Input, Ignored& ignored) { ignored.add(25, 7); }
void look_at(const ConfirmAnswer& body, Input in, Ignored& ignored) {
  require_inside(body.bitmap, in);
  ignored.add(17, 1);
  ignored.add(20, 4);
}
void look_at(const Release&, Input, Ignored&) {}
void look_at(const Cancel& body, Input, Ignored& ignored) {
  ignored.add(1, 7);
  if (body.reason == Code::internal) ignored.add(0, 1);
}
void look_at(const CancelAck&, Input, Ignored& ignored) { ignored.add(1, 7); }
void look_at(const Goaway&, Input, Ignored&) {}
void look_at(const Ping&, Input, Ignored&) {}
void look_at(const DataLost&, Input, Ignored& ignored) {
  ignored.add(2, 2);
  ignored.add(8, 8);
}
void look_at(const DataLostAnswer&, Input, Ignored& ignored) { ignored.add(1, 7); }
void look_at(const Relend&, Input, Ignored& ignored) { ignored.add(25, 7); }
void look_at(const RelendAnswer& body, Input in, Ignored& ignored) {
  require_inside(body.segments, in);
  require_descriptor(body.descriptor, body.segments);
  require((body.code == Code::ok) == body.descriptor.has_value(),
          "a lease is lent again with a descriptor");
  ignored.add(17, 7);
  if (body.code == Code::internal) ignored.add(16, 1);
  add_descriptor(ignored, RelendAnswer::kFixedBytes, body.descriptor.has_value());
}

template <class Body>
bool check(Input in) {
  Body body;
  const char* why = nullptr;
  if (!decode(in, body, why)) {
    require(why != nullptr && *why != '\0', "what is refused says why");
    return false;
  }
  Ignored ignored;
  look_at(body, in, ignored);
  std::vector<std::byte> again(room_for(body));
  require(encode(body, again) == again.size() && again.size() == in.size(),
          "a body encodes to as many bytes as it came from");
  for (std::size_t i = 0; i < in.size(); ++i) {
    require(again[i] == in[i] || ignored.has(i), "a body encodes to the bytes that it came from");
  }
  Body twice;
  require(decode(again, twice, why), "what a body encodes to is accepted");
  std::vector<std::byte> third(room_for(twice));
  encode(twice, third);
  require(third == again, "a body is the same after encode and decode");
  return true;
}

}  // namespace

bool check_body(const FrameHeader& header, Input body) {
  if ((header.flags & kFrameMore) != 0) return check<Fragment>(body);
  switch (header.type) {
    case FrameType::request:
      return check<Request>(body);
    case FrameType::response:
      return check<Response>(body);
    case FrameType::fragment:
      return check<Fragment>(body);
    case FrameType::hello:
      return check<Hello>(body);
    case FrameType::confirm:
      return check<Confirm>(body);
    case FrameType::confirm_answer:
      return check<ConfirmAnswer>(body);
    case FrameType::release:
      return check<Release>(body);
    case FrameType::cancel:
      return check<Cancel>(body);
    case FrameType::cancel_ack:
      return check<CancelAck>(body);
    case FrameType::credit:
    case FrameType::goaway_ack:
      return body.empty();
    case FrameType::goaway:
      return check<Goaway>(body);
    case FrameType::ping:
    case FrameType::pong:
      return check<Ping>(body);
    case FrameType::data_lost:
      return check<DataLost>(body);
    case FrameType::data_lost_answer:
      return check<DataLostAnswer>(body);
    case FrameType::relend:
      return check<Relend>(body);
    case FrameType::relend_answer:
      return check<RelendAnswer>(body);
  }
  require(false, "the decoder refuses unknown types");
  return false;
}

namespace {
template <class Body>
bool has_other_guard(Input in, std::uint64_t guards) {
  Body body;
  const char* why = nullptr;
  if (!decode(in, body, why) || !body.lease || body.lease->lease.generation == 0) return false;
  return (guard_bit(body.lease->guard) & guards) == 0;
}
}  // namespace

bool breaks_a_rule(Input message, std::uint64_t guards) {
  MessageHeader header;
  const char* why = nullptr;
  if (!decode(message, header, why)) return true;
  Input rest = message.subspan(MessageHeader::kBytes);
  while (!rest.empty()) {
    FrameHeader frame;
    Input body;
    if (!next_frame(rest, frame, body, why) || !check_body(frame, body)) return true;
    const bool whole = (frame.flags & kFrameMore) == 0;
    if (whole && frame.type == FrameType::request && has_other_guard<Request>(body, guards)) {
      return true;
    }
    if (whole && frame.type == FrameType::response && has_other_guard<Response>(body, guards)) {
      return true;
    }
    // RE-LEND is for window guards, which the node under test does not offer.
    if (frame.type == FrameType::relend || frame.type == FrameType::relend_answer) return true;
  }
  return false;
}

}  // namespace pawl::fuzz
