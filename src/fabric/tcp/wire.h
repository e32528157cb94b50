// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// The wire of the software NIC: docs/wire-tcp.md. Pure functions over bytes.
namespace pawl::fabric::tcp {

// --- handshake ---------------------------------------------------------------------------------

inline constexpr std::uint64_t kMagic = 0x31504354'4c574150;  // "PAWLTCP1"
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;
inline constexpr std::size_t kGreetingBytes = 48;

enum class GreetingKind : std::uint8_t { connect = 1, accept = 2, reject = 3 };

/// What an end tells about itself: the most that it takes, serves or asks for.
struct Limits {
  std::uint32_t message_bytes_max = 0;
  std::uint32_t read_bytes_max = 0;
  std::uint32_t read_depth = 0;       ///< READ requests outstanding that this end serves
  std::uint32_t piece_bytes_max = 0;  ///< of one piece that this end takes
};

struct Greeting {
  GreetingKind kind = GreetingKind::connect;
  std::uint16_t hello_bytes = 0;  ///< they follow
  Limits limits;
};

void encode_greeting(const Greeting& greeting, std::span<std::byte, kGreetingBytes> out);

/// nullptr, or a sentence that says what is wrong.
const char* decode_greeting(std::span<const std::byte, kGreetingBytes> in, Greeting& out);

// --- frames ------------------------------------------------------------------------------------

enum class FrameType : std::uint8_t {
  message = 1,       ///< length bytes follow; value = messages received so far (cumulative)
  ack = 2,           ///< value = messages received so far (cumulative)
  read_request = 3,  ///< value = read id, length = bytes wanted; key and address follow
  read_piece = 4,    ///< value = read id; length bytes and a trailer follow
  fault = 5,         ///< the sender's end goes to ERR: status = FaultCode, length bytes of text
};

enum class FaultCode : std::uint8_t {
  protocol = 1,  ///< the other end broke this protocol
  receive = 2,   ///< a message met a receive that cannot take it
};

/// How a piece ended. Anything but `ok` is the READ's last piece.
enum class PieceStatus : std::uint8_t {
  ok = 0,
  refused = 1,  ///< key, bounds or endpoint: no bytes were sent
  revoked = 2,  ///< the key died on the way: the rest of the bytes are zeros
};

inline constexpr std::size_t kFrameBytes = 16;
inline constexpr std::size_t kReadRequestBytes = 32;  ///< with key and address
inline constexpr std::size_t kTrailerBytes = 8;

struct FrameHeader {
  FrameType type = FrameType::message;
  std::uint8_t status = 0;
  std::uint32_t length = 0;
  std::uint64_t value = 0;
};

/// What follows the header of a READ request.
struct ReadTarget {
  std::uint64_t key = 0;
  std::uint64_t address = 0;
};

struct Trailer {
  std::uint32_t read_id_low = 0;
  PieceStatus status = PieceStatus::ok;
};

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> out);
const char* decode_frame(std::span<const std::byte, kFrameBytes> in, FrameHeader& out);

void encode_read_target(const ReadTarget& target, std::span<std::byte, 16> out);
ReadTarget decode_read_target(std::span<const std::byte, 16> in);

void encode_trailer(const Trailer& trailer, std::span<std::byte, kTrailerBytes> out);
const char* decode_trailer(std::span<const std::byte, kTrailerBytes> in, Trailer& out);

}  // namespace pawl::fabric::tcp
