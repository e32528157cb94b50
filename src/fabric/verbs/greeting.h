// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// The words of the bootstrap connection: docs/wire-verbs.md. Pure functions over bytes.
namespace pawl::fabric::verbs {

inline constexpr std::uint64_t kMagic = 0x31425256'4c574150;  // "PAWLVRB1"
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;
inline constexpr std::size_t kGreetingBytes = 64;

enum class GreetingKind : std::uint8_t {
  request = 1,  ///< the connecting end asks, with its queue pair and the application's hello
  accept = 2,   ///< the answer, with the other queue pair
  reject = 3,   ///< the application refused
  ready = 4,    ///< the connecting end's last word: both queue pairs can carry work
  end = 5,      ///< the sender's queue pair is in ERR
};

enum class LinkLayer : std::uint8_t { infiniband = 1, ethernet = 2 };

/// Why a queue pair is in ERR.
enum class EndReason : std::uint8_t {
  closed = 0,   ///< the application closed it, or took it to ERR
  failed = 1,   ///< work failed there
  hung_up = 2,  ///< this end's bootstrap connection broke
};

struct Greeting {
  GreetingKind kind = GreetingKind::request;
  std::uint64_t attempt = 0;  ///< random, the connecting end's; every answer repeats it
  // request and accept:
  LinkLayer link_layer = LinkLayer::ethernet;
  std::uint8_t mtu = 0;              ///< 1 … 5 for 256 … 4096 bytes
  std::uint32_t qp_number = 0;       ///< 24 bits
  std::uint32_t psn = 0;             ///< 24 bits, random: of the sender's first packet
  std::uint16_t read_initiator = 0;  ///< READs outstanding that the sender will have
  std::uint16_t read_responder = 0;  ///< and that it can serve
  std::uint16_t lid = 0;             ///< InfiniBand
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t hello_bytes = 0;  ///< they follow; request, accept and reject
  EndReason reason = EndReason::closed;
};

void encode_greeting(const Greeting& greeting, std::span<std::byte, kGreetingBytes> out);

/// nullptr, or a sentence that says what is wrong.
const char* decode_greeting(std::span<const std::byte, kGreetingBytes> in, Greeting& out);

}  // namespace pawl::fabric::verbs
