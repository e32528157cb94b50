// SPDX-License-Identifier: Apache-2.0
#include "rpc/wire_recovery.h"

#include "rpc/wire_parts.h"

namespace pawl::rpc {

using parts::refuse;

std::size_t encode(const DataLost& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(body.endpoint);
  writer.u8(static_cast<std::uint8_t>(body.role));
  writer.u16(0);
  writer.u32(body.incarnation);
  writer.u64(0);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, DataLost& out, const char*& why) {
  Reader reader(in);
  out.endpoint = reader.u8();
  const std::uint8_t role = reader.u8();
  reader.skip(sizeof(std::uint16_t));
  out.incarnation = reader.u32();
  reader.skip(sizeof(std::uint64_t));
  if (!parts::finish(reader, why)) return false;
  if (role > static_cast<std::uint8_t>(DataRole::accepting_side_reads)) {
    return refuse(why, "a lost data endpoint has an unknown role");
  }
  out.role = DataRole{role};
  return true;
}

std::size_t encode(const DataLostAnswer& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(body.fate));
  writer.zeros(7);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, DataLostAnswer& out, const char*& why) {
  Reader reader(in);
  const std::uint8_t fate = reader.u8();
  reader.skip(7);
  if (!parts::finish(reader, why)) return false;
  if (fate > static_cast<std::uint8_t>(RequestFate::answered)) {
    return refuse(why, "an answer tells an unknown fate of a request");
  }
  out.fate = RequestFate{fate};
  return true;
}

std::size_t encode(const Relend& body, std::span<std::byte> out) {
  Writer writer(out);
  parts::put(writer, body.lease);
  writer.u64(body.epoch);
  writer.u8(body.endpoint);
  writer.zeros(7);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Relend& out, const char*& why) {
  Reader reader(in);
  out.lease = parts::get_lease_name(reader);
  out.epoch = reader.u64();
  out.endpoint = reader.u8();
  reader.skip(7);
  return parts::finish(reader, why);
}

std::size_t encoded_bytes(const RelendAnswer& body) {
  return RelendAnswer::kFixedBytes + parts::descriptor_bytes(body.descriptor, body.segments);
}

std::size_t encode(const RelendAnswer& body, std::span<std::byte> out) {
  PAWL_CHECK((body.code == Code::ok) == body.descriptor.has_value(),
             "a lease is lent again with a descriptor, and only then has one");
  PAWL_CHECK(!body.descriptor.has_value() || body.descriptor->segments <= kRelendSegmentsMax,
             "a lease is lent again with more than kRelendSegmentsMax segments");
  Writer writer(out);
  parts::put(writer, body.lease);
  writer.u8(static_cast<std::uint8_t>(body.code));
  writer.zeros(7);
  if (body.descriptor.has_value()) {
    parts::put_descriptor(writer, *body.descriptor, body.segments);
  }
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, RelendAnswer& out, const char*& why) {
  out = RelendAnswer{};
  Reader reader(in);
  out.lease = parts::get_lease_name(reader);
  (void)parts::code_from_wire(reader.u8(), out.code);  // unknown: internal
  reader.skip(7);
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (out.code == Code::ok) {
    std::uint64_t inline_bytes = 0;
    out.descriptor.emplace();
    if (!parts::get_descriptor(reader, *out.descriptor, out.segments, inline_bytes, why)) {
      return false;
    }
    if (out.descriptor->segments > kRelendSegmentsMax) {
      return refuse(why, "a lease that is lent again has more than 16 segments");
    }
    if (inline_bytes != 0) return refuse(why, "a lease that is lent again has inline segments");
    if (out.descriptor->lease != out.lease) {
      return refuse(why, "a lease that is lent again has another name");
    }
  }
  return parts::finish(reader, why);
}

}  // namespace pawl::rpc
