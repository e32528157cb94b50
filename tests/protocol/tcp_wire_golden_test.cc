// SPDX-License-Identifier: Apache-2.0
// The bytes of the tcp fabric's wire, one fixture for each greeting, frame and trailer. A change
// here is a change of the wire: it needs a new minor or major version (docs/wire-tcp.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "fabric/tcp/wire.h"
#include "protocol/wire_bytes.h"

namespace pawl::fabric::tcp {
namespace {

using rpc::test::Bytes;
using rpc::test::from_hex;
using rpc::test::to_hex;

template <std::size_t N>
std::array<std::byte, N> fixed(const char* hex) {
  const Bytes bytes = from_hex(hex);
  EXPECT_EQ(bytes.size(), N);
  std::array<std::byte, N> out{};
  std::copy_n(bytes.begin(), std::min(N, bytes.size()), out.begin());
  return out;
}
template <std::size_t N>
std::string hex_of(const std::array<std::byte, N>& bytes) {
  return to_hex(Bytes(bytes.begin(), bytes.end()));
}
std::string hex_of(const char* hex) { return to_hex(from_hex(hex)); }

constexpr Limits kLimits{.message_bytes_max = 0x24232221,
                         .read_bytes_max = 0x34333231,
                         .read_depth = 0x44434241,
                         .piece_bytes_max = 0x54535251};

TEST(TcpWireGolden, Greetings) {
  const struct {
    GreetingKind kind;
    const char* hex;
  } kCases[] = {
      {GreetingKind::connect,
       "5041574c54435031 0100 0000 01 00 0302"
       "21222324 31323334 41424344 51525354 00000000000000000000000000000000"},
      {GreetingKind::accept,
       "5041574c54435031 0100 0000 02 00 0302"
       "21222324 31323334 41424344 51525354 00000000000000000000000000000000"},
      {GreetingKind::reject,
       "5041574c54435031 0100 0000 03 00 0302"
       "21222324 31323334 41424344 51525354 00000000000000000000000000000000"},
  };
  for (const auto& each : kCases) {
    std::array<std::byte, kGreetingBytes> bytes{};
    bytes.fill(std::byte{0xee});
    encode_greeting({.kind = each.kind, .hello_bytes = 0x0203, .limits = kLimits}, bytes);
    EXPECT_EQ(hex_of(bytes), hex_of(each.hex));
    Greeting greeting;
    ASSERT_EQ(decode_greeting(fixed<kGreetingBytes>(each.hex), greeting), nullptr);
    EXPECT_EQ(greeting.kind, each.kind);
    EXPECT_EQ(greeting.hello_bytes, 0x0203);
    EXPECT_EQ(greeting.limits.message_bytes_max, kLimits.message_bytes_max);
    EXPECT_EQ(greeting.limits.read_bytes_max, kLimits.read_bytes_max);
    EXPECT_EQ(greeting.limits.read_depth, kLimits.read_depth);
    EXPECT_EQ(greeting.limits.piece_bytes_max, kLimits.piece_bytes_max);
  }
}

// A later minor says more in what is reserved today: that is accepted.
TEST(TcpWireGolden, AGreetingOfALaterMinor) {
  Greeting greeting;
  EXPECT_EQ(decode_greeting(fixed<kGreetingBytes>("5041574c54435031 0100 0700 01 ff 0000"
                                                  "21222324 31323334 41424344 51525354"
                                                  "ffffffffffffffffffffffffffffffff"),
                            greeting),
            nullptr);
  EXPECT_NE(decode_greeting(fixed<kGreetingBytes>("5041574c54435031 0200 0000 01 00 0000"
                                                  "21222324 31323334 41424344 51525354"
                                                  "00000000000000000000000000000000"),
                            greeting),
            nullptr);
}

TEST(TcpWireGolden, Frames) {
  const struct {
    FrameHeader header;
    const char* hex;
  } kCases[] = {
      {{.type = FrameType::message, .length = 0x00100000, .value = 0x1817161514131211},
       "01 00 0000 00001000 1112131415161718"},
      {{.type = FrameType::ack, .value = 0x1817161514131211},
       "02 00 0000 00000000 1112131415161718"},
      {{.type = FrameType::read_request, .length = 0x24232221, .value = 0x1817161514131211},
       "03 00 0000 21222324 1112131415161718"},
      {{.type = FrameType::read_piece, .length = 0x00010000, .value = 0x1817161514131211},
       "04 00 0000 00000100 1112131415161718"},
      {{.type = FrameType::fault, .status = 1, .length = 200},
       "05 01 0000 c8000000 0000000000000000"},
      {{.type = FrameType::fault, .status = 2, .length = 0},
       "05 02 0000 00000000 0000000000000000"},
  };
  for (const auto& each : kCases) {
    std::array<std::byte, kFrameBytes> bytes{};
    bytes.fill(std::byte{0xee});
    encode_frame(each.header, bytes);
    EXPECT_EQ(hex_of(bytes), hex_of(each.hex));
    FrameHeader header;
    ASSERT_EQ(decode_frame(fixed<kFrameBytes>(each.hex), header), nullptr) << each.hex;
    EXPECT_EQ(header.type, each.header.type);
    EXPECT_EQ(header.status, each.header.status);
    EXPECT_EQ(header.length, each.header.length);
    EXPECT_EQ(header.value, each.header.value);
  }
}

TEST(TcpWireGolden, EveryFrameTypeIsAbove) {
  std::size_t known = 0;
  for (unsigned type = 0; type < 256; ++type) {
    std::array<std::byte, kFrameBytes> bytes{};
    bytes[0] = static_cast<std::byte>(type);
    FrameHeader header;
    if (decode_frame(bytes, header) == nullptr) ++known;
  }
  EXPECT_EQ(known, 5u);
}

TEST(TcpWireGolden, ReadTarget) {
  constexpr const char* kHex = "1112131415161718 2122232425262728";
  std::array<std::byte, 16> bytes{};
  encode_read_target({.key = 0x1817161514131211, .address = 0x2827262524232221}, bytes);
  EXPECT_EQ(hex_of(bytes), hex_of(kHex));
  const ReadTarget target = decode_read_target(fixed<16>(kHex));
  EXPECT_EQ(target.key, 0x1817161514131211u);
  EXPECT_EQ(target.address, 0x2827262524232221u);
}

TEST(TcpWireGolden, Trailers) {
  const struct {
    PieceStatus status;
    const char* hex;
  } kCases[] = {{PieceStatus::ok, "21222324 00000000"},
                {PieceStatus::refused, "21222324 01000000"},
                {PieceStatus::revoked, "21222324 02000000"}};
  for (const auto& each : kCases) {
    std::array<std::byte, kTrailerBytes> bytes{};
    encode_trailer({.read_id_low = 0x24232221, .status = each.status}, bytes);
    EXPECT_EQ(hex_of(bytes), hex_of(each.hex));
    Trailer trailer;
    ASSERT_EQ(decode_trailer(fixed<kTrailerBytes>(each.hex), trailer), nullptr);
    EXPECT_EQ(trailer.read_id_low, 0x24232221u);
    EXPECT_EQ(trailer.status, each.status);
  }
  Trailer trailer;
  EXPECT_NE(decode_trailer(fixed<kTrailerBytes>("21222324 03000000"), trailer), nullptr);
}

}  // namespace
}  // namespace pawl::fabric::tcp
