// SPDX-License-Identifier: Apache-2.0
// The bytes of Wire v1, one fixture for each frame. A change here is a change of the wire: it needs
// a new minor or major version (docs/wire.md).
#include <gtest/gtest.h>

#include <functional>

#include "protocol/wire_bytes.h"
#include "rpc/wire.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {
namespace {

using test::Bytes;
using test::bytes_of;
using test::from_hex;
using test::to_hex;

/// What the fixtures below say in hex, as structs.
class Encoder {
 public:
  template <class Body>
  Bytes frame(FrameType type, const Body& body, std::uint8_t flags = 0) {
    Bytes out(1024);
    const std::size_t bytes = encode(body, std::span(out).subspan(FrameHeader::kBytes));
    return finish(type, std::move(out), bytes, flags);
  }
  Bytes empty(FrameType type) { return finish(type, Bytes(FrameHeader::kBytes), 0, 0); }

 private:
  Bytes finish(FrameType type, Bytes out, std::size_t bytes, std::uint8_t flags) {
    FrameHeader header;
    header.type = type;
    header.flags = flags;
    header.attempt = 0x0201;
    header.bytes = static_cast<std::uint32_t>(bytes);
    header.call = 0x1817161514131211;
    encode(header, out);
    out.resize(FrameHeader::kBytes + bytes);
    return out;
  }
};

constexpr LeaseName kLease{0xa8a7a6a5a4a3a2a1, 0xb8b7b6b5b4b3b2b1};
constexpr std::uint64_t kEpoch = 0xe8e7e6e5e4e3e2e1;

LeaseDescriptor descriptor(Guard guard, std::uint16_t segments) {
  LeaseDescriptor lease;
  lease.lease = kLease;
  lease.guard = guard;
  lease.endpoint = 5;
  lease.segments = segments;
  lease.word_key = 0xc8c7c6c5c4c3c2c1;
  lease.word_address = 0xd8d7d6d5d4d3d2d1;
  return lease;
}

Bytes segment_list(std::initializer_list<SegmentDescriptor> segments) {
  Bytes list(segments.size() * SegmentDescriptor::kBytes);
  std::size_t at = 0;
  for (const SegmentDescriptor& segment : segments) {
    at += encode(segment, std::span(list).subspan(at));
  }
  return list;
}

SegmentDescriptor keyed(KeyKind kind) {
  SegmentDescriptor segment;
  segment.kind = kind;
  segment.length = 0x1000;
  segment.key = 0x2827262524232221;
  segment.address = 0x3837363534333231;
  return segment;
}

Bytes request() {
  const std::vector<Metadata> pairs{{"k", "vw"}};
  Bytes metadata(metadata_encoded_bytes(pairs));
  encode_metadata(pairs, metadata);
  const Bytes segments = segment_list({keyed(KeyKind::region)});
  Request body;
  body.method = 0x4847464544434241;
  body.remaining_us = 50'000;
  body.tenant = 0x54535251;
  body.priority = Priority::express;
  body.one_way = true;
  body.trace.emplace();
  for (std::uint8_t i = 0; i < 16; ++i) body.trace->trace_id[i] = static_cast<std::uint8_t>(i + 1);
  for (std::uint8_t i = 0; i < 8; ++i) body.trace->span_id[i] = static_cast<std::uint8_t>(i + 0x71);
  body.trace->flags = 1;
  body.metadata = metadata;
  body.lease = descriptor(Guard::verify, 1);
  body.segments = segments;
  body.payload_bytes = 5;
  body.payload_crc = 0x64636261;
  body.payload = bytes_of("hello");
  return Encoder().frame(FrameType::request, body, kFrameChecksum);
}

Bytes response() {
  SegmentDescriptor inlined, missing;
  inlined.inline_bytes = true;
  inlined.length = 3;
  missing.code = Code::not_found;
  const Bytes segments = segment_list({keyed(KeyKind::window), inlined, missing});
  Response body;
  body.code = Code::deadline;
  body.ran = Ran::unknown;
  body.native = -2;
  body.message = "why";
  body.detail = bytes_of("more");
  body.lease = descriptor(Guard::window, 3);
  body.segments = segments;
  body.payload_bytes = 5;
  body.payload_crc = 0x64636261;
  body.payload = bytes_of("okabc");
  return Encoder().frame(FrameType::response, body);
}

Bytes fragment() {
  Fragment body;
  body.offset = 0x1000;
  body.body_bytes = 0x2000;
  body.bytes = bytes_of("part");
  return Encoder().frame(FrameType::fragment, body, kFrameMore | kFrameResponse);
}

Bytes hello() {
  Hello body{kEpoch, 0x2827262524232221, 0x3837363534333231, bytes_of("proof")};
  return Encoder().frame(FrameType::hello, body);
}

Bytes confirm_answer() {
  const Bytes bitmap = from_hex("ff01");
  ConfirmAnswer body{kLease, true, bitmap};
  return Encoder().frame(FrameType::confirm_answer, body);
}

Bytes relend_answer() {
  const Bytes segments = segment_list({keyed(KeyKind::window)});
  RelendAnswer body;
  body.lease = kLease;
  body.descriptor = descriptor(Guard::window_verify, 1);
  body.segments = segments;
  return Encoder().frame(FrameType::relend_answer, body);
}

struct Fixture {
  const char* name;
  std::function<Bytes()> encoded;
  const char* hex;
  bool any_length = false;  // the body ends with whatever is left
};

// Frame header: type flags attempt bytes call. Then the body, a field or a few in each line.
const std::vector<Fixture>& fixtures() {
  static const std::vector<Fixture> kFixtures = {
      {"request", request,
       "01 04 0102 8f000000 1112131415161718"
       "4142434445464748 50c3000000000000 51525354 02 0f 0900 05000000 61626364"
       "0102030405060708090a0b0c0d0e0f10 7172737475767778 01"   // trace
       "0100 02000000 6b 7677"                                  // metadata
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 01 05 0100 00000000"  // lease
       "c1c2c3c4c5c6c7c8 d1d2d3d4d5d6d7d8"                      //
       "01 00 0000 00000000 0010000000000000"                   // segment
       "2122232425262728 3132333435363738"                      //
       "68656c6c6f"},
      {"response", response,
       "02 00 0102 b4000000 1112131415161718"
       "3c 01 01 00 feffffff 0300 0000 04000000 05000000 61626364 0000000000000000"
       "776879 6d6f7265"                                        // message, detail
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 03 05 0300 00000000"  // lease
       "c1c2c3c4c5c6c7c8 d1d2d3d4d5d6d7d8"                      //
       "02 00 0000 00000000 0010000000000000"                   // segment with a window
       "2122232425262728 3132333435363738"                      //
       "00 00 0100 00000000 0300000000000000"                   // inline segment
       "0000000000000000 0000000000000000"                      //
       "00 29 0000 00000000 0000000000000000"                   // segment with an error
       "0000000000000000 0000000000000000"                      //
       "6f6b 616263"},                                          // payload, inline bytes
      {"fragment", fragment,
       "03 03 0102 0c000000 1112131415161718"
       "00100000 00200000 70617274",
       true},
      {"hello", hello,
       "10 00 0102 1d000000 1112131415161718"
       "e1e2e3e4e5e6e7e8 2122232425262728 3132333435363738 70726f6f66",
       true},
      {"confirm",
       [] {
         return Encoder().frame(FrameType::confirm, Confirm{kLease, kEpoch, true});
       },
       "11 00 0102 20000000 1112131415161718"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 e1e2e3e4e5e6e7e8 01 00000000000000"},
      {"confirm_answer", confirm_answer,
       "12 00 0102 1a000000 1112131415161718"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 01 00 0200 00000000 ff01"},
      {"release",
       [] {
         return Encoder().frame(FrameType::release, Release{kLease, kEpoch});
       },
       "13 00 0102 18000000 1112131415161718"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 e1e2e3e4e5e6e7e8"},
      {"cancel", [] { return Encoder().frame(FrameType::cancel, Cancel{Code::deadline}); },
       "14 00 0102 08000000 1112131415161718"
       "3c 00000000000000"},
      {"cancel_ack", [] { return Encoder().frame(FrameType::cancel_ack, CancelAck{Ran::yes}); },
       "15 00 0102 08000000 1112131415161718"
       "02 00000000000000"},
      {"credit", [] { return Encoder().empty(FrameType::credit); },
       "16 00 0102 00000000 1112131415161718"},
      {"goaway", [] { return Encoder().frame(FrameType::goaway, Goaway{5'000'000}); },
       "17 00 0102 08000000 1112131415161718"
       "404b4c0000000000"},
      {"ping", [] { return Encoder().frame(FrameType::ping, Ping{0x2827262524232221}); },
       "18 00 0102 08000000 1112131415161718"
       "2122232425262728"},
      {"pong", [] { return Encoder().frame(FrameType::pong, Ping{0x2827262524232221}); },
       "19 00 0102 08000000 1112131415161718"
       "2122232425262728"},
      {"data_lost",
       [] {
         return Encoder().frame(FrameType::data_lost,
                                DataLost{5, DataRole::accepting_side_reads, 0x24232221});
       },
       "1a 00 0102 10000000 1112131415161718"
       "05 01 0000 21222324 0000000000000000"},
      {"data_lost_answer",
       [] {
         return Encoder().frame(FrameType::data_lost_answer, DataLostAnswer{RequestFate::answered});
       },
       "1b 00 0102 08000000 1112131415161718"
       "02 00000000000000"},
      {"relend",
       [] {
         return Encoder().frame(FrameType::relend, Relend{kLease, kEpoch, 5});
       },
       "1c 00 0102 20000000 1112131415161718"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 e1e2e3e4e5e6e7e8 05 00000000000000"},
      {"relend_answer", relend_answer,
       "1d 00 0102 60000000 1112131415161718"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 00 00000000000000"
       "a1a2a3a4a5a6a7a8 b1b2b3b4b5b6b7b8 04 05 0100 00000000"  // lease
       "c1c2c3c4c5c6c7c8 d1d2d3d4d5d6d7d8"                      //
       "02 00 0000 00000000 0010000000000000"                   // segment
       "2122232425262728 3132333435363738"},
      {"goaway_ack", [] { return Encoder().empty(FrameType::goaway_ack); },
       "1e 00 0102 00000000 1112131415161718"},
  };
  return kFixtures;
}

TEST(WireGolden, EveryFrameTypeHasAFixture) {
  std::size_t known = 0;
  for (unsigned type = 0; type < 256; ++type) {
    Bytes header(FrameHeader::kBytes);
    header[0] = static_cast<std::byte>(type);
    FrameHeader decoded;
    const char* why = nullptr;
    if (decode(header, decoded, why)) ++known;
  }
  EXPECT_EQ(known, fixtures().size());
}

TEST(WireGolden, FramesEncodeToTheseBytes) {
  for (const Fixture& fixture : fixtures()) {
    EXPECT_EQ(to_hex(from_hex(fixture.hex)), to_hex(fixture.encoded())) << fixture.name;
  }
}

TEST(WireGolden, FramesSurviveDecoding) {
  for (const Fixture& fixture : fixtures()) {
    const char* why = nullptr;
    EXPECT_EQ(to_hex(from_hex(fixture.hex)), to_hex(test::reencode(from_hex(fixture.hex), why)))
        << fixture.name << ": " << (why == nullptr ? "" : why);
  }
}

TEST(WireGolden, EveryTruncationOfAFrameIsRefused) {
  for (const Fixture& fixture : fixtures()) {
    const Bytes frame = from_hex(fixture.hex);
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      const Bytes shorter(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
      const char* why = nullptr;
      EXPECT_TRUE(test::reencode(shorter, why).empty()) << fixture.name << " at " << bytes;
      EXPECT_NE(nullptr, why);
    }
  }
}

/// The frame, with another body and its length in the header.
Bytes with_body(const Bytes& frame, std::size_t body_bytes) {
  Bytes other = frame;
  other.resize(FrameHeader::kBytes + body_bytes, std::byte{0});
  other[4] = static_cast<std::byte>(body_bytes & 0xff);
  other[5] = static_cast<std::byte>(body_bytes >> 8);
  return other;
}

TEST(WireGolden, BodiesHaveExactlyTheirLength) {
  for (const Fixture& fixture : fixtures()) {
    if (fixture.any_length) continue;
    const Bytes frame = from_hex(fixture.hex);
    const std::size_t body_bytes = frame.size() - FrameHeader::kBytes;
    for (std::size_t bytes = 0; bytes <= body_bytes + 8; ++bytes) {
      if (bytes == body_bytes) continue;
      const char* why = nullptr;
      EXPECT_TRUE(test::reencode(with_body(frame, bytes), why).empty())
          << fixture.name << " with " << bytes;
    }
  }
}

// Under the address sanitizer: no read outside. And what is accepted can be encoded, and means the
// same afterwards.
TEST(WireGolden, EverySingleByteCorruptionIsHarmless) {
  for (const Fixture& fixture : fixtures()) {
    const Bytes frame = from_hex(fixture.hex);
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (unsigned value = 0; value < 256; ++value) {
        Bytes damaged = frame;
        damaged[at] = static_cast<std::byte>(value);
        const char* why = nullptr;
        const Bytes once = test::reencode(damaged, why);
        if (once.empty()) {
          ASSERT_NE(nullptr, why) << fixture.name << " at " << at;
          continue;
        }
        ASSERT_TRUE(once == test::reencode(once, why)) << fixture.name << " at " << at;
      }
    }
  }
}

TEST(WireGolden, MessageHeader) {
  MessageHeader header;
  header.message_class = MessageHeader::Class::session;
  header.frames = 2;
  header.bytes = 32;
  header.call_messages_returned = 0x24232221;
  header.session_messages_returned = 0x34333231;
  header.hint = 0x4847464544434241;
  Bytes message(MessageHeader::kBytes);
  ASSERT_EQ(MessageHeader::kBytes, encode(header, message));
  const Bytes credit = Encoder().empty(FrameType::credit);
  message.insert(message.end(), credit.begin(), credit.end());
  message.insert(message.end(), credit.begin(), credit.end());
  const Bytes golden = from_hex(
      "02 00 0200 20000000 21222324 31323334 4142434445464748 0000000000000000"
      "16 00 0102 00000000 1112131415161718"
      "16 00 0102 00000000 1112131415161718");
  EXPECT_EQ(to_hex(golden), to_hex(message));

  MessageHeader decoded;
  const char* why = nullptr;
  ASSERT_TRUE(decode(golden, decoded, why)) << why;
  EXPECT_EQ(header.message_class, decoded.message_class);
  EXPECT_EQ(header.frames, decoded.frames);
  EXPECT_EQ(header.bytes, decoded.bytes);
  EXPECT_EQ(header.call_messages_returned, decoded.call_messages_returned);
  EXPECT_EQ(header.session_messages_returned, decoded.session_messages_returned);
  EXPECT_EQ(header.hint, decoded.hint);

  for (std::size_t bytes = 0; bytes < golden.size(); ++bytes) {
    EXPECT_FALSE(decode(std::span(golden).first(bytes), decoded, why)) << bytes;
  }
}

TEST(WireGolden, MessageHeaderRefusals) {
  const struct {
    std::size_t at;
    std::uint8_t value;
    const char* sentence;
  } kCases[] = {
      {0, 0, "a message is of an unknown class"},
      {0, 3, "a message is of an unknown class"},
      {1, 0x10, "a message has an unknown critical flag"},
      {2, 0, "a message has no frames"},
      {4, 15, "a message is not as long as its header says"},
      {7, 0xff, "a message is not as long as its header says"},
      {2, 2, "a message has another number of frames than its header says"},
      {0, 2, "a frame of a call is in a message of class session"},
      {32, 22, "a credit or goaway_ack frame has a body"},
      {32, 31, "a frame is of an unknown type"},
      {33, 0x80, "a frame has an unknown critical flag"},
      {36, 9, "a message ends within a frame"},
      {36, 0, "a message ends within a frame header"},
  };
  for (const auto& refused : kCases) {
    Bytes message = from_hex(
        "01 00 0100 18000000 00000000 00000000 0000000000000000 0000000000000000"
        "02 00 0000 08000000 0000000000000000 0000000000000000");
    message[refused.at] = static_cast<std::byte>(refused.value);
    MessageHeader decoded;
    const char* why = nullptr;
    EXPECT_FALSE(decode(message, decoded, why));
    EXPECT_STREQ(refused.sentence, why);
  }
}

}  // namespace
}  // namespace pawl::rpc
