// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pawl/guard.h"
#include "pawl/result.h"
#include "rpc/wire.h"

namespace pawl::rpc {

/// The hello that travels with connect and accept of every endpoint: u32 magic, u8 major, u8 minor,
/// u16 reserved, then TLVs {u16 type, u32 length, bytes}. Types with the high bit set are required:
/// a receiver that does not know one refuses the connection and names it; other unknown ones are
/// skipped. Numbers and layouts: docs/wire.md.
enum class EndpointKind : std::uint8_t { control = 1, data = 2 };

/// Which way the bytes of a data endpoint flow; the reader posts READs on it.
enum class DataRole : std::uint8_t { connecting_side_reads = 0, accepting_side_reads = 1 };

/// What a control endpoint has at least: every session frame fits in a receive, and returning
/// session credits does not itself use up as many.
inline constexpr std::uint32_t kReceiveBytesMin = 1024;
inline constexpr std::uint32_t kSessionMessagesMin = 8;

struct HandshakeLimits {
  std::uint32_t receive_bytes = 0;  ///< size of one receive on control endpoints
  std::uint32_t call_messages = 0;  ///< call-class messages before credit
  std::uint32_t session_messages = 0;
  std::uint32_t message_bytes_max = 0;  ///< one request or response, all fragments
  std::uint32_t read_depth = 0;         ///< READs this side serves per endpoint
};

/// The bit of a guard in Handshake::guards: its number, or number - 32 for the baselines (from 64).
constexpr std::uint64_t guard_bit(Guard guard) {
  const auto number = static_cast<unsigned>(guard);
  return std::uint64_t{1} << (number < 64 ? number : number - 32);
}

struct Handshake {
  std::uint8_t minor = kWireMinor;  ///< of the sender; a connection speaks the smaller of both
  EndpointKind kind = EndpointKind::control;
  std::uint64_t incarnation = 0;  ///< of the sender's process, random
  std::uint64_t epoch = 0;        ///< of the connection, chosen by the accepting side
  std::uint64_t guards = 0;       ///< guard_bit of each that it can do (as owner and reader)
  HandshakeLimits limits;
  std::string node_name;
  std::uint16_t auth_method = 0;  ///< 0 none, 1 shared token
  std::vector<std::byte> auth;    ///< nonce or proof
  // How the accepting side names the connection, in its control hello; the connecting side says it
  // back, with the rest, in the hello of each data endpoint.
  std::uint64_t connection = 0;
  std::uint64_t connection_secret = 0;
  DataRole role = DataRole::connecting_side_reads;
  std::uint8_t endpoint_index = 0;
  std::uint32_t endpoint_incarnation = 0;  ///< counts the endpoints opened under this index
  // In a reject: why.
  Status refusal;
};

inline constexpr std::size_t kNodeNameBytesMax = 128;
inline constexpr std::size_t kAuthBytesMax = 1024;

/// At most fabric::kHelloBytesMax bytes: the name and the text of a refusal are cut to their
/// limits (kNodeNameBytesMax, kMessageTextBytesMax); `auth` must keep to its own.
std::vector<std::byte> encode_handshake(const Handshake& handshake);

/// protocol_error that says what was wrong (magic, version with both numbers, which TLV), or
/// unimplemented for an unknown required TLV, with its number.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

/// What the Hello frames of both sides repeat, so that a changed hello closes the connection:
/// CRC32C of the connecting side's hello, in the high half that of the accepting side's.
std::uint64_t handshake_transcript(std::span<const std::byte> connecting,
                                   std::span<const std::byte> accepting);

}  // namespace pawl::rpc
