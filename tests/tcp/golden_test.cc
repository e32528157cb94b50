// SPDX-License-Identifier: Apache-2.0
// What a tcp fabric says over a real socket, byte by byte: the order in docs/wire-tcp.md, and that
// the fixtures of tests/protocol/tcp_wire_golden_test.cc are what it uses.
#include <algorithm>
#include <cstring>
#include <string>

#include "protocol/wire_bytes.h"
#include "tcp/harness.h"

namespace pawl::fabric::tcp {
namespace {

using rpc::test::Bytes;
using rpc::test::from_hex;
using rpc::test::to_hex;

class TcpGolden : public TcpTest {
 protected:
  /// The raw peer hears exactly this next.
  void expect_next(const RawPeer& raw, const std::string& hex) {
    const Bytes wanted = from_hex(hex);
    ASSERT_TRUE(run_until([&] { return raw.heard().size() >= heard_ + wanted.size(); })) << hex;
    run_turns(5);
    const Bytes got(raw.heard().begin() + static_cast<std::ptrdiff_t>(heard_), raw.heard().end());
    EXPECT_EQ(to_hex(got), to_hex(wanted));
    heard_ = raw.heard().size();
  }

  std::size_t heard_ = 0;
};

TEST_F(TcpGolden, AConversation) {
  auto memory = b_.memory(4096);
  const std::string text = "hi, lent bytes";
  std::transform(text.begin(), text.end(), memory->bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  EndpointId endpoint;
  const auto raw = raw_link(endpoint);
  expect_next(*raw,
              "5041574c54435031 0100 0000 02 00 0000"
              "00001000 00000040 10000000 00000100 00000000000000000000000000000000");
  b_.send(endpoint, 1, memory->segment(0, 2));
  expect_next(*raw, "01 00 0000 02000000 0000000000000000 6869");

  b_.receive(endpoint, 2, memory->segment(1024, 64));
  raw->say_frame({.type = FrameType::message, .length = 3, .value = 1}, 3);
  expect_next(*raw, "02 00 0000 00000000 0100000000000000");
  EXPECT_TRUE(b_.done(1) && b_.done(2));

  b_.read(endpoint, 3, memory->segment(2048, 5),
          {.key = 0x1817161514131211, .address = 0x2827262524232221});
  expect_next(*raw, "03 00 0000 05000000 0000000000000000 1112131415161718 2122232425262728");
  raw->say(from_hex("04 00 0000 05000000 0000000000000000 6279746573 0000000000000000"));
  ASSERT_TRUE(run_until([&] { return b_.done(3); }));
  EXPECT_EQ(b_.status(3), "success");
  EXPECT_EQ(std::memcmp(memory->bytes.data() + 2048, "bytes", 5), 0);

  const RemoteAddress lent =
      b_.fabric->expose({1}, memory->handle, memory->bytes.data(), 64).value();
  raw->say_read(0, lent.key, lent.address + 4, 4);
  expect_next(*raw, "04 00 0000 04000000 0000000000000000 6c656e74 0000000000000000");

  raw->say_frame({.type = FrameType::ack, .value = 9});
  const std::string sentence = "it acknowledged 9 of 1 messages, after 1";
  expect_next(*raw, "05 01 0000 28000000 0000000000000000" + to_hex(rpc::test::bytes_of(sentence)));
  ASSERT_TRUE(run_until([&] { return raw->ended(); }));
}

}  // namespace
}  // namespace pawl::fabric::tcp
