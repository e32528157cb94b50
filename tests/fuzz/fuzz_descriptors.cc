// SPDX-License-Identifier: Apache-2.0
// Arbitrary leases and segments, in the list alone and in the bodies that carry them. What is
// accepted can be used by readers without another look.
#include "fuzz/bodies.h"
#include "fuzz/input.h"
#include "pawl/bulk.h"
#include "rpc/wire.h"
#include "rpc/wire_recovery.h"

namespace pawl::fuzz {
namespace {

using namespace rpc;  // NOLINT: the descriptors under test

void require_usable(const SegmentDescriptor& segment) {
  if (segment.kind == KeyKind::none) {
    require(segment.key == 0 && segment.address == 0, "what has no key has no address");
    require(segment.code == Code::ok || segment.length == 0, "an error has no bytes");
    require(segment.inline_bytes || segment.length == 0, "bytes are inline or have a key");
    return;
  }
  require(segment.code == Code::ok && !segment.inline_bytes && segment.length > 0,
          "a key opens bytes, and is no error");
  require(segment.address + segment.length >= segment.address, "a segment does not wrap around");
}

/// Entry by entry; one entry behind the end is refused.
void list_alone(Input list) {
  const std::size_t count = list.size() / SegmentDescriptor::kBytes;
  for (std::size_t i = 0; i <= count; ++i) {
    SegmentDescriptor segment;
    const char* why = nullptr;
    if (!decode_segment(list, i, segment, why)) {
      require(why != nullptr && *why != '\0', "what is refused says why");
      continue;
    }
    require(i < count, "a segment behind the end is refused");
    require_usable(segment);
    std::array<std::byte, SegmentDescriptor::kBytes> again;
    encode(segment, again);
    const Input from = list.subspan(i * SegmentDescriptor::kBytes, SegmentDescriptor::kBytes);
    for (std::size_t k = 0; k < again.size(); ++k) {
      const bool ignored = (k >= 4 && k < 8) || (k == 1 && segment.code == Code::internal);
      require(again[k] == from[k] || ignored, "a segment encodes to the bytes that it came from");
    }
  }
}

/// What a reader relies on.
void require_usable(const LeaseDescriptor& lease, Input segments, std::size_t payload_bytes) {
  require(lease.segments <= kSegmentsMax, "a lease is within the limit of segments");
  const bool windows = lease.guard == Guard::window || lease.guard == Guard::window_verify;
  std::uint64_t inline_bytes = 0;
  for (std::size_t i = 0; i < lease.segments; ++i) {
    SegmentDescriptor segment;
    const char* why = nullptr;
    require(decode_segment(segments, i, segment, why), "an accepted list has no bad segment");
    require_usable(segment);
    if (segment.inline_bytes) {
      require(segment.length <= payload_bytes - inline_bytes, "inline bytes lie in the payload");
      inline_bytes += segment.length;
    }
    if (segment.kind == KeyKind::none) continue;
    require(lease.lease.generation != 0, "only what is lent has a key");
    require((segment.kind == KeyKind::window) == windows, "a key is of the kind of its guard");
  }
}

std::vector<std::byte> joined(Input head, Input list, Input payload) {
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), list.begin(), list.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

template <class Body>
void in_a_body(FrameType type, const std::vector<std::byte>& bytes) {
  const Exact exact(bytes);
  FrameHeader header;
  header.type = type;
  if (!check_body(header, exact.bytes())) return;
  Body body;
  const char* why = nullptr;
  require(decode(exact.bytes(), body, why), "a decoder says the same twice");
  if (body.lease) require_usable(*body.lease, body.segments, body.payload.size());
}

/// A lease whose fixed part is the input's, mostly with the number of segments that follow.
std::vector<std::byte> lease_bytes(Splitter& in, std::size_t segments) {
  Input fixed = in.bytes(LeaseDescriptor::kBytes);
  std::vector<std::byte> lease(LeaseDescriptor::kBytes);
  std::copy(fixed.begin(), fixed.end(), lease.begin());
  if (in.below(16) != 0) {
    lease[18] = static_cast<std::byte>(segments & 0xff);
    lease[19] = static_cast<std::byte>(segments >> 8);
  }
  return lease;
}

}  // namespace

void descriptors(Input input) {
  Splitter in(input);
  const unsigned kind = in.below(4);
  const std::size_t payload_bytes = in.u8();
  const std::vector<std::byte> lease = lease_bytes(
      in, (input.size() - std::min<std::size_t>(input.size(), 43)) / SegmentDescriptor::kBytes);
  const Input list = in.rest();
  const std::vector<std::byte> payload(payload_bytes);
  if (kind == 0) {
    const Exact exact(list);
    return list_alone(exact.bytes());
  }
  const Input segments = list.first(list.size() - list.size() % SegmentDescriptor::kBytes);
  const std::vector<std::byte> descriptor = joined(lease, segments, {});
  if (kind == 1) {
    std::vector<std::byte> head(Request::kFixedBytes);
    head[21] = std::byte{4};
    head[24] = static_cast<std::byte>(payload_bytes);
    return in_a_body<Request>(FrameType::request, joined(head, descriptor, payload));
  }
  if (kind == 2) {
    std::vector<std::byte> head(Response::kFixedBytes);
    head[2] = std::byte{1};
    head[16] = static_cast<std::byte>(payload_bytes);
    return in_a_body<Response>(FrameType::response, joined(head, descriptor, payload));
  }
  std::vector<std::byte> head(RelendAnswer::kFixedBytes);
  std::copy_n(lease.begin(), 16, head.begin());
  const Exact exact(joined(head, descriptor, {}));
  FrameHeader header;
  header.type = FrameType::relend_answer;
  if (!check_body(header, exact.bytes())) return;
  RelendAnswer answer;
  const char* why = nullptr;
  require(decode(exact.bytes(), answer, why), "a decoder says the same twice");
  require(answer.descriptor->segments <= kRelendSegmentsMax, "a lease lent again is short");
  require_usable(*answer.descriptor, answer.segments, 0);
}

}  // namespace pawl::fuzz
