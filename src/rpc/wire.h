// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bulk/descriptor.h"
#include "pawl/call.h"
#include "pawl/guard.h"
#include "pawl/status.h"

/// The messages and frames of Wire v1 as structs (docs/wire.md is the contract). Decoding checks
/// every length and enumerator; what it returns holds views into the message.
namespace pawl::rpc {

inline constexpr std::uint32_t kWireMagic = 0x4c574150;  // "PAWL"
inline constexpr std::uint8_t kWireMajor = 1;
inline constexpr std::uint8_t kWireMinor = 0;

/// A message is what one receive of the peer holds: a header and one or more frames.
/// Little-endian, 32 bytes: u8 class, u8 flags (critical half refused if unknown), u16 frames
/// (not 0), u32 bytes after the header, u32 call messages received (cumulative, modulo 2^32: the
/// credit that comes back), u32 session messages received, u64 hint of the flow control,
/// u64 reserved (0).
struct MessageHeader {
  static constexpr std::size_t kBytes = 32;
  enum class Class : std::uint8_t { call = 1, session = 2 };

  Class message_class = Class::call;
  std::uint16_t frames = 0;
  std::uint32_t bytes = 0;
  std::uint32_t call_messages_returned = 0;
  std::uint32_t session_messages_returned = 0;
  std::uint64_t hint = 0;
};

enum class FrameType : std::uint8_t {
  // Of a call: class call, under the call credits.
  request = 1,
  response = 2,
  fragment = 3,  ///< the next bytes of a request's or response's body
  // Of the session: any class, handled before any handler.
  hello = 16,  ///< first frame of each endpoint
  confirm = 17,
  confirm_answer = 18,
  release = 19,
  cancel = 20,
  cancel_ack = 21,
  credit = 22,  ///< nothing but the message header's counters
  goaway = 23,
  ping = 24,
  pong = 25,
  data_lost = 26,
  data_lost_answer = 27,
  relend = 28,
  relend_answer = 29,
  goaway_ack = 30,  ///< the sender's last request over this connection went out before it
};

/// 16 bytes: u8 type, u8 flags, u16 attempt, u32 bytes of the body, u64 call id. The body follows,
/// and the next header follows it without padding.
struct FrameHeader {
  static constexpr std::size_t kBytes = 16;

  FrameType type = FrameType::request;
  std::uint8_t flags = 0;
  std::uint16_t attempt = 0;
  std::uint32_t bytes = 0;
  std::uint64_t call = 0;
};

/// Flags of a frame. A receiver refuses a critical flag (high bit half) that it does not know.
inline constexpr std::uint8_t kFrameResponse = 0x01;  ///< fragment: of a response (else request)
inline constexpr std::uint8_t kFrameMore = 0x02;      ///< a Fragment that is not the last one
inline constexpr std::uint8_t kFrameChecksum = 0x04;  ///< payload_crc is set
inline constexpr std::uint8_t kFrameCriticalMask = 0xf0;

using bulk::KeyKind;
using bulk::LeaseDescriptor;
using bulk::LeaseName;
using bulk::SegmentDescriptor;

/// Body of a request. Fixed part 32 bytes: u64 method, u64 remaining deadline in µs (0xff… = none),
/// u32 tenant, u8 priority, u8 options (1 trace, 2 metadata, 4 bulk offered (an upload's
/// descriptor follows), 8 one way), u16 metadata bytes, u32 payload bytes in all, u32 CRC32C of
/// the payload. Then: trace (25 bytes: id 16, span 8, flags 1), metadata ({u16 key length,
/// u32 value length, key, value}…), lease descriptor and its segments, payload.
/// Decoding gives the whole payload; encoding writes `payload`, and the caller appends what is
/// missing to payload_bytes (so that it need not be in one piece).
struct Request {
  static constexpr std::size_t kFixedBytes = 32;

  std::uint64_t method = 0;
  std::uint64_t remaining_us = 0;
  std::uint32_t tenant = 0;
  Priority priority = Priority::interactive;
  bool one_way = false;
  std::optional<TraceContext> trace;
  std::span<const std::byte> metadata;  ///< encoded
  std::optional<LeaseDescriptor> lease;
  std::span<const std::byte> segments;  ///< encoded SegmentDescriptors
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
  std::span<const std::byte> payload;
};

/// Body of a response. Fixed part 32 bytes: u8 code, u8 ran, u8 options (1 bulk), u8 reserved,
/// i32 native, u16 message bytes, u16 reserved, u32 detail bytes, u32 payload bytes in all,
/// u32 CRC32C, u64 reserved. Then message, detail, lease descriptor and segments, payload.
/// Payload as in Request.
struct Response {
  static constexpr std::size_t kFixedBytes = 32;

  Code code = Code::ok;
  Ran ran = Ran::yes;
  std::int32_t native = 0;
  std::string_view message;
  std::span<const std::byte> detail;
  std::optional<LeaseDescriptor> lease;
  std::span<const std::byte> segments;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
  std::span<const std::byte> payload;
};
inline constexpr std::size_t kMessageTextBytesMax = 1024;
inline constexpr std::size_t kDetailBytesMax = 4096;

/// A part of a body that does not fit in one receive of the peer: u32 offset in the body, u32 bytes
/// of the body in all, then bytes. The first part (offset 0) is the body of the request or response
/// frame itself, flagged kFrameMore; fragment frames with the same call and attempt carry the
/// others, in order; all but the last have kFrameMore. A body that fits is never in parts.
struct Fragment {
  static constexpr std::size_t kFixedBytes = 8;
  std::uint32_t offset = 0;
  std::uint32_t body_bytes = 0;
  std::span<const std::byte> bytes;
};

/// First frame of each endpoint, from both sides: u64 epoch, u64 incarnation of the sender,
/// u64 transcript (control: handshake_transcript; data: the endpoint's incarnation; the same number
/// from both), then the authentication proof.
struct Hello {
  static constexpr std::size_t kFixedBytes = 24;
  std::uint64_t epoch = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t transcript = 0;
  std::span<const std::byte> proof;
};
inline constexpr std::size_t kProofBytesMax = 256;

/// 32 bytes: u64 lease id, u64 generation, u64 epoch, u8 release (1 = and the lease is done with),
/// 7 reserved. The frame's call and attempt are for diagnosis. Idempotent: one that names an ended
/// lease is answered `stale` and changes nothing.
struct Confirm {
  static constexpr std::size_t kBytes = 32;
  LeaseName lease;
  std::uint64_t epoch = 0;
  bool release = false;
};

/// u64 lease id, u64 generation, u8 valid, u8 reserved, u16 bitmap bytes, u32 reserved; then the
/// bitmap of segments that are still good (bit i of byte i/8), empty = all.
struct ConfirmAnswer {
  static constexpr std::size_t kFixedBytes = 24;
  LeaseName lease;
  bool valid = false;
  std::span<const std::byte> bitmap;
};

/// 24 bytes: u64 lease id, u64 generation, u64 epoch.
struct Release {
  static constexpr std::size_t kBytes = 24;
  LeaseName lease;
  std::uint64_t epoch = 0;
};

/// 8 bytes. cancel: u8 reason code, 7 reserved. cancel_ack: u8 ran, 7 reserved; sent once nothing
/// more will be read for the call.
struct Cancel {
  static constexpr std::size_t kBytes = 8;
  Code reason = Code::cancelled;
  /// Where the request went: 0 the control endpoint, else 1 + the index of a data endpoint, of this
  /// incarnation (its low bits), in its message with calls of this number.
  std::uint8_t endpoint = 0;
  std::uint16_t incarnation = 0;
  std::uint32_t message = 0;
};
struct CancelAck {
  static constexpr std::size_t kBytes = 8;
  Ran ran = Ran::unknown;
};

/// 8 bytes: u64 µs for which the sender goes on serving accepted calls and their leases
/// (0xff… = until they are over). New requests are answered with unavailable, ran = no.
struct Goaway {
  static constexpr std::size_t kBytes = 8;
  std::uint64_t grace_us = UINT64_MAX;
};

/// Ping and pong, 8 bytes: u64 nonce, echoed.
struct Ping {
  static constexpr std::size_t kBytes = 8;
  std::uint64_t nonce = 0;
};

// Encoding writes at the front of `out` and returns the bytes written; the caller made sure that
// they fit (asserted). Decoding returns false and sets `why` (a literal) when something is not well
// formed; a body must be consumed to its last byte. An unknown status code becomes
// Code::internal (in a response with the number as `native`); every other unknown number is
// refused.

std::size_t encode(const MessageHeader& header, std::span<std::byte> out);
/// `in` is the whole message: its length and frames must be what the header says.
bool decode(std::span<const std::byte> in, MessageHeader& out, const char*& why);
std::size_t encode(const FrameHeader& header, std::span<std::byte> out);
/// `in` starts at the header and goes to the end of the message: the body must lie in it.
bool decode(std::span<const std::byte> in, FrameHeader& out, const char*& why);
/// Takes the next frame off the front of `rest`, which is a message after its header.
bool next_frame(std::span<const std::byte>& rest, FrameHeader& header,
                std::span<const std::byte>& body, const char*& why);

std::size_t encoded_bytes(const Request& body);
std::size_t encode(const Request& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Request& out, const char*& why);
std::size_t encoded_bytes(const Response& body);
std::size_t encode(const Response& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Response& out, const char*& why);
std::size_t encode(const Fragment& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Fragment& out, const char*& why);
std::size_t encode(const Hello& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Hello& out, const char*& why);
std::size_t encode(const Confirm& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Confirm& out, const char*& why);
std::size_t encode(const ConfirmAnswer& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, ConfirmAnswer& out, const char*& why);
std::size_t encode(const Release& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Release& out, const char*& why);
std::size_t encode(const Cancel& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Cancel& out, const char*& why);
std::size_t encode(const CancelAck& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, CancelAck& out, const char*& why);
std::size_t encode(const Goaway& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Goaway& out, const char*& why);
std::size_t encode(const Ping& body, std::span<std::byte> out);
bool decode(std::span<const std::byte> in, Ping& out, const char*& why);

/// Segment i of an encoded list, which a decode of Request or Response has checked.
std::size_t encode(const SegmentDescriptor& segment, std::span<std::byte> out);
bool decode_segment(std::span<const std::byte> list, std::size_t i, SegmentDescriptor& out,
                    const char*& why);

/// Metadata as it travels; the caller refuses more than kMetadataBytesMax encoded bytes
/// (too_large). find: the first of that key; empty if absent.
std::size_t metadata_encoded_bytes(std::span<const Metadata> list);
std::size_t encode_metadata(std::span<const Metadata> list, std::span<std::byte> out);
std::string_view find_metadata(std::span<const std::byte> encoded, std::string_view key);

}  // namespace pawl::rpc
