// SPDX-License-Identifier: Apache-2.0
#include "pawl/bulk.h"
#include "rpc/wire.h"
#include "rpc/wire_parts.h"

namespace pawl::rpc {

using parts::refuse;

namespace {

constexpr std::size_t kBitmapBytesMax = kSegmentsMax / 8;

/// A byte that is 0 or 1.
bool get_bool(Reader& in, bool& out) {
  const std::uint8_t value = in.u8();
  out = value == 1;
  return value <= 1;
}

}  // namespace

std::size_t encode(const Hello& body, std::span<std::byte> out) {
  PAWL_CHECK(body.proof.size() <= kProofBytesMax, "a proof is longer than kProofBytesMax");
  Writer writer(out);
  writer.u64(body.epoch);
  writer.u64(body.incarnation);
  writer.u64(body.transcript);
  writer.bytes(body.proof);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Hello& out, const char*& why) {
  Reader reader(in);
  out.epoch = reader.u64();
  out.incarnation = reader.u64();
  out.transcript = reader.u64();
  out.proof = reader.rest();
  if (!reader.ok()) return refuse(why, parts::kShort);
  if (out.proof.size() > kProofBytesMax) {
    return refuse(why, "a hello's proof is longer than 256 bytes");
  }
  return true;
}

static_assert(kProofBytesMax == 256, "the sentence above and docs/wire.md name the limit");

std::size_t encode(const Confirm& body, std::span<std::byte> out) {
  Writer writer(out);
  parts::put(writer, body.lease);
  writer.u64(body.epoch);
  writer.u8(body.release ? 1 : 0);
  writer.zeros(7);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Confirm& out, const char*& why) {
  Reader reader(in);
  out.lease = parts::get_lease_name(reader);
  out.epoch = reader.u64();
  const bool known = get_bool(reader, out.release);
  reader.skip(7);
  if (!parts::finish(reader, why)) return false;
  if (!known) return refuse(why, "a confirm's release is neither 0 nor 1");
  return true;
}

std::size_t encode(const ConfirmAnswer& body, std::span<std::byte> out) {
  PAWL_CHECK(body.bitmap.size() <= kBitmapBytesMax, "a bitmap has more than kSegmentsMax bits");
  Writer writer(out);
  parts::put(writer, body.lease);
  writer.u8(body.valid ? 1 : 0);
  writer.u8(0);
  writer.u16(static_cast<std::uint16_t>(body.bitmap.size()));
  writer.u32(0);
  writer.bytes(body.bitmap);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, ConfirmAnswer& out, const char*& why) {
  Reader reader(in);
  out.lease = parts::get_lease_name(reader);
  const bool known = get_bool(reader, out.valid);
  reader.skip(1);
  const std::uint16_t bitmap_bytes = reader.u16();
  reader.skip(sizeof(std::uint32_t));
  out.bitmap = reader.bytes(bitmap_bytes);
  if (!parts::finish(reader, why)) return false;
  if (!known) return refuse(why, "a confirm answer is neither valid nor stale");
  if (out.bitmap.size() > kBitmapBytesMax) {
    return refuse(why, "a confirm answer's bitmap is longer than 128 bytes");
  }
  return true;
}

static_assert(kBitmapBytesMax == 128, "the sentence above and docs/wire.md name the limit");

std::size_t encode(const Release& body, std::span<std::byte> out) {
  Writer writer(out);
  parts::put(writer, body.lease);
  writer.u64(body.epoch);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Release& out, const char*& why) {
  Reader reader(in);
  out.lease = parts::get_lease_name(reader);
  out.epoch = reader.u64();
  return parts::finish(reader, why);
}

std::size_t encode(const Cancel& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(body.reason));
  writer.u8(body.endpoint);
  writer.u16(body.incarnation);
  writer.u32(body.message);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Cancel& out, const char*& why) {
  Reader reader(in);
  (void)parts::code_from_wire(reader.u8(), out.reason);  // unknown: internal
  out.endpoint = reader.u8();
  out.incarnation = reader.u16();
  out.message = reader.u32();
  return parts::finish(reader, why);
}

std::size_t encode(const CancelAck& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u8(static_cast<std::uint8_t>(body.ran));
  writer.zeros(7);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, CancelAck& out, const char*& why) {
  Reader reader(in);
  const bool known = parts::ran_from_wire(reader.u8(), out.ran);
  reader.skip(7);
  if (!parts::finish(reader, why)) return false;
  if (!known) {
    return refuse(why, "a cancel's answer does not say whether the handler ran");
  }
  return true;
}

std::size_t encode(const Goaway& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u64(body.grace_us);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Goaway& out, const char*& why) {
  Reader reader(in);
  out.grace_us = reader.u64();
  return parts::finish(reader, why);
}

std::size_t encode(const Ping& body, std::span<std::byte> out) {
  Writer writer(out);
  writer.u64(body.nonce);
  return parts::finish(writer);
}

bool decode(std::span<const std::byte> in, Ping& out, const char*& why) {
  Reader reader(in);
  out.nonce = reader.u64();
  return parts::finish(reader, why);
}

}  // namespace pawl::rpc
