// SPDX-License-Identifier: Apache-2.0
#include "rpc/handshake.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "fabric/fabric.h"
#include "rpc/wire_parts.h"

namespace pawl::rpc {

namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kTlvHeadBytes = 6;
constexpr std::uint16_t kRequiredBit = 0x8000;

// The numbers are wire format.
enum class Tlv : std::uint16_t {
  kind = 0x8001,
  incarnation = 0x0002,
  epoch = 0x0003,
  guards = 0x8004,
  limits = 0x0005,
  node_name = 0x0006,
  auth = 0x0007,
  connection = 0x8008,
  refusal = 0x0009,
};

// Reserved, refused: their names, for the sentence.
constexpr std::uint16_t kTlvTls = 0x8010;
constexpr std::uint16_t kTlvStreams = 0x8011;
constexpr std::uint16_t kTlvCompression = 0x8012;

constexpr std::size_t kLimitsBytes = 20;
constexpr std::size_t kConnectionBytes = 24;
constexpr std::size_t kRefusalHeadBytes = 8;

static_assert(kHeaderBytes + 9 * kTlvHeadBytes + 32 + kLimitsBytes + kNodeNameBytesMax + 2 +
                      kAuthBytesMax + kConnectionBytes + kRefusalHeadBytes + kMessageTextBytesMax <=
                  fabric::kHelloBytesMax,
              "every handshake fits into what a fabric carries");

/// The longest front of `text` that has at most `bytes_max` bytes and splits no UTF-8 sequence.
std::string_view cut(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

void begin(Writer& out, Tlv type, std::size_t bytes) {
  out.u16(static_cast<std::uint16_t>(type));
  out.u32(static_cast<std::uint32_t>(bytes));
}

void put_number(Writer& out, Tlv type, std::uint64_t value) {
  begin(out, type, sizeof(value));
  out.u64(value);
}

void put_limits(Writer& out, const HandshakeLimits& limits) {
  begin(out, Tlv::limits, kLimitsBytes);
  out.u32(limits.receive_bytes);
  out.u32(limits.call_messages);
  out.u32(limits.session_messages);
  out.u32(limits.message_bytes_max);
  out.u32(limits.read_depth);
}

void put_connection(Writer& out, const Handshake& handshake) {
  begin(out, Tlv::connection, kConnectionBytes);
  out.u64(handshake.connection);
  out.u64(handshake.connection_secret);
  out.u8(static_cast<std::uint8_t>(handshake.role));
  out.u8(handshake.endpoint_index);
  out.u16(0);
  out.u32(handshake.endpoint_incarnation);
}

void put_refusal(Writer& out, const Status& refusal) {
  const std::string_view text = cut(refusal.what(), kMessageTextBytesMax);
  begin(out, Tlv::refusal, kRefusalHeadBytes + text.size());
  out.u8(static_cast<std::uint8_t>(refusal.code()));
  out.u8(static_cast<std::uint8_t>(refusal.ran()));
  out.u16(0);
  out.u32(static_cast<std::uint32_t>(refusal.native()));
  out.text(text);
}

Status malformed(std::string detail) {
  return Status::with_detail(Code::protocol_error, "handshake: " + std::move(detail));
}

std::string hex(std::uint32_t number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "0x";
  bool started = false;
  for (int shift = 28; shift >= 0; shift -= 4) {
    const std::uint32_t digit = (number >> shift) & 0xf;
    started = started || digit != 0 || shift == 0;
    if (started) text += kDigits[digit];
  }
  return text;
}

Status unknown_required(std::uint16_t type) {
  std::string name = type == kTlvTls           ? " (TLS)"
                     : type == kTlvStreams     ? " (streams)"
                     : type == kTlvCompression ? " (compression)"
                                               : "";
  return Status::with_detail(Code::unimplemented, "handshake: the peer requires TLV " + hex(type) +
                                                      name + ", which this version does not know");
}

Status check_header(Reader& in, Handshake& out) {
  const std::uint32_t magic = in.u32();
  const std::uint8_t major = in.u8();
  out.minor = in.u8();
  in.skip(sizeof(std::uint16_t));
  if (!in.ok()) return malformed("it has fewer than 8 bytes; is the peer a Pawl node?");
  if (magic != kWireMagic) {
    return malformed("the magic number is " + hex(magic) + " instead of " + hex(kWireMagic) +
                     "; the peer is not a Pawl node");
  }
  if (major != kWireMajor) {
    return malformed("the peer speaks wire version " + std::to_string(major) + "." +
                     std::to_string(out.minor) + ", this node " + std::to_string(kWireMajor) + "." +
                     std::to_string(kWireMinor) + "; run versions of the same major");
  }
  return {};
}

/// Reads the TLVs, remembering which were there.
class TlvDecoder {
 public:
  explicit TlvDecoder(Handshake& out) : out_(out) {}

  Status read_all(Reader& in) {
    while (in.remaining() > 0) {
      const std::uint16_t type = in.u16();
      const std::uint32_t bytes = in.u32();
      const std::span<const std::byte> value = in.bytes(bytes);
      if (!in.ok()) return malformed("it ends within TLV " + hex(type));
      if (Status read = read_one(type, value); !read.ok()) return read;
    }
    return {};
  }
  [[nodiscard]] bool seen(Tlv type) const { return (seen_ & bit(type)) != 0; }

 private:
  static std::uint32_t bit(Tlv type) {
    return std::uint32_t{1} << (static_cast<std::uint16_t>(type) & 0x1f);
  }
  Status read_one(std::uint16_t type, std::span<const std::byte> value);
  bool read_value(Tlv type, Reader& in);
  bool read_kind(Reader& in);
  bool read_limits(Reader& in);
  bool read_connection(Reader& in);
  bool read_refusal(Reader& in);

  Handshake& out_;
  std::uint32_t seen_ = 0;
};

Status TlvDecoder::read_one(std::uint16_t type, std::span<const std::byte> value) {
  switch (const Tlv tlv{type}; tlv) {
    case Tlv::kind:
    case Tlv::incarnation:
    case Tlv::epoch:
    case Tlv::guards:
    case Tlv::limits:
    case Tlv::node_name:
    case Tlv::auth:
    case Tlv::connection:
    case Tlv::refusal: {
      if (seen(tlv)) return malformed("TLV " + hex(type) + " is there twice");
      seen_ |= bit(tlv);
      Reader in(value);
      if (!read_value(tlv, in) || !in.done()) {
        return malformed("TLV " + hex(type) + " of " + std::to_string(value.size()) +
                         " bytes is not well formed");
      }
      return {};
    }
  }
  return (type & kRequiredBit) != 0 ? unknown_required(type) : Status();
}

bool TlvDecoder::read_value(Tlv type, Reader& in) {
  switch (type) {
    case Tlv::kind:
      return read_kind(in);
    case Tlv::incarnation:
      out_.incarnation = in.u64();
      return true;
    case Tlv::epoch:
      out_.epoch = in.u64();
      return true;
    case Tlv::guards:
      out_.guards = in.u64();
      return true;
    case Tlv::limits:
      return read_limits(in);
    case Tlv::node_name:
      if (in.remaining() > kNodeNameBytesMax) return false;
      out_.node_name = in.text(in.remaining());
      return true;
    case Tlv::auth: {
      out_.auth_method = in.u16();
      const std::span<const std::byte> blob = in.rest();
      if (blob.size() > kAuthBytesMax) return false;
      out_.auth.assign(blob.begin(), blob.end());
      return true;
    }
    case Tlv::connection:
      return read_connection(in);
    case Tlv::refusal:
      return read_refusal(in);
  }
  return false;
}

bool TlvDecoder::read_kind(Reader& in) {
  const std::uint8_t kind = in.u8();
  out_.kind = EndpointKind{kind};
  return out_.kind == EndpointKind::control || out_.kind == EndpointKind::data;
}

bool TlvDecoder::read_limits(Reader& in) {
  out_.limits.receive_bytes = in.u32();
  out_.limits.call_messages = in.u32();
  out_.limits.session_messages = in.u32();
  out_.limits.message_bytes_max = in.u32();
  out_.limits.read_depth = in.u32();
  return true;
}

bool TlvDecoder::read_connection(Reader& in) {
  out_.connection = in.u64();
  out_.connection_secret = in.u64();
  const std::uint8_t role = in.u8();
  out_.endpoint_index = in.u8();
  in.skip(sizeof(std::uint16_t));
  out_.endpoint_incarnation = in.u32();
  if (role > static_cast<std::uint8_t>(DataRole::accepting_side_reads)) return false;
  out_.role = DataRole{role};
  return true;
}

bool TlvDecoder::read_refusal(Reader& in) {
  const std::uint8_t number = in.u8();
  Ran ran = Ran::no;
  if (!parts::ran_from_wire(in.u8(), ran)) return false;
  in.skip(sizeof(std::uint16_t));
  auto native = static_cast<std::int32_t>(in.u32());
  const std::string_view text = in.text(in.remaining());
  if (!in.ok() || text.size() > kMessageTextBytesMax) return false;
  Code code = Code::internal;
  if (!parts::code_from_wire(number, code)) native = number;
  if (code == Code::ok) return false;
  out_.refusal = Status::with_detail(code, std::string(text), ran, native);
  return true;
}

Status check_limits(const HandshakeLimits& limits) {
  if (limits.receive_bytes < kReceiveBytesMin) {
    return malformed("receive_bytes is " + std::to_string(limits.receive_bytes) +
                     ", the least is " + std::to_string(kReceiveBytesMin));
  }
  if (limits.call_messages == 0) return malformed("call_messages is 0");
  if (limits.session_messages < kSessionMessagesMin) {
    return malformed("session_messages is " + std::to_string(limits.session_messages) +
                     ", the least is " + std::to_string(kSessionMessagesMin));
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode_handshake(const Handshake& handshake) {
  PAWL_CHECK(handshake.auth.size() <= kAuthBytesMax,
             "an authentication blob is longer than kAuthBytesMax");
  std::vector<std::byte> bytes(fabric::kHelloBytesMax);
  Writer out(bytes);
  out.u32(kWireMagic);
  out.u8(kWireMajor);
  out.u8(handshake.minor);
  out.u16(0);
  begin(out, Tlv::kind, 1);
  out.u8(static_cast<std::uint8_t>(handshake.kind));
  put_number(out, Tlv::incarnation, handshake.incarnation);
  put_number(out, Tlv::epoch, handshake.epoch);
  put_number(out, Tlv::guards, handshake.guards);
  put_limits(out, handshake.limits);
  const std::string_view name = cut(handshake.node_name, kNodeNameBytesMax);
  begin(out, Tlv::node_name, name.size());
  out.text(name);
  begin(out, Tlv::auth, sizeof(std::uint16_t) + handshake.auth.size());
  out.u16(handshake.auth_method);
  out.bytes(handshake.auth);
  if (handshake.kind == EndpointKind::data || handshake.connection != 0) {
    put_connection(out, handshake);
  }
  if (!handshake.refusal.ok()) put_refusal(out, handshake.refusal);
  bytes.resize(parts::finish(out));
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Handshake out;
  if (Status header = check_header(in, out); !header.ok()) return header;
  TlvDecoder tlvs(out);
  if (Status read = tlvs.read_all(in); !read.ok()) return read;
  if (tlvs.seen(Tlv::refusal)) return out;
  if (!tlvs.seen(Tlv::kind)) return malformed("the kind of the endpoint (TLV 0x8001) is missing");
  if (out.kind == EndpointKind::data) {
    if (!tlvs.seen(Tlv::connection)) {
      return malformed("it does not say whose data endpoint it is (TLV 0x8008)");
    }
    return out;
  }
  if (Status limits = check_limits(out.limits); !limits.ok()) return limits;
  return out;
}

std::uint64_t handshake_transcript(std::span<const std::byte> connecting,
                                   std::span<const std::byte> accepting) {
  return crc32c(connecting) | (std::uint64_t{crc32c(accepting)} << 32);
}

}  // namespace pawl::rpc
