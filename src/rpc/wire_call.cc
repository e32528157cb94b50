// SPDX-License-Identifier: Apache-2.0
#include "rpc/wire.h"
#include "rpc/wire_parts.h"

namespace pawl::rpc {

using parts::refuse;

namespace {

constexpr std::size_t kTraceBytes = 25;

// Request options: they say what follows the fixed part, so none may be ignored.
constexpr std::uint8_t kOptionTrace = 1;
constexpr std::uint8_t kOptionMetadata = 2;
constexpr std::uint8_t kOptionBulk = 4;
constexpr std::uint8_t kOptionOneWay = 8;
constexpr std::uint8_t kRequestOptions =
    kOptionTrace | kOptionMetadata | kOptionBulk | kOptionOneWay;

// Response options.
constexpr std::uint8_t kOptionDescriptor = 1;

void put_trace(Writer& out, const TraceContext& trace) {
  out.bytes(std::as_bytes(std::span(trace.trace_id)));
  out.bytes(std::as_bytes(std::span(trace.span_id)));
  out.u8(trace.flags);
}

TraceContext get_trace(Reader& in) {
  TraceContext trace;
  for (std::uint8_t& byte : trace.trace_id) byte = in.u8();
  for (std::uint8_t& byte : trace.span_id) byte = in.u8();
  trace.flags = in.u8();
  return trace;
}

bool get_payload(Reader& in, std::uint32_t payload_bytes, std::uint64_t inline_bytes,
                 std::span<const std::byte>& payload, const char*& why) {
  payload = in.bytes(payload_bytes);
  if (!parts::finish(in, why)) return false;
  if (inline_bytes > payload_bytes) {
    return refuse(why, "inline segments have more bytes than the payload");
  }
  return true;
}

}  // namespace

// --- request -------------------------------------------------------------------------------------

std::size_t encoded_bytes(const Request& body) {
  return Request::kFixedBytes + (body.trace.has_value() ? kTraceBytes : 0) + body.metadata.size() +
         parts::descriptor_bytes(body.lease, body.segments) + body.payload.size();
}

std::size_t encode(const Request& body, std::span<std::byte> out) {
  PAWL_CHECK(body.metadata.size() <= kMetadataBytesMax,
             "a request has more than kMetadataBytesMax bytes of metadata");
  PAWL_CHECK(body.payload.size() <= body.payload_bytes,
             "a request has more payload than its payload_bytes");
  std::uint8_t options = 0;
  if (body.trace.has_value()) options |= kOptionTrace;
  if (!body.metadata.empty()) options |= kOptionMetadata;
  if (body.lease.has_value()) options |= kOptionBulk;
  if (body.one_way) options |= kOptionOneWay;
  Writer writer(out);
  writer.u64(body.method);
  writer.u64(body.remaining_us);
  writer.u32(body.tenant);
  writer.u8(static_cast<std::uint8_t>(body.priority));
  writer.u8(options);
  writer.u16(static_cast<std::uint16_t>(body.metadata.size()));
  writer.u32(body.payload_bytes);
  writer.u32(body.payload_crc);
  if (body.trace.has_value()) put_trace(writer, *body.trace);
  writer.bytes(body.metadata);
  if (body.lease.has_value()) parts::put_descriptor(writer, *body.lease, body.segments);
  writer.bytes(body.payload);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Request& out, const char*& why) {
  out = Request{};
  Reader reader(in);
  out.method = reader.u64();
  out.remaining_us = reader.u64();
  out.tenant = reader.u32();
  const std::uint8_t priority = reader.u8();
  const std::uint8_t options = reader.u8();
  const std::uint16_t metadata_bytes = reader.u16();
  out.payload_bytes = reader.u32();
  out.payload_crc = reader.u32();
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (priority > static_cast<std::uint8_t>(Priority::express)) {
    return refuse(why, "a request has an unknown priority");
  }
  out.priority = Priority{priority};
  if ((options & ~kRequestOptions) != 0) return refuse(why, "a request has an unknown option");
  out.one_way = (options & kOptionOneWay) != 0;
  if (metadata_bytes > kMetadataBytesMax) {
    return refuse(why, "a request has more than 8192 bytes of metadata");
  }
  if (((options & kOptionMetadata) != 0) != (metadata_bytes != 0)) {
    return refuse(why, "a request's metadata and its options disagree");
  }
  if ((options & kOptionTrace) != 0) out.trace = get_trace(reader);
  out.metadata = reader.bytes(metadata_bytes);
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (!parts::metadata_well_formed(out.metadata)) {
    return refuse(why, "a request's metadata is not well formed");
  }
  std::uint64_t inline_bytes = 0;
  if ((options & kOptionBulk) != 0) {
    out.lease.emplace();
    if (!parts::get_descriptor(reader, *out.lease, out.segments, inline_bytes, why)) return false;
  }
  return get_payload(reader, out.payload_bytes, inline_bytes, out.payload, why);
}

static_assert(kMetadataBytesMax == 8192, "the sentence above and docs/wire.md name the limit");

// --- response ------------------------------------------------------------------------------------

std::size_t encoded_bytes(const Response& body) {
  return Response::kFixedBytes + body.message.size() + body.detail.size() +
         parts::descriptor_bytes(body.lease, body.segments) + body.payload.size();
}

std::size_t encode(const Response& body, std::span<std::byte> out) {
  PAWL_CHECK(body.message.size() <= kMessageTextBytesMax,
             "a response's message is longer than kMessageTextBytesMax");
  PAWL_CHECK(body.detail.size() <= kDetailBytesMax,
             "a response's detail is longer than kDetailBytesMax");
  PAWL_CHECK(body.payload.size() <= body.payload_bytes,
             "a response has more payload than its payload_bytes");
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(body.code));
  writer.u8(static_cast<std::uint8_t>(body.ran));
  writer.u8(body.lease.has_value() ? kOptionDescriptor : 0);
  writer.u8(0);
  writer.u32(static_cast<std::uint32_t>(body.native));
  writer.u16(static_cast<std::uint16_t>(body.message.size()));
  writer.u16(0);
  writer.u32(static_cast<std::uint32_t>(body.detail.size()));
  writer.u32(body.payload_bytes);
  writer.u32(body.payload_crc);
  writer.u64(0);
  writer.text(body.message);
  writer.bytes(body.detail);
  if (body.lease.has_value()) parts::put_descriptor(writer, *body.lease, body.segments);
  writer.bytes(body.payload);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Response& out, const char*& why) {
  out = Response{};
  Reader reader(in);
  const std::uint8_t code = reader.u8();
  const std::uint8_t ran = reader.u8();
  const std::uint8_t options = reader.u8();
  reader.skip(1);
  out.native = static_cast<std::int32_t>(reader.u32());
  const std::uint16_t message_bytes = reader.u16();
  reader.skip(sizeof(std::uint16_t));
  const std::uint32_t detail_bytes = reader.u32();
  out.payload_bytes = reader.u32();
  out.payload_crc = reader.u32();
  reader.skip(sizeof(std::uint64_t));
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (!parts::code_from_wire(code, out.code)) out.native = code;
  if (!parts::ran_from_wire(ran, out.ran)) {
    return refuse(why, "a response does not say no, unknown or yes to whether its handler ran");
  }
  if ((options & ~kOptionDescriptor) != 0) return refuse(why, "a response has an unknown option");
  if (message_bytes > kMessageTextBytesMax) {
    return refuse(why, "a response's message is longer than 1024 bytes");
  }
  if (detail_bytes > kDetailBytesMax) {
    return refuse(why, "a response's detail is longer than 4096 bytes");
  }
  out.message = reader.text(message_bytes);
  out.detail = reader.bytes(detail_bytes);
  if (!reader.ok()) return refuse(why, parts::kShort);
  std::uint64_t inline_bytes = 0;
  if ((options & kOptionDescriptor) != 0) {
    out.lease.emplace();
    if (!parts::get_descriptor(reader, *out.lease, out.segments, inline_bytes, why)) return false;
  }
  return get_payload(reader, out.payload_bytes, inline_bytes, out.payload, why);
}

static_assert(kMessageTextBytesMax == 1024 && kDetailBytesMax == 4096,
              "the sentences above and docs/wire.md name the limits");

// --- fragment ------------------------------------------------------------------------------------

std::size_t encode(const Fragment& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u32(body.offset);
  writer.u32(body.body_bytes);
  writer.bytes(body.bytes);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Fragment& out, const char*& why) {
  Reader reader(in);
  out.offset = reader.u32();
  out.body_bytes = reader.u32();
  out.bytes = reader.rest();
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (out.bytes.empty()) return refuse(why, "a fragment has no bytes");
  if (std::uint64_t{out.offset} + out.bytes.size() > out.body_bytes) {
    return refuse(why, "a fragment goes beyond the end of its body");
  }
  return true;
}

}  // namespace pawl::rpc
