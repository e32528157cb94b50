// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "fabric/fabric.h"
#include "fabric/tcp/wire.h"

namespace pawl::fabric::tcp {
namespace {

Greeting sample() {
  return {.kind = GreetingKind::connect,
          .hello_bytes = 513,
          .limits = {.message_bytes_max = 1 << 20,
                     .read_bytes_max = 1 << 30,
                     .read_depth = 16,
                     .piece_bytes_max = 65536}};
}

TEST(TcpWire, GreetingGoesThereAndBack) {
  std::array<std::byte, kGreetingBytes> bytes;
  encode_greeting(sample(), bytes);
  EXPECT_EQ(std::memcmp(bytes.data(), "PAWLTCP1", 8), 0);
  Greeting out;
  ASSERT_EQ(decode_greeting(bytes, out), nullptr);
  EXPECT_EQ(out.kind, GreetingKind::connect);
  EXPECT_EQ(out.hello_bytes, 513);
  EXPECT_EQ(out.limits.message_bytes_max, 1u << 20);
  EXPECT_EQ(out.limits.read_bytes_max, 1u << 30);
  EXPECT_EQ(out.limits.read_depth, 16u);
  EXPECT_EQ(out.limits.piece_bytes_max, 65536u);
}

TEST(TcpWire, GreetingsThatAreNot) {
  const auto refused = [](std::size_t at, std::uint8_t value, const char* sentence) {
    std::array<std::byte, kGreetingBytes> bytes;
    encode_greeting(sample(), bytes);
    bytes[at] = std::byte{value};
    Greeting out;
    const char* const why = decode_greeting(bytes, out);
    ASSERT_NE(why, nullptr) << "byte " << at;
    EXPECT_NE(std::string_view(why).find(sentence), std::string_view::npos) << why;
  };
  refused(0, 'p', "magic");
  refused(7, '2', "magic");
  refused(8, 2, "version");
  refused(12, 0, "kind");
  refused(12, 4, "kind");
  refused(15, 0x11, "4096");
  refused(18, 0, "zero");  // message_bytes_max = 0
  refused(23, 0, "zero");  // read_bytes_max = 0
  refused(24, 0, "zero");  // read_depth = 0
  refused(30, 0, "4096");  // piece_bytes_max = 0
  // Unknown minor versions and the reserved rest are skipped.
  std::array<std::byte, kGreetingBytes> bytes;
  encode_greeting(sample(), bytes);
  bytes[10] = std::byte{9};
  bytes[40] = std::byte{1};
  Greeting out;
  EXPECT_EQ(decode_greeting(bytes, out), nullptr);
}

TEST(TcpWire, FramesGoThereAndBack) {
  for (const FrameType type : {FrameType::message, FrameType::ack, FrameType::read_request,
                               FrameType::read_piece, FrameType::fault}) {
    std::array<std::byte, kFrameBytes> bytes;
    encode_frame({.type = type, .length = 0x01020304, .value = 0x1112131415161718}, bytes);
    EXPECT_EQ(bytes[4], std::byte{4}) << "little-endian";
    FrameHeader out;
    ASSERT_EQ(decode_frame(bytes, out), nullptr);
    EXPECT_EQ(out.type, type);
    EXPECT_EQ(out.length, 0x01020304u);
    EXPECT_EQ(out.value, 0x1112131415161718u);
  }
  std::array<std::byte, 16> bytes;
  encode_read_target({.key = 7, .address = UINT64_MAX}, bytes);
  EXPECT_EQ(decode_read_target(bytes).key, 7u);
  EXPECT_EQ(decode_read_target(bytes).address, UINT64_MAX);
}

TEST(TcpWire, FramesThatAreNot) {
  const auto decode = [](std::uint8_t type, std::uint8_t status, std::uint8_t reserved) {
    std::array<std::byte, kFrameBytes> bytes{};
    bytes[0] = std::byte{type};
    bytes[1] = std::byte{status};
    bytes[3] = std::byte{reserved};
    FrameHeader out;
    return decode_frame(bytes, out);
  };
  EXPECT_EQ(decode(1, 0, 0), nullptr);
  EXPECT_NE(decode(0, 0, 0), nullptr);
  EXPECT_NE(decode(6, 0, 0), nullptr);
  EXPECT_NE(decode(255, 0, 0), nullptr);
  EXPECT_NE(decode(1, 0, 1), nullptr);
  EXPECT_NE(decode(1, 1, 0), nullptr);
  EXPECT_EQ(decode(5, 1, 0), nullptr);  // a fault has a code
}

TEST(TcpWire, Trailers) {
  std::array<std::byte, kTrailerBytes> bytes;
  encode_trailer({.read_id_low = 77, .status = PieceStatus::revoked}, bytes);
  Trailer out;
  ASSERT_EQ(decode_trailer(bytes, out), nullptr);
  EXPECT_EQ(out.read_id_low, 77u);
  EXPECT_EQ(out.status, PieceStatus::revoked);
  bytes[4] = std::byte{3};
  EXPECT_NE(decode_trailer(bytes, out), nullptr);
  bytes[4] = std::byte{0};
  bytes[7] = std::byte{1};
  EXPECT_NE(decode_trailer(bytes, out), nullptr);
}

}  // namespace
}  // namespace pawl::fabric::tcp
