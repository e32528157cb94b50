// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "conformance/fixture.h"

namespace pawl::fabric::conformance {
namespace {

class Messages : public Conformance {
 protected:
  static constexpr std::size_t kSlot = 8192;
};
PAWL_CONFORMANCE(Messages);

TEST_P(Messages, Promise1ArriveOnceWholeAndInOrder) {
  constexpr std::size_t kCount = 200;
  constexpr std::size_t kSlots = 16;
  const Link link = connect(a_, b_);
  Area& out = a_.area(kSlots * kSlot, MemoryUse::messages);
  Area& in = b_.area(kSlots * kSlot, MemoryUse::messages);
  const auto size_of = [](std::size_t i) { return 1 + (i * 7919) % kSlot; };

  std::map<std::uint64_t, std::size_t> slot_of;  // receive → slot
  std::vector<std::string> got;
  b_.on_completion = [&](const Completion& c) {
    if (c.op != Opcode::receive || c.status != CompletionStatus::success) return;
    const std::size_t slot = slot_of[c.id];
    got.push_back(in.read(slot * kSlot, c.bytes));
    in.fill(slot * kSlot, kSlot, '\0');
    slot_of[b_.receive(link.b, in.segment(slot * kSlot, kSlot))] = slot;
  };
  for (std::size_t i = 0; i < kSlots; ++i) {
    slot_of[b_.receive(link.b, in.segment(i * kSlot, kSlot))] = i;
  }
  std::size_t sent = 0;
  std::vector<std::uint64_t> order;
  const auto send_next = [&](std::size_t slot) {
    out.fill_pattern(slot * kSlot, size_of(sent), sent);
    order.push_back(a_.send(link.a, out.segment(slot * kSlot, size_of(sent))));
    ++sent;
  };
  std::map<std::uint64_t, std::size_t> send_slot;
  a_.on_completion = [&](const Completion& c) {
    if (c.op != Opcode::send || sent == kCount) return;
    EXPECT_EQ(c.status, CompletionStatus::success);
    const std::size_t slot = send_slot[c.id];
    send_next(slot);
    send_slot[order.back()] = slot;
  };
  for (std::size_t i = 0; i < kSlots; ++i) {
    send_next(i);
    send_slot[order.back()] = i;
  }
  ASSERT_TRUE(run_until([&] { return got.size() >= kCount && a_.outstanding(link.a) == 0; }));
  run_for(2ms);
  ASSERT_EQ(got.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(got[i].size(), size_of(i)) << i;
    ASSERT_TRUE(got[i] == pattern(size_of(i), i)) << "message " << i;
  }
}

TEST_P(Messages, GatherAndScatter) {
  const Link link = connect(a_, b_);
  const std::size_t out_segments =
      std::min<std::size_t>(4, a_.fabric().capabilities().send_segments_max);
  const std::size_t in_segments =
      std::min<std::size_t>(3, b_.fabric().capabilities().receive_segments_max);
  Area& out = a_.area(65536);
  Area& in = b_.area(65536);
  std::string expected;
  std::vector<LocalSegment> from;
  for (std::size_t i = 0; i < out_segments; ++i) {
    out.fill_pattern(i * 5000, 1000 + i, i);
    expected += pattern(1000 + i, i);
    from.push_back(out.segment(i * 5000, 1000 + i));
  }
  std::vector<LocalSegment> to;
  for (std::size_t i = 0; i < in_segments; ++i)
    to.push_back(in.segment(i * 9000 + 1, 1500 + 3 * i));
  to.back().length = 8000;
  in.fill(0, 65536, '.');
  const std::uint64_t received = b_.post(link.b, {.op = Opcode::receive, .local = to});
  const std::uint64_t sent = a_.post(link.a, {.op = Opcode::send, .local = from});
  ASSERT_TRUE(run_until([&] { return a_.done(sent) && b_.done(received); }));
  ASSERT_EQ(b_.completion(received)->bytes, expected.size());
  std::string got;
  for (const LocalSegment& segment : to) {
    const auto offset = static_cast<std::size_t>(segment.address - in.at(0));
    EXPECT_EQ(in.read(offset - 1, 1), ".");
    got += in.read(offset, std::min<std::size_t>(segment.length, expected.size() - got.size()));
  }
  EXPECT_TRUE(got == expected);
}

TEST_P(Messages, TheLargestMessagePasses) {
  const std::size_t bytes =
      std::min<std::size_t>(a_.fabric().capabilities().message_bytes_max, 4u << 20);
  const Link link = connect(a_, b_);
  Area& out = a_.area(bytes, MemoryUse::messages);
  Area& in = b_.area(bytes, MemoryUse::messages);
  out.fill_pattern(0, bytes, 1);
  const std::uint64_t received = b_.receive(link.b, in.segment(0, bytes));
  const std::uint64_t sent = a_.send(link.a, out.segment(0, bytes));
  ASSERT_TRUE(run_until([&] { return a_.done(sent) && b_.done(received); }));
  EXPECT_EQ(b_.completion(received)->bytes, bytes);
  EXPECT_TRUE(in.read(0, bytes) == pattern(bytes, 1));
}

TEST_P(Messages, TooLargeForTheDeviceIsRefused) {
  const std::uint64_t most = a_.fabric().capabilities().message_bytes_max;
  if (most > (8u << 20)) GTEST_SKIP() << "this device takes messages of any useful size";
  const Link link = connect(a_, b_);
  Area& out = a_.area(most + 1);
  const LocalSegment segment = out.segment(0, most + 1);
  Status why;
  EXPECT_TRUE(
      a_.post(link.a, {{.op = Opcode::send, .local = std::span(&segment, 1)}}, why).empty());
  EXPECT_EQ(why.code(), Code::too_large);
}

TEST_P(Messages, MoreSegmentsThanTheDeviceTakesAreRefused) {
  const Link link = connect(a_, b_);
  Area& area = a_.area(65536);
  const Capabilities& device = a_.fabric().capabilities();
  const auto refused = [&](Opcode op, std::size_t most) {
    std::vector<LocalSegment> segments;
    for (std::size_t i = 0; i <= most; ++i) segments.push_back(area.segment(i * 16, 8));
    Status why;
    EXPECT_TRUE(a_.post(link.a, {{.op = op, .local = segments}}, why).empty());
    EXPECT_EQ(why.code(), Code::too_large) << why.to_string();
  };
  refused(Opcode::send, device.send_segments_max);
  refused(Opcode::receive, device.receive_segments_max);
  refused(Opcode::read, device.read_segments_max);
}

TEST_P(Messages, WorkOnNoBytesIsRefused) {
  const Link link = connect(a_, b_);
  Area& area = a_.area(4096);
  const std::array segments = {area.segment(0, 8), area.segment(8, 0)};
  for (const Opcode op : {Opcode::send, Opcode::receive, Opcode::read}) {
    for (const auto& local : {std::span<const LocalSegment>(), std::span(segments).subspan(1),
                              std::span<const LocalSegment>(segments)}) {
      Status why;
      EXPECT_TRUE(a_.post(link.a, {{.op = op, .local = local}}, why).empty());
      EXPECT_EQ(why.code(), Code::invalid_argument) << why.to_string();
    }
  }
}

TEST_P(Messages, InlinePayloadIsCopiedByPost) {
  const std::size_t bytes = a_.fabric().capabilities().inline_bytes_max;
  if (bytes == 0) GTEST_SKIP() << "this device has no inline payload";
  const Link link = connect(a_, b_);
  Area& in = b_.area(4096);
  const std::uint64_t received = b_.receive(link.b, in.segment(0, 4096));
  std::string unregistered = pattern(bytes, 3);
  const LocalSegment segment{.address = reinterpret_cast<std::byte*>(unregistered.data()),
                             .length = static_cast<std::uint32_t>(bytes)};
  const std::uint64_t sent = a_.post(
      link.a, {.op = Opcode::send, .inline_payload = true, .local = std::span(&segment, 1)});
  unregistered.assign(bytes, 'x');
  ASSERT_TRUE(run_until([&] { return a_.done(sent) && b_.done(received); }));
  EXPECT_EQ(a_.status(sent), "success");
  EXPECT_TRUE(in.read(0, b_.completion(received)->bytes) == pattern(bytes, 3));

  std::string longer(bytes + 1, 'y');
  const LocalSegment too_long{.address = reinterpret_cast<std::byte*>(longer.data()),
                              .length = static_cast<std::uint32_t>(bytes + 1)};
  Status why;
  EXPECT_TRUE(
      a_.post(link.a,
              {{.op = Opcode::send, .inline_payload = true, .local = std::span(&too_long, 1)}}, why)
          .empty());
  EXPECT_EQ(why.code(), Code::too_large);
}

TEST_P(Messages, UnsignalledOnesCompleteWithTheNextSignalledOne) {
  const Link link = connect(a_, b_);
  Area& out = a_.area(4096);
  Area& in = b_.area(16 * 64);
  for (std::size_t i = 0; i < 16; ++i) b_.receive(link.b, in.segment(i * 64, 64));
  const LocalSegment segment = out.segment(0, 64);
  const WorkRequest quiet{.op = Opcode::send, .signalled = false, .local = std::span(&segment, 1)};
  const WorkRequest loud{.op = Opcode::send, .local = std::span(&segment, 1)};
  Status why;
  const auto first = a_.post(link.a, {quiet, quiet}, why);
  ASSERT_TRUE(run_until([&] { return b_.completions.size() == 2; }));
  run_for(5ms);
  EXPECT_TRUE(a_.completions.empty()) << "an unsignalled request completed alone";
  EXPECT_EQ(a_.fabric().resources().work_requests, 2u);
  const auto second = a_.post(link.a, {quiet, loud, quiet}, why);
  ASSERT_EQ(second.size(), 3u);
  ASSERT_TRUE(run_until([&] { return a_.done(second[1]) && b_.completions.size() == 5; }));
  EXPECT_TRUE(a_.all_done(first));
  EXPECT_TRUE(a_.done(second[0]));
  run_for(5ms);
  EXPECT_FALSE(a_.done(second[2]));
  // One without a successor completes with the end of the endpoint.
  a_.fabric().close(link.a);
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::closed, link.a) != nullptr; }));
  EXPECT_TRUE(a_.done(second[2]));
}

TEST_P(Messages, SilentOnesNeverFillTheQueue) {
  constexpr std::size_t kMessages = 42;
  constexpr std::uint32_t kDepth = 8;
  const Link link = connect(a_, b_, {.group = {1}, .send_depth = kDepth});
  Area& out = a_.area(4096);
  Area& in = b_.area(kMessages * 64);
  for (std::size_t i = 0; i < kMessages; ++i) b_.receive(link.b, in.segment(i * 64, 64));
  const LocalSegment segment = out.segment(0, 64);
  const WorkRequest quiet{.op = Opcode::send, .signalled = false, .local = std::span(&segment, 1)};
  std::vector<std::uint64_t> posted;
  const auto post_one = [&] {
    Status why;
    const auto ids = a_.post(link.a, {quiet}, why);
    posted.insert(posted.end(), ids.begin(), ids.end());
    return posted.size() == kMessages;
  };
  ASSERT_TRUE(run_until(post_one)) << posted.size() << " were accepted";
  ASSERT_TRUE(run_until([&] { return b_.completions.size() == kMessages; }));
  run_for(5ms);
  EXPECT_GE(a_.completions.size(), kMessages - kDepth);
  EXPECT_LT(a_.completions.size(), kMessages) << "each was signalled";
}

TEST_P(Messages, Promise8AMessageWithoutAReceiveWaits) {
  const Link link = connect(a_, b_);
  Area& out = a_.area(4096);
  Area& in = b_.area(4096);
  out.write(0, "onetwo");
  const std::uint64_t one = a_.send(link.a, out.segment(0, 3));
  const std::uint64_t two = a_.send(link.a, out.segment(3, 3));
  run_for(20ms);
  EXPECT_EQ(a_.count(EventKind::failed), 0u);
  EXPECT_FALSE(a_.done(one)) << "success means that the message is in a receive";
  const std::uint64_t first = b_.receive(link.b, in.segment(0, 8));
  ASSERT_TRUE(run_until([&] { return b_.done(first) && a_.done(one); }));
  EXPECT_EQ(in.read(0, 3), "one");
  EXPECT_FALSE(a_.done(two));
  const std::uint64_t second = b_.receive(link.b, in.segment(8, 8));
  ASSERT_TRUE(run_until([&] { return b_.done(second) && a_.done(two); }));
  EXPECT_EQ(in.read(8, 3), "two");
}

TEST_P(Messages, Promise8AReadBehindAWaitingMessageWaitsToo) {
  const Link link = connect(a_, b_);
  Area& area = a_.area(8192);
  Area& lent = b_.area(8192);
  const RemoteAddress remote = expose(b_, lent, 0, 64);
  const std::uint64_t sent = a_.send(link.a, area.segment(0, 3));
  run_for(10ms);
  const std::uint64_t read = a_.read(link.a, area.segment(4096, 64), remote);
  run_for(20ms);
  EXPECT_FALSE(a_.done(sent));
  EXPECT_FALSE(a_.done(read));
  b_.receive(link.b, lent.segment(4096, 64));
  ASSERT_TRUE(run_until([&] { return a_.done(sent) && a_.done(read); }));
  EXPECT_EQ(a_.status(read), "success");
}

TEST_P(Messages, WhoseSendSucceededSurvivesClose) {
  // b takes one completion in each of its turns, so that over sockets most of them wait there when
  // it hears of the end.
  constexpr std::size_t kCount = 16;
  const Link link = connect(a_, b_);
  Area& out = a_.area(kCount * 64);
  Area& in = b_.area(kCount * 64);
  std::vector<std::uint64_t> received;
  for (std::size_t i = 0; i < kCount; ++i) {
    out.fill_pattern(i * 64, 64, i);
    received.push_back(b_.receive(link.b, in.segment(i * 64, 64)));
  }
  const std::uint64_t behind = b_.receive(link.b, in.segment(0, 64));
  std::size_t sent = 0;
  a_.on_completion = [&](const Completion& c) {
    EXPECT_EQ(c.status, CompletionStatus::success);
    if (++sent == kCount) a_.fabric().close(link.a);
  };
  for (std::size_t i = 0; i < kCount; ++i) a_.send(link.a, out.segment(i * 64, 64));
  const TimePoint limit = soon();
  while (a_.event(EventKind::closed, link.a) == nullptr && world_->now() < limit) {
    const bool came = a_.turn();
    if (!b_.turn(1) && !came) world_->wait(limit);
  }
  ASSERT_EQ(sent, kCount);
  ASSERT_TRUE(run_until([&] { return b_.done(behind); }));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(b_.status(received[i]), "success") << i;
    EXPECT_TRUE(in.read(i * 64, 64) == pattern(64, i)) << i;
  }
  EXPECT_EQ(b_.status(behind), "flushed");
}

TEST_P(Messages, Promise11TooLongForItsReceiveFailsBothEnds) {
  const Link link = connect(a_, b_);
  Area& out = a_.area(4096);
  Area& in = b_.area(4096);
  in.fill(0, 4096, '.');
  const std::uint64_t received = b_.receive(link.b, in.segment(0, 64));
  const std::uint64_t behind = b_.receive(link.b, in.segment(1024, 64));
  const std::uint64_t sent = a_.send(link.a, out.segment(0, 65));
  ASSERT_TRUE(run_until([&] {
    return a_.event(EventKind::failed, link.a) && b_.event(EventKind::failed, link.b) &&
           a_.done(sent) && b_.done(behind);
  }));
  EXPECT_EQ(b_.status(received), "local_error");
  EXPECT_EQ(b_.status(behind), "flushed");
  EXPECT_EQ(a_.status(sent), "remote_operation");
  EXPECT_EQ(in.read(64, 64), std::string(64, '.'));
}

TEST_P(Messages, EndpointsDoNotMix) {
  constexpr std::size_t kLinks = 6;
  std::vector<Link> links;
  Area& out = a_.area(kLinks * 64);
  Area& in = b_.area(kLinks * 64);
  std::vector<std::uint64_t> received;
  std::vector<std::uint64_t> back;
  for (std::size_t i = 0; i < kLinks; ++i) links.push_back(connect(a_, b_));
  for (std::size_t i = 0; i < kLinks; ++i) {
    received.push_back(b_.receive(links[i].b, in.segment(i * 64, 64)));
  }
  for (std::size_t i = kLinks; i-- > 0;) {
    out.write(i * 64, "to link " + std::to_string(i));
    a_.send(links[i].a, out.segment(i * 64, 9));
  }
  ASSERT_TRUE(run_until([&] { return b_.all_done(received); }));
  for (std::size_t i = 0; i < kLinks; ++i) {
    EXPECT_EQ(in.read(i * 64, 9), "to link " + std::to_string(i));
  }
}

TEST_P(Messages, BothWaysAtOnceWithSmallPolls) {
  constexpr std::size_t kCount = 60;
  const Link link = connect(a_, b_);
  Area& area_a = a_.area(2 * kCount * 128);
  Area& area_b = b_.area(2 * kCount * 128);
  for (std::size_t i = 0; i < kCount; ++i) {
    a_.receive(link.a, area_a.segment(i * 128, 128));
    b_.receive(link.b, area_b.segment(i * 128, 128));
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at = (kCount + i) * 128;
    area_a.fill_pattern(at, 128, i);
    area_b.fill_pattern(at, 128, 1000 + i);
    a_.send(link.a, area_a.segment(at, 128));
    b_.send(link.b, area_b.segment(at, 128));
  }
  batch_ = 1;
  ASSERT_TRUE(run_until([&] { return a_.outstanding() == 0 && b_.outstanding() == 0; }));
  EXPECT_TRUE(area_a.read(0, 128) == pattern(128, 1000));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(area_a.read(i * 128, 128) == pattern(128, 1000 + i)) << i;
    ASSERT_TRUE(area_b.read(i * 128, 128) == pattern(128, i)) << i;
  }
}

}  // namespace
}  // namespace pawl::fabric::conformance
