// SPDX-License-Identifier: Apache-2.0
#include "rpc/wire.h"

#include "pawl/bulk.h"
#include "rpc/wire_parts.h"

namespace pawl::rpc {

using parts::refuse;

namespace {

constexpr std::uint16_t kSegmentInline = 1;

bool known_type(std::uint8_t number) {
  const auto first_call = static_cast<std::uint8_t>(FrameType::request);
  const auto last_call = static_cast<std::uint8_t>(FrameType::fragment);
  const auto first_session = static_cast<std::uint8_t>(FrameType::hello);
  const auto last_session = static_cast<std::uint8_t>(FrameType::goaway_ack);
  return (number >= first_call && number <= last_call) ||
         (number >= first_session && number <= last_session);
}

/// As many as the header says, each whole, and of the message's class.
bool check_frames(const MessageHeader& message, std::span<const std::byte> rest, const char*& why) {
  std::size_t frames = 0;
  for (; !rest.empty(); ++frames) {
    FrameHeader frame;
    std::span<const std::byte> body;
    if (!next_frame(rest, frame, body, why)) return false;
    if (frame.type <= FrameType::fragment && message.message_class != MessageHeader::Class::call) {
      return refuse(why, "a frame of a call is in a message of class session");
    }
    const bool bare = frame.type == FrameType::credit || frame.type == FrameType::goaway_ack;
    if (bare && !body.empty()) return refuse(why, "a credit or goaway_ack frame has a body");
  }
  if (frames != message.frames) {
    return refuse(why, "a message has another number of frames than its header says");
  }
  return true;
}

}  // namespace

// --- headers -------------------------------------------------------------------------------------

std::size_t encode(const MessageHeader& header, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(header.message_class));
  writer.u8(0);
  writer.u16(header.frames);
  writer.u32(header.bytes);
  writer.u32(header.call_messages_returned);
  writer.u32(header.session_messages_returned);
  writer.u64(header.hint);
  writer.u64(0);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, MessageHeader& out, const char*& why) {
  Reader reader(in);
  const std::uint8_t message_class = reader.u8();
  const std::uint8_t flags = reader.u8();
  out.frames = reader.u16();
  out.bytes = reader.u32();
  out.call_messages_returned = reader.u32();
  out.session_messages_returned = reader.u32();
  out.hint = reader.u64();
  reader.skip(sizeof(std::uint64_t));
  if (!reader.ok()) return refuse(why, "a message is shorter than its header");
  if (message_class != static_cast<std::uint8_t>(MessageHeader::Class::call) &&
      message_class != static_cast<std::uint8_t>(MessageHeader::Class::session)) {
    return refuse(why, "a message is of an unknown class");
  }
  out.message_class = MessageHeader::Class{message_class};
  if ((flags & kFrameCriticalMask) != 0) {
    return refuse(why, "a message has an unknown critical flag");
  }
  if (out.frames == 0) return refuse(why, "a message has no frames");
  if (out.bytes != reader.remaining()) {
    return refuse(why, "a message is not as long as its header says");
  }
  return check_frames(out, reader.rest(), why);
}

std::size_t encode(const FrameHeader& header, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(header.type));
  writer.u8(header.flags);
  writer.u16(header.attempt);
  writer.u32(header.bytes);
  writer.u64(header.call);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, FrameHeader& out, const char*& why) {
  Reader reader(in);
  const std::uint8_t type = reader.u8();
  out.flags = reader.u8();
  out.attempt = reader.u16();
  out.bytes = reader.u32();
  out.call = reader.u64();
  if (!reader.ok()) return refuse(why, "a message ends within a frame header");
  if (!known_type(type)) return refuse(why, "a frame is of an unknown type");
  out.type = FrameType{type};
  if ((out.flags & kFrameCriticalMask) != 0) {
    return refuse(why, "a frame has an unknown critical flag");
  }
  if (out.bytes > reader.remaining()) return refuse(why, "a message ends within a frame");
  return true;
}

bool next_frame(std::span<const std::byte>& rest, FrameHeader& header,
                std::span<const std::byte>& body, const char*& why) {
  if (!decode(rest, header, why)) return false;
  body = rest.subspan(FrameHeader::kBytes, header.bytes);
  rest = rest.subspan(FrameHeader::kBytes + header.bytes);
  return true;
}

// --- segments ------------------------------------------------------------------------------------

std::size_t encode(const SegmentDescriptor& segment, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(segment.kind));
  writer.u8(static_cast<std::uint8_t>(segment.code));
  writer.u16(segment.inline_bytes ? kSegmentInline : 0);
  writer.u32(0);
  writer.u64(segment.length);
  writer.u64(segment.key);
  writer.u64(segment.address);
  return parts::finish(writer);
}

bool decode_segment(std::span<const std::byte> list, std::size_t i, SegmentDescriptor& out,
                    const char*& why) {
  if (i >= list.size() / SegmentDescriptor::kBytes) {
    return refuse(why, "a segment is behind the end of its list");
  }
  Reader reader(list.subspan(i * SegmentDescriptor::kBytes, SegmentDescriptor::kBytes));
  const std::uint8_t kind = reader.u8();
  (void)parts::code_from_wire(reader.u8(), out.code);  // unknown: internal
  const std::uint16_t flags = reader.u16();
  reader.skip(sizeof(std::uint32_t));
  out.length = reader.u64();
  out.key = reader.u64();
  out.address = reader.u64();
  if (kind > static_cast<std::uint8_t>(KeyKind::window)) {
    return refuse(why, "a segment has a key of an unknown kind");
  }
  out.kind = KeyKind{kind};
  if ((flags & ~kSegmentInline) != 0) return refuse(why, "a segment has an unknown flag");
  out.inline_bytes = flags == kSegmentInline;
  if (out.kind == KeyKind::none) {
    if (out.key != 0 || out.address != 0) {
      return refuse(why, "a segment without a key has a key or an address");
    }
    if (out.code != Code::ok && (out.length != 0 || out.inline_bytes)) {
      return refuse(why, "a segment has both bytes and an error");
    }
    if (out.length != 0 && !out.inline_bytes) {
      return refuse(why, "a segment has bytes and no key, and they are not inline");
    }
    return true;
  }
  if (out.code != Code::ok) return refuse(why, "a segment has both a key and an error");
  if (out.inline_bytes) return refuse(why, "an inline segment has a key");
  if (out.length == 0) return refuse(why, "a segment has a key and no bytes");
  if (out.address > UINT64_MAX - out.length) {
    return refuse(why, "a segment goes beyond the end of the address space");
  }
  return true;
}

// --- metadata ------------------------------------------------------------------------------------

namespace {
constexpr std::size_t kMetadataHeadBytes = 6;
}  // namespace

std::size_t metadata_encoded_bytes(std::span<const Metadata> list) {
  std::size_t bytes = 0;
  for (const Metadata& entry : list) {
    bytes += kMetadataHeadBytes + entry.key.size() + entry.value.size();
  }
  return bytes;
}

std::size_t encode_metadata(std::span<const Metadata> list, std::span<std::byte> out) {
  Writer writer(out);
  for (const Metadata& entry : list) {
    PAWL_CHECK(entry.key.size() <= kMetadataBytesMax && entry.value.size() <= kMetadataBytesMax,
               "metadata is longer than kMetadataBytesMax");
    writer.u16(static_cast<std::uint16_t>(entry.key.size()));
    writer.u32(static_cast<std::uint32_t>(entry.value.size()));
    writer.text(entry.key);
    writer.text(entry.value);
  }
  return parts::finish(writer);
}

std::string_view find_metadata(std::span<const std::byte> encoded, std::string_view key) {
  Reader reader(encoded);
  while (reader.ok() && reader.remaining() > 0) {
    const std::uint16_t key_bytes = reader.u16();
    const std::uint32_t value_bytes = reader.u32();
    const std::string_view name = reader.text(key_bytes);
    const std::string_view value = reader.text(value_bytes);
    if (reader.ok() && name == key) return value;
  }
  return {};
}

// --- shared by the bodies ------------------------------------------------------------------------

namespace parts {

bool code_from_wire(std::uint8_t number, Code& out) {
  switch (const Code code{number}; code) {
    case Code::ok:
    case Code::unavailable:
    case Code::overloaded:
    case Code::resource_exhausted:
    case Code::stale:
    case Code::connection_lost:
    case Code::data_lost:
    case Code::protocol_error:
    case Code::invalid_argument:
    case Code::not_found:
    case Code::already_exists:
    case Code::failed_precondition:
    case Code::permission_denied:
    case Code::unauthenticated:
    case Code::unimplemented:
    case Code::too_large:
    case Code::deadline:
    case Code::cancelled:
    case Code::aborted:
    case Code::internal:
    case Code::handler_threw:
    case Code::corrupt:
      out = code;
      return true;
  }
  out = Code::internal;
  return false;
}

bool ran_from_wire(std::uint8_t number, Ran& out) {
  if (number > static_cast<std::uint8_t>(Ran::yes)) return false;
  out = Ran{number};
  return true;
}

bool guard_from_wire(std::uint8_t number, Guard& out) {
  switch (const Guard guard{number}; guard) {
    case Guard::verify:
    case Guard::verify_read:
    case Guard::window:
    case Guard::window_verify:
    case Guard::none:
    case Guard::disconnect:
    case Guard::deregister:
      out = guard;
      return true;
  }
  return false;
}

void put(Writer& out, const LeaseName& lease) {
  out.u64(lease.id);
  out.u64(lease.generation);
}

LeaseName get_lease_name(Reader& in) {
  LeaseName lease;
  lease.id = in.u64();
  lease.generation = in.u64();
  return lease;
}

std::size_t descriptor_bytes(const std::optional<LeaseDescriptor>& lease,
                             std::span<const std::byte> segments) {
  return lease.has_value() ? LeaseDescriptor::kBytes + segments.size() : 0;
}

void put_descriptor(Writer& out, const LeaseDescriptor& lease,
                    std::span<const std::byte> segments) {
  PAWL_CHECK(segments.size() == std::size_t{lease.segments} * SegmentDescriptor::kBytes,
             "a lease descriptor counts other segments than are listed");
  PAWL_CHECK(lease.segments <= kSegmentsMax, "a lease has more than kSegmentsMax segments");
  put(out, lease.lease);
  out.u8(static_cast<std::uint8_t>(lease.guard));
  out.u8(lease.endpoint);
  out.u16(lease.segments);
  out.u32(0);
  out.u64(lease.word_key);
  out.u64(lease.word_address);
  out.bytes(segments);
}

namespace {

bool check_segments(const LeaseDescriptor& lease, std::span<const std::byte> segments,
                    std::uint64_t& inline_bytes, const char*& why) {
  const bool windows = lease.guard == Guard::window || lease.guard == Guard::window_verify;
  const KeyKind expected = windows ? KeyKind::window : KeyKind::region;
  inline_bytes = 0;
  for (std::size_t i = 0; i < lease.segments; ++i) {
    SegmentDescriptor segment;
    if (!decode_segment(segments, i, segment, why)) return false;
    if (segment.inline_bytes) {
      // At most kSegmentsMax numbers below 2^32 each: no overflow.
      if (segment.length > UINT32_MAX) return refuse(why, "an inline segment is 4 GiB or longer");
      inline_bytes += segment.length;
    }
    if (segment.kind == KeyKind::none) continue;
    if (lease.lease.generation == 0) {
      return refuse(why, "a segment has a key although nothing is lent");
    }
    if (segment.kind != expected) {
      return refuse(why, "a segment's key is not of the kind that the lease's guard uses");
    }
  }
  return true;
}

}  // namespace

bool get_descriptor(Reader& in, LeaseDescriptor& lease, std::span<const std::byte>& segments,
                    std::uint64_t& inline_bytes, const char*& why) {
  lease.lease = get_lease_name(in);
  const std::uint8_t guard = in.u8();
  lease.endpoint = in.u8();
  lease.segments = in.u16();
  in.skip(sizeof(std::uint32_t));
  lease.word_key = in.u64();
  lease.word_address = in.u64();
  if (!in.ok()) return refuse(why, kShort);
  if (!guard_from_wire(guard, lease.guard)) return refuse(why, "a lease has an unknown guard");
  if (lease.segments > kSegmentsMax) return refuse(why, "a lease has more than 1024 segments");
  segments = in.bytes(std::size_t{lease.segments} * SegmentDescriptor::kBytes);
  if (!in.ok()) return refuse(why, kShort);
  return check_segments(lease, segments, inline_bytes, why);
}

bool metadata_well_formed(std::span<const std::byte> encoded) {
  Reader reader(encoded);
  while (reader.ok() && reader.remaining() > 0) {
    const std::uint16_t key_bytes = reader.u16();
    const std::uint32_t value_bytes = reader.u32();
    reader.skip(key_bytes);
    reader.skip(value_bytes);
  }
  return reader.ok();
}

static_assert(kSegmentsMax == 1024, "the sentence above and docs/wire.md name the limit");

}  // namespace parts
}  // namespace pawl::rpc
