// SPDX-License-Identifier: Apache-2.0
#include "rpc/handshake.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "fabric/fabric.h"
#include "protocol/wire_bytes.h"

namespace pawl::rpc {
namespace {

using test::Bytes;
using test::bytes_of;
using test::from_hex;
using test::to_hex;

Handshake control() {
  Handshake handshake;
  handshake.incarnation = 0x1817161514131211;
  handshake.epoch = 0x2827262524232221;
  handshake.guards = guard_bit(Guard::verify) | guard_bit(Guard::window) | guard_bit(Guard::none);
  handshake.limits = {8192, 32, 8, 1 << 20, 16};
  handshake.node_name = "node-a";
  handshake.auth_method = 1;
  const auto nonce = bytes_of("nonce");
  handshake.auth.assign(nonce.begin(), nonce.end());
  return handshake;
}

constexpr const char* kControl =
    "5041574c 01 00 0000"                                         // magic, version
    "0180 01000000 01"                                            // kind: control
    "0200 08000000 1112131415161718"                              // incarnation
    "0300 08000000 2122232425262728"                              // epoch
    "0480 08000000 0a00000001000000"                              // guards
    "0500 14000000 00200000 20000000 08000000 00001000 10000000"  // limits
    "0600 06000000 6e6f64652d61"                                  // name
    "0700 07000000 0100 6e6f6e6365";                              // authentication

// As the accepting side answers: it names the connection.
Handshake accepting() {
  Handshake handshake = control();
  handshake.connection = 0x3837363534333231;
  handshake.connection_secret = 0x4847464544434241;
  return handshake;
}

constexpr const char* kAcceptingTail =
    "0880 18000000 3132333435363738 4142434445464748 00 00 0000 00000000";

Handshake data() {
  Handshake handshake;
  handshake.kind = EndpointKind::data;
  handshake.connection = 0x3837363534333231;
  handshake.connection_secret = 0x4847464544434241;
  handshake.role = DataRole::accepting_side_reads;
  handshake.endpoint_index = 3;
  handshake.endpoint_incarnation = 0x54535251;
  return handshake;
}

constexpr const char* kData =
    "5041574c 01 00 0000"
    "0180 01000000 02"
    "0200 08000000 0000000000000000"
    "0300 08000000 0000000000000000"
    "0480 08000000 0000000000000000"
    "0500 14000000 00000000 00000000 00000000 00000000 00000000"
    "0600 00000000"
    "0700 02000000 0000"
    "0880 18000000 3132333435363738 4142434445464748 01 03 0000 51525354";

Handshake refusal() {
  Handshake handshake;
  handshake.refusal = Status(Code::unauthenticated, "no token", Ran::no, -3);
  return handshake;
}

constexpr const char* kRefusal =
    "5041574c 01 00 0000"
    "0180 01000000 01"
    "0200 08000000 0000000000000000"
    "0300 08000000 0000000000000000"
    "0480 08000000 0000000000000000"
    "0500 14000000 00000000 00000000 00000000 00000000 00000000"
    "0600 00000000"
    "0700 02000000 0000"
    "0900 10000000 2d 00 0000 fdffffff 6e6f20746f6b656e";

std::string error_of(const Bytes& bytes, Code code = Code::protocol_error) {
  const Result<Handshake> decoded = decode_handshake(bytes);
  if (decoded.ok()) return "";
  EXPECT_EQ(code_name(code), code_name(decoded.status().code()));
  return std::string(decoded.status().what());
}

Bytes with_tlv(const char* tlv) {
  Bytes bytes = from_hex(kControl);
  const Bytes more = from_hex(tlv);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

TEST(HandshakeGolden, EncodesToTheseBytes) {
  EXPECT_EQ(to_hex(from_hex(kControl)), to_hex(encode_handshake(control())));
  EXPECT_EQ(to_hex(from_hex(kControl)) + to_hex(from_hex(kAcceptingTail)),
            to_hex(encode_handshake(accepting())));
  EXPECT_EQ(to_hex(from_hex(kData)), to_hex(encode_handshake(data())));
  EXPECT_EQ(to_hex(from_hex(kRefusal)), to_hex(encode_handshake(refusal())));
}

TEST(HandshakeGolden, ControlComesBackAsItWas) {
  const Handshake sent = control();
  const Result<Handshake> got = decode_handshake(from_hex(kControl));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(EndpointKind::control, got->kind);
  EXPECT_EQ(kWireMinor, got->minor);
  EXPECT_EQ(sent.incarnation, got->incarnation);
  EXPECT_EQ(sent.epoch, got->epoch);
  EXPECT_EQ(sent.guards, got->guards);
  EXPECT_EQ(sent.limits.receive_bytes, got->limits.receive_bytes);
  EXPECT_EQ(sent.limits.call_messages, got->limits.call_messages);
  EXPECT_EQ(sent.limits.session_messages, got->limits.session_messages);
  EXPECT_EQ(sent.limits.message_bytes_max, got->limits.message_bytes_max);
  EXPECT_EQ(sent.limits.read_depth, got->limits.read_depth);
  EXPECT_EQ(sent.node_name, got->node_name);
  EXPECT_EQ(sent.auth_method, got->auth_method);
  EXPECT_EQ(sent.auth, got->auth);
  EXPECT_TRUE(got->refusal.ok());
}

TEST(HandshakeGolden, DataAndRefusalComeBackAsTheyWere) {
  const Result<Handshake> answer = decode_handshake(encode_handshake(accepting()));
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(accepting().connection, answer->connection);
  EXPECT_EQ(accepting().connection_secret, answer->connection_secret);

  const Result<Handshake> endpoint = decode_handshake(from_hex(kData));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().to_string();
  EXPECT_EQ(EndpointKind::data, endpoint->kind);
  EXPECT_EQ(data().connection, endpoint->connection);
  EXPECT_EQ(data().connection_secret, endpoint->connection_secret);
  EXPECT_EQ(DataRole::accepting_side_reads, endpoint->role);
  EXPECT_EQ(3, endpoint->endpoint_index);
  EXPECT_EQ(0x54535251u, endpoint->endpoint_incarnation);

  const Result<Handshake> refused = decode_handshake(from_hex(kRefusal));
  ASSERT_TRUE(refused.ok()) << refused.status().to_string();
  EXPECT_EQ(Code::unauthenticated, refused->refusal.code());
  EXPECT_EQ("no token", refused->refusal.what());
  EXPECT_EQ(-3, refused->refusal.native());
}

TEST(Handshake, EveryTruncationIsRefusedOrMissesWhatItCutOff) {
  for (const char* hex : {kControl, kData, kRefusal}) {
    const Bytes whole = from_hex(hex);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const Bytes shorter(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      const Result<Handshake> got = decode_handshake(shorter);
      // Cut between two TLVs it is well formed; then what makes it usable must be there.
      if (!got.ok()) continue;
      EXPECT_EQ(EndpointKind::control, got->kind);
      EXPECT_GE(got->limits.receive_bytes, kReceiveBytesMin) << bytes;
    }
  }
}

TEST(Handshake, EverySingleByteCorruptionIsHarmless) {
  for (const char* hex : {kControl, kData, kRefusal}) {
    const Bytes whole = from_hex(hex);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        Bytes damaged = whole;
        damaged[at] ^= static_cast<std::byte>(1u << bit);
        const Result<Handshake> got = decode_handshake(damaged);
        if (got.ok()) (void)encode_handshake(*got);
      }
    }
  }
}

TEST(Handshake, SaysWhatIsWrongWithTheHeader) {
  Bytes bytes = from_hex(kControl);
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(
      "handshake: the magic number is 0x4c574147 instead of 0x4c574150; the peer is not a Pawl "
      "node",
      error_of(bytes));
  bytes = from_hex(kControl);
  bytes[4] = std::byte{2};
  bytes[5] = std::byte{7};
  EXPECT_EQ(
      "handshake: the peer speaks wire version 2.7, this node 1.0; run versions of the same major",
      error_of(bytes));
  EXPECT_EQ("handshake: it has fewer than 8 bytes; is the peer a Pawl node?", error_of({}));
}

TEST(Handshake, ANewerMinorIsWelcome) {
  Bytes bytes = from_hex(kControl);
  bytes[5] = std::byte{9};
  const Result<Handshake> got = decode_handshake(bytes);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(9, got->minor);
}

TEST(Handshake, UnknownTlvsAreSkippedAndUnknownRequiredOnesRefusedByNumber) {
  EXPECT_EQ("", error_of(with_tlv("7700 02000000 0102")));
  EXPECT_EQ("handshake: the peer requires TLV 0x8077, which this version does not know",
            error_of(with_tlv("7780 00000000"), Code::unimplemented));
  EXPECT_EQ("handshake: the peer requires TLV 0x8010 (TLS), which this version does not know",
            error_of(with_tlv("1080 00000000"), Code::unimplemented));
}

TEST(Handshake, TlvsAreWholeAndThereOnce) {
  EXPECT_EQ("handshake: it ends within TLV 0x77", error_of(with_tlv("7700 03000000 0102")));
  EXPECT_EQ("handshake: it ends within TLV 0x77", error_of(with_tlv("7700 ffffffff 0102")));
  EXPECT_EQ("handshake: TLV 0x3 is there twice",
            error_of(with_tlv("0300 08000000 00000000 00000000")));
  Bytes bytes = from_hex(kControl);
  bytes[14] = std::byte{3};
  EXPECT_EQ("handshake: TLV 0x8001 of 1 bytes is not well formed", error_of(bytes));
  const Bytes bare = from_hex("5041574c 01 00 0000");
  EXPECT_EQ("handshake: the kind of the endpoint (TLV 0x8001) is missing", error_of(bare));
}

TEST(Handshake, LimitsThatCannotWorkAreRefused) {
  Handshake handshake = control();
  handshake.limits.session_messages = 7;
  EXPECT_EQ("handshake: session_messages is 7, the least is 8",
            error_of(encode_handshake(handshake)));
  handshake = control();
  handshake.limits.receive_bytes = 1000;
  EXPECT_EQ("handshake: receive_bytes is 1000, the least is 1024",
            error_of(encode_handshake(handshake)));
}

TEST(Handshake, LongTextsAreCutAtACharacter) {
  Handshake handshake = control();
  handshake.node_name.assign(kNodeNameBytesMax - 1, 'n').append("\xc3\xa4 and more");
  handshake.auth.assign(kAuthBytesMax, std::byte{1});
  handshake.refusal = Status::with_detail(Code::unavailable, std::string(5000, 'x'));
  const Bytes bytes = encode_handshake(handshake);
  EXPECT_LE(bytes.size(), fabric::kHelloBytesMax);
  const Result<Handshake> got = decode_handshake(bytes);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(std::string(kNodeNameBytesMax - 1, 'n'), got->node_name);
  EXPECT_EQ(kMessageTextBytesMax, got->refusal.what().size());
}

TEST(Handshake, TranscriptCoversBothSides) {
  const auto a = bytes_of("connecting"), b = bytes_of("accepting");
  EXPECT_EQ(crc32c(a), static_cast<std::uint32_t>(handshake_transcript(a, b)));
  EXPECT_EQ(crc32c(b), static_cast<std::uint32_t>(handshake_transcript(a, b) >> 32));
}

}  // namespace
}  // namespace pawl::rpc
