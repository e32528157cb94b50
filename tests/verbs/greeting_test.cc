// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/greeting.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string_view>

#include "fabric/fabric.h"

namespace pawl::fabric::verbs {
namespace {

using Bytes = std::array<std::byte, kGreetingBytes>;

Greeting request() {
  Greeting greeting;
  greeting.attempt = 0x0123456789abcdef;
  greeting.mtu = 5;
  greeting.qp_number = 0x11;
  greeting.psn = 0xabcdef;
  greeting.read_initiator = 16;
  greeting.read_responder = 128;
  greeting.lid = 3;
  greeting.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  greeting.hello_bytes = kHelloBytesMax;
  return greeting;
}

Bytes bytes_of(const Greeting& greeting) {
  Bytes bytes;
  encode_greeting(greeting, bytes);
  return bytes;
}

TEST(VerbsGreeting, WhatIsWrittenIsRead) {
  Greeting got;
  ASSERT_EQ(decode_greeting(bytes_of(request()), got), nullptr);
  EXPECT_EQ(got.kind, GreetingKind::request);
  EXPECT_EQ(got.attempt, 0x0123456789abcdefu);
  EXPECT_EQ(got.link_layer, LinkLayer::ethernet);
  EXPECT_EQ(got.mtu, 5);
  EXPECT_EQ(got.qp_number, 0x11u);
  EXPECT_EQ(got.psn, 0xabcdefu);
  EXPECT_EQ(got.read_initiator, 16);
  EXPECT_EQ(got.read_responder, 128);
  EXPECT_EQ(got.lid, 3);
  EXPECT_EQ(got.gid, request().gid);
  EXPECT_EQ(got.hello_bytes, kHelloBytesMax);

  Greeting end;
  end.kind = GreetingKind::end;
  end.reason = EndReason::failed;
  ASSERT_EQ(decode_greeting(bytes_of(end), got), nullptr);
  EXPECT_EQ(got.kind, GreetingKind::end);
  EXPECT_EQ(got.reason, EndReason::failed);
}

TEST(VerbsGreeting, EachWrongFieldIsNamed) {
  const auto wrong = [](void (*spoil)(Greeting&)) -> std::string_view {
    Greeting greeting = request();
    spoil(greeting);
    Greeting got;
    const char* const why = decode_greeting(bytes_of(greeting), got);
    return why == nullptr ? "nothing" : why;
  };
  EXPECT_NE(wrong([](Greeting& g) { g.mtu = 0; }).find("MTU"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.mtu = 6; }).find("MTU"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.qp_number = 0; }).find("queue pair"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.qp_number = 1 << 24; }).find("queue pair"),
            std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.psn = 1 << 24; }).find("sequence"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.read_initiator = 0; }).find("READ"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.read_responder = 0; }).find("READ"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.gid = {}; }).find("GID"), std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.hello_bytes = kHelloBytesMax + 1; }).find("hello"),
            std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.kind = static_cast<GreetingKind>(9); }).find("kind"),
            std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.kind = GreetingKind::ready; }).find("hello"),
            std::string_view::npos);
  EXPECT_NE(wrong([](Greeting& g) { g.link_layer = static_cast<LinkLayer>(0); }).find("link layer"),
            std::string_view::npos);

  Bytes bytes = bytes_of(request());
  Greeting got;
  bytes[8] = std::byte{2};
  EXPECT_NE(std::string_view(decode_greeting(bytes, got)).find("version"), std::string_view::npos);
  bytes[0] = std::byte{'H'};
  EXPECT_NE(std::string_view(decode_greeting(bytes, got)).find("bootstrap"),
            std::string_view::npos);
}

TEST(VerbsGreeting, AnyBytesAreReadOrRefusedWithinTheirLimits) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes = bytes_of(request());
    const auto spoiled = 1 + random() % 4;
    for (std::size_t n = 0; n < spoiled; ++n) {
      bytes[12 + random() % (bytes.size() - 12)] = static_cast<std::byte>(random());
    }
    Greeting got;
    if (decode_greeting(bytes, got) != nullptr) continue;
    ASSERT_LE(got.hello_bytes, kHelloBytesMax);
    if (got.kind != GreetingKind::request && got.kind != GreetingKind::accept) continue;
    ASSERT_TRUE(got.mtu >= 1 && got.mtu <= 5);
    ASSERT_TRUE(got.qp_number >= 1 && got.qp_number < 1 << 24 && got.psn < 1 << 24);
    ASSERT_TRUE(got.read_initiator > 0 && got.read_responder > 0);
  }
}

}  // namespace
}  // namespace pawl::fabric::verbs
