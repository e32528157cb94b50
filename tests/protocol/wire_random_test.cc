// SPDX-License-Identifier: Apache-2.0
// Seeded random bodies through the codec and back, and what is refused, by its sentence.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pawl/bulk.h"
#include "protocol/wire_bytes.h"
#include "rpc/wire.h"

namespace pawl::rpc {
namespace {

using test::Bytes;
using test::bytes_of;
using test::to_hex;

constexpr int kRounds = 2000;

/// Random bodies; what their views show lives here until the next one is made.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool coin() { return below(2) == 0; }
  std::uint64_t any() { return random_(); }

  Bytes bytes(std::size_t bytes_max) {
    Bytes made(below(bytes_max + 1));
    for (std::byte& byte : made) byte = static_cast<std::byte>(below(256));
    return made;
  }

  Request request() {
    Request body;
    body.method = any();
    body.remaining_us = coin() ? UINT64_MAX : any();
    body.tenant = static_cast<std::uint32_t>(any());
    body.priority = static_cast<Priority>(below(3));
    body.one_way = coin();
    if (coin()) {
      body.trace.emplace();
      for (std::uint8_t& byte : body.trace->trace_id) byte = static_cast<std::uint8_t>(below(256));
      for (std::uint8_t& byte : body.trace->span_id) byte = static_cast<std::uint8_t>(below(256));
      body.trace->flags = static_cast<std::uint8_t>(below(256));
    }
    body.metadata = metadata();
    payload_ = bytes(300);
    if (coin()) body.lease = lease(payload_.size());
    body.segments = segments_;
    body.payload_bytes = static_cast<std::uint32_t>(payload_.size());
    body.payload_crc = static_cast<std::uint32_t>(any());
    body.payload = payload_;
    return body;
  }

  Response response() {
    static constexpr Code kCodes[] = {Code::ok,       Code::stale,    Code::not_found,
                                      Code::deadline, Code::internal, Code::corrupt};
    Response body;
    body.code = kCodes[below(std::size(kCodes))];
    body.ran = static_cast<Ran>(below(3));
    body.native = static_cast<std::int32_t>(any());
    text_.assign(below(kMessageTextBytesMax + 1), 'x');
    body.message = text_;
    detail_ = bytes(kDetailBytesMax);
    body.detail = detail_;
    payload_ = bytes(300);
    if (coin()) body.lease = lease(payload_.size());
    body.segments = segments_;
    body.payload_bytes = static_cast<std::uint32_t>(payload_.size());
    body.payload_crc = static_cast<std::uint32_t>(any());
    body.payload = payload_;
    return body;
  }

 private:
  std::span<const std::byte> metadata() {
    strings_.clear();
    for (std::uint64_t n = below(5); n > 0; --n) {
      strings_.emplace_back(1 + below(20), static_cast<char>('a' + below(26)));
      strings_.emplace_back(below(100), static_cast<char>(below(256)));
    }
    pairs_.clear();
    for (std::size_t i = 0; i < strings_.size(); i += 2) {
      pairs_.push_back({strings_[i], strings_[i + 1]});
    }
    metadata_.assign(metadata_encoded_bytes(pairs_), std::byte{0});
    encode_metadata(pairs_, metadata_);
    return metadata_;
  }

  LeaseDescriptor lease(std::uint64_t inline_bytes_max) {
    static constexpr Guard kGuards[] = {Guard::verify, Guard::verify_read, Guard::window,
                                        Guard::window_verify, Guard::none};
    LeaseDescriptor made;
    made.lease = {any(), any() | 1};
    made.guard = kGuards[below(std::size(kGuards))];
    made.endpoint = static_cast<std::uint8_t>(below(256));
    made.segments = static_cast<std::uint16_t>(below(coin() ? 8 : kSegmentsMax + 1));
    made.word_key = any();
    made.word_address = any();
    const bool windows = made.guard == Guard::window || made.guard == Guard::window_verify;
    segments_.assign(made.segments * SegmentDescriptor::kBytes, std::byte{0});
    for (std::size_t i = 0; i < made.segments; ++i) {
      encode(segment(windows ? KeyKind::window : KeyKind::region, inline_bytes_max),
             std::span(segments_).subspan(i * SegmentDescriptor::kBytes));
    }
    return made;
  }

  SegmentDescriptor segment(KeyKind kind, std::uint64_t& inline_bytes_left) {
    SegmentDescriptor made;
    switch (below(4)) {
      case 0:
        made.code = Code::not_found;
        break;
      case 1:
        made.inline_bytes = true;
        made.length = below(inline_bytes_left + 1);
        inline_bytes_left -= made.length;
        break;
      default:
        made.kind = kind;
        made.length = 1 + below(std::uint64_t{1} << 40);
        made.key = any();
        made.address = any() >> 1;
    }
    return made;
  }

  std::mt19937_64 random_;
  std::vector<std::string> strings_;
  std::vector<Metadata> pairs_;
  std::string text_;
  Bytes metadata_, segments_, payload_, detail_;
};

void expect_same(const std::optional<LeaseDescriptor>& a, const std::optional<LeaseDescriptor>& b) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (!a.has_value()) return;
  EXPECT_EQ(a->lease, b->lease);
  EXPECT_EQ(a->guard, b->guard);
  EXPECT_EQ(a->endpoint, b->endpoint);
  EXPECT_EQ(a->segments, b->segments);
  EXPECT_EQ(a->word_key, b->word_key);
  EXPECT_EQ(a->word_address, b->word_address);
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

TEST(WireRandom, RequestsComeBackAsTheyWere) {
  Maker maker(1);
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const Request body = maker.request();
    Bytes bytes(encoded_bytes(body));
    ASSERT_EQ(bytes.size(), encode(body, bytes));
    Request back;
    const char* why = nullptr;
    ASSERT_TRUE(decode(bytes, back, why)) << why;
    EXPECT_EQ(body.method, back.method);
    EXPECT_EQ(body.remaining_us, back.remaining_us);
    EXPECT_EQ(body.tenant, back.tenant);
    EXPECT_EQ(body.priority, back.priority);
    EXPECT_EQ(body.one_way, back.one_way);
    ASSERT_EQ(body.trace.has_value(), back.trace.has_value());
    if (body.trace.has_value()) {
      EXPECT_EQ(body.trace->trace_id, back.trace->trace_id);
      EXPECT_EQ(body.trace->span_id, back.trace->span_id);
      EXPECT_EQ(body.trace->flags, back.trace->flags);
    }
    EXPECT_TRUE(same(body.metadata, back.metadata));
    ASSERT_NO_FATAL_FAILURE(expect_same(body.lease, back.lease));
    EXPECT_TRUE(!body.lease.has_value() || same(body.segments, back.segments));
    EXPECT_EQ(body.payload_bytes, back.payload_bytes);
    EXPECT_EQ(body.payload_crc, back.payload_crc);
    EXPECT_TRUE(same(body.payload, back.payload));
    bytes.pop_back();
    EXPECT_FALSE(decode(bytes, back, why));
  }
}

TEST(WireRandom, ResponsesComeBackAsTheyWere) {
  Maker maker(2);
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const Response body = maker.response();
    Bytes bytes(encoded_bytes(body));
    ASSERT_EQ(bytes.size(), encode(body, bytes));
    Response back;
    const char* why = nullptr;
    ASSERT_TRUE(decode(bytes, back, why)) << why;
    EXPECT_EQ(body.code, back.code);
    EXPECT_EQ(body.ran, back.ran);
    EXPECT_EQ(body.native, back.native);
    EXPECT_EQ(body.message, back.message);
    EXPECT_TRUE(same(body.detail, back.detail));
    ASSERT_NO_FATAL_FAILURE(expect_same(body.lease, back.lease));
    EXPECT_TRUE(!body.lease.has_value() || same(body.segments, back.segments));
    EXPECT_EQ(body.payload_bytes, back.payload_bytes);
    EXPECT_EQ(body.payload_crc, back.payload_crc);
    EXPECT_TRUE(same(body.payload, back.payload));
  }
}

TEST(WireRandom, NoiseIsHarmless) {
  Maker maker(3);
  for (int round = 0; round < 20 * kRounds; ++round) {
    Bytes noise = maker.bytes(200);
    if (noise.size() >= FrameHeader::kBytes) {  // so that more than the header is looked at
      noise[0] = static_cast<std::byte>(maker.coin() ? 1 + maker.below(3) : 16 + maker.below(14));
      noise[1] &= std::byte{0x0f};
      noise[4] = static_cast<std::byte>(noise.size() - FrameHeader::kBytes);
      noise[5] = noise[6] = noise[7] = std::byte{0};
    }
    const char* why = nullptr;
    (void)test::reencode(noise, why);
  }
}

TEST(WireRandom, PayloadMayBeAppendedByTheCaller) {
  Request body;
  body.payload_bytes = 5;
  body.payload = bytes_of("he");
  Bytes bytes(encoded_bytes(body));
  encode(body, bytes);
  const auto rest = bytes_of("llo");
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  Request back;
  const char* why = nullptr;
  ASSERT_TRUE(decode(bytes, back, why)) << why;
  EXPECT_TRUE(same(bytes_of("hello"), back.payload));
}

TEST(WireRandom, MetadataIsFoundByKey) {
  const std::vector<Metadata> pairs{{"a", "1"}, {"bb", ""}, {"a", "2"}};
  Bytes bytes(metadata_encoded_bytes(pairs));
  ASSERT_EQ(bytes.size(), encode_metadata(pairs, bytes));
  EXPECT_EQ("1", find_metadata(bytes, "a"));
  EXPECT_EQ("", find_metadata(bytes, "bb"));
  EXPECT_EQ("", find_metadata(bytes, "b"));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_EQ("", find_metadata(std::span(bytes).first(cut), "zz"));
  }
}

// --- refusals --------------------------------------------------------------------------------

const char* why_refused(const SegmentDescriptor& segment, std::uint64_t generation = 1,
                        Guard guard = Guard::verify, std::uint16_t count = 1) {
  Bytes list(count * SegmentDescriptor::kBytes);
  for (std::size_t i = 0; i < count; ++i) {
    encode(segment, std::span(list).subspan(i * SegmentDescriptor::kBytes));
  }
  Request body;
  body.lease.emplace();
  body.lease->lease.generation = generation;
  body.lease->guard = guard;
  body.lease->segments = count;
  body.segments = list;
  body.payload_bytes = 4;
  body.payload = bytes_of("four");
  Bytes bytes(encoded_bytes(body));
  encode(body, bytes);
  Request back;
  const char* why = "";
  return decode(bytes, back, why) ? "" : why;
}

SegmentDescriptor with_key(KeyKind kind) {
  SegmentDescriptor segment;
  segment.kind = kind;
  segment.length = 10;
  segment.key = 7;
  return segment;
}

TEST(WireRefuses, SegmentsThatContradictThemselves) {
  EXPECT_STREQ("", why_refused(with_key(KeyKind::region)));
  EXPECT_STREQ("", why_refused(SegmentDescriptor{})) << "an empty one";
  EXPECT_STREQ("a segment has a key of an unknown kind", why_refused(with_key(KeyKind{3})));
  EXPECT_STREQ("a segment has a key although nothing is lent",
               why_refused(with_key(KeyKind::region), 0));
  EXPECT_STREQ("a segment's key is not of the kind that the lease's guard uses",
               why_refused(with_key(KeyKind::window)));
  EXPECT_STREQ("a segment's key is not of the kind that the lease's guard uses",
               why_refused(with_key(KeyKind::region), 1, Guard::window));
  EXPECT_STREQ("a lease has an unknown guard",
               why_refused(with_key(KeyKind::region), 1, static_cast<Guard>(5)));

  SegmentDescriptor segment = with_key(KeyKind::region);
  segment.length = 0;
  EXPECT_STREQ("a segment has a key and no bytes", why_refused(segment));
  segment = with_key(KeyKind::region);
  segment.address = UINT64_MAX - 5;
  EXPECT_STREQ("a segment goes beyond the end of the address space", why_refused(segment));
  segment = with_key(KeyKind::region);
  segment.code = Code::not_found;
  EXPECT_STREQ("a segment has both a key and an error", why_refused(segment));
  segment = with_key(KeyKind::none);
  EXPECT_STREQ("a segment without a key has a key or an address", why_refused(segment));
  segment.key = 0;
  EXPECT_STREQ("a segment has bytes and no key, and they are not inline", why_refused(segment));
  segment.inline_bytes = true;
  EXPECT_STREQ("inline segments have more bytes than the payload", why_refused(segment));
  segment.length = 4;
  EXPECT_STREQ("", why_refused(segment));
  segment.code = Code::not_found;
  EXPECT_STREQ("a segment has both bytes and an error", why_refused(segment));
}

TEST(WireRefuses, ManyInlineSegmentsWhoseLengthsWouldOverflow) {
  SegmentDescriptor segment;
  segment.inline_bytes = true;
  segment.length = UINT64_MAX;
  EXPECT_STREQ("an inline segment is 4 GiB or longer", why_refused(segment));
}

TEST(WireRefuses, InlineSegmentsThatAreLongerThanThePayloadTogether) {
  SegmentDescriptor segment;
  segment.inline_bytes = true;
  segment.length = 2;
  EXPECT_STREQ("", why_refused(segment, 0, Guard::verify, 2));
  segment.length = 3;
  EXPECT_STREQ("inline segments have more bytes than the payload",
               why_refused(segment, 0, Guard::verify, 2));
}

/// A response or request whose fixed part has one other byte.
template <class Body>
const char* why_refused_at(std::size_t at, std::uint8_t value) {
  Body body;
  Bytes bytes(Body::kFixedBytes + 10'000);
  encode(body, bytes);
  bytes[at] = static_cast<std::byte>(value);
  const char* why = "";
  return decode(bytes, body, why) ? "" : why;
}

TEST(WireRefuses, UnknownNumbersAndLimits) {
  EXPECT_STREQ("a request has an unknown priority", why_refused_at<Request>(20, 3));
  EXPECT_STREQ("a request has an unknown option", why_refused_at<Request>(21, 0x10));
  EXPECT_STREQ("a request's metadata and its options disagree", why_refused_at<Request>(21, 2));
  EXPECT_STREQ("a request's metadata and its options disagree", why_refused_at<Request>(22, 9));
  EXPECT_STREQ("a request has more than 8192 bytes of metadata", why_refused_at<Request>(23, 0x21));
  EXPECT_STREQ("a response does not say no, unknown or yes to whether its handler ran",
               why_refused_at<Response>(1, 3));
  EXPECT_STREQ("a response has an unknown option", why_refused_at<Response>(2, 2));
  EXPECT_STREQ("a response's message is longer than 1024 bytes", why_refused_at<Response>(9, 0x05));
  EXPECT_STREQ("a response's detail is longer than 4096 bytes", why_refused_at<Response>(13, 0x11));
}

TEST(WireRefuses, MetadataThatIsNotWellFormed) {
  Request body;
  const Bytes short_head(5);
  body.metadata = short_head;
  Bytes bytes(encoded_bytes(body));
  encode(body, bytes);
  Request back;
  const char* why = nullptr;
  EXPECT_FALSE(decode(bytes, back, why));
  EXPECT_STREQ("a request's metadata is not well formed", why);
}

TEST(WireRefuses, NothingButUnknownCodesIsTakenForSomethingElse) {
  Response body;
  Bytes bytes(encoded_bytes(body));
  encode(body, bytes);
  bytes[0] = std::byte{19};
  const char* why = nullptr;
  ASSERT_TRUE(decode(bytes, body, why)) << why;
  EXPECT_EQ(Code::internal, body.code);
  EXPECT_EQ(19, body.native);
}

TEST(WireRefuses, FragmentsBeyondTheirBody) {
  Fragment body{10, 14, bytes_of("12345")};
  Bytes bytes(Fragment::kFixedBytes + 5);
  encode(body, bytes);
  const char* why = nullptr;
  EXPECT_FALSE(decode(bytes, body, why));
  EXPECT_STREQ("a fragment goes beyond the end of its body", why);
  body = {UINT32_MAX, UINT32_MAX, bytes_of("12345")};
  encode(body, bytes);
  EXPECT_FALSE(decode(bytes, body, why));
  EXPECT_FALSE(decode(std::span(bytes).first(Fragment::kFixedBytes), body, why));
  EXPECT_STREQ("a fragment has no bytes", why);
}

}  // namespace
}  // namespace pawl::rpc
