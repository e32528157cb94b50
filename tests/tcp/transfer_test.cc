// SPDX-License-Identifier: Apache-2.0
// Two fabrics over real sockets: volume, interleaving, ends in the middle.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "tcp/harness.h"

namespace pawl::fabric::tcp {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::byte pattern_at(std::size_t i) {
  return static_cast<std::byte>((i * 2654435761u) >> 13 ^ i >> 20);
}
void fill_pattern(std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_at(i);
}
bool has_pattern(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern_at(i)) return false;
  }
  return true;
}

class TcpTransfer : public TcpTest {};

TEST_F(TcpTransfer, OneReadOf64MiB) {
  const Link link = connect({.group = {1}, .bulk = true}, {.group = {1}, .bulk = true});
  auto from = b_.memory(64 * kMiB);
  auto to = a_.memory(64 * kMiB);
  fill_pattern(from->bytes);
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), from->bytes.size()).value();
  a_.read(link.a, 1, to->segment(0, 64 * kMiB), remote);
  ASSERT_TRUE(run_until([&] { return a_.done(1); }));
  EXPECT_EQ(a_.status(1), "success");
  EXPECT_TRUE(has_pattern(to->bytes));
}

TEST_F(TcpTransfer, ReadsIntoSegmentsOfOddSizes) {
  const Link link = connect();
  auto from = b_.memory(kMiB);
  auto to = a_.memory(2 * kMiB);
  fill_pattern(from->bytes);
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), kMiB).value();
  std::vector<LocalSegment> segments;
  std::size_t offset = 0;
  std::size_t landed = 0;
  for (const std::size_t length : {1u, 65535u, 4095u, 4097u, 131072u, 7u, 200000u, 3u}) {
    segments.push_back(to->segment(offset, length));
    offset += length + 13;
    landed += length;
  }
  a_.post(link.a, {.id = 1, .op = Opcode::read, .local = segments, .remote = remote});
  ASSERT_TRUE(run_until([&] { return a_.done(1); }));
  ASSERT_EQ(a_.status(1), "success");
  std::vector<std::byte> gathered;
  for (const LocalSegment& segment : segments) {
    gathered.insert(gathered.end(), segment.address, segment.address + segment.length);
  }
  EXPECT_EQ(gathered.size(), landed);
  EXPECT_TRUE(has_pattern(gathered));
  for (const LocalSegment& segment : segments) {
    for (int i = 0; i < 13; ++i) EXPECT_EQ(segment.address[segment.length + i], std::byte{0});
  }
}

// A message does not wait for the bulk that was asked for before it.
TEST_F(TcpTransfer, MessagesOvertakeBulk) {
  const Link link = connect({.group = {1}, .bulk = true}, {.group = {1}, .bulk = true});
  auto from = b_.memory(64 * kMiB);
  auto to = a_.memory(64 * kMiB);
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), from->bytes.size()).value();
  auto slots = a_.memory(4096);
  auto messages = b_.memory(4096);
  for (std::uint64_t i = 0; i < 16; ++i) a_.receive(link.a, 100 + i, slots->segment(i * 64, 64));
  a_.read(link.a, 1, to->segment(0, 64 * kMiB), remote);
  for (std::uint64_t i = 0; i < 16; ++i) {
    std::memset(messages->bytes.data() + i * 64, static_cast<int>(i + 1), 64);
    b_.send(link.b, 200 + i, messages->segment(i * 64, 64));
    ASSERT_TRUE(run_until([&] { return a_.done(100 + i); }));
    EXPECT_EQ(slots->bytes[i * 64 + 63], static_cast<std::byte>(i + 1));
  }
  EXPECT_FALSE(a_.done(1)) << "64 MiB cannot have gone by sixteen messages";
  ASSERT_TRUE(run_until([&] { return a_.done(1); }));
  EXPECT_EQ(a_.status(1), "success");
}

TEST_F(TcpTransfer, MessagesAndReadsBothWaysAtOnce) {
  constexpr std::size_t kBytes = 300'000;
  const Link link = connect({.group = {1}, .read_depth = 4}, {.group = {1}, .read_depth = 4});
  struct End {
    Node& node;
    EndpointId endpoint;
    std::unique_ptr<Memory> own, landing, in, out;
    RemoteAddress remote;
    std::size_t reads = 0, received = 0, sent = 0;
    std::uint64_t next = 1;
  };
  std::array<End, 2> ends = {End{a_, link.a, {}, {}, {}, {}, {}},
                             End{b_, link.b, {}, {}, {}, {}, {}}};
  for (std::size_t i = 0; i < 2; ++i) {
    End& end = ends[i];
    end.own = end.node.memory(kBytes);
    end.landing = end.node.memory(8 * kBytes);
    end.in = end.node.memory(64 * 5000);
    end.out = end.node.memory(5000);
    fill_pattern(end.own->bytes);
    fill_pattern(end.out->bytes);
    ends[1 - i].remote =
        end.node.fabric->expose({1}, end.own->handle, end.own->bytes.data(), kBytes).value();
    for (std::uint64_t s = 0; s < 64; ++s) {
      end.node.receive(end.endpoint, 1'000'000 + s, end.in->segment(s * 5000, 5000));
    }
  }
  std::map<std::uint64_t, std::uint64_t> slots[2];
  for (std::size_t i = 0; i < 2; ++i) {
    End& end = ends[i];
    const auto read = [&end, &slots = slots[i]](std::uint64_t slot) {
      slots[end.next] = slot;
      end.node.read(end.endpoint, end.next++, end.landing->segment(slot * kBytes, kBytes),
                    end.remote);
    };
    const auto send = [&end] {
      end.node.send(end.endpoint, end.next++, end.out->segment(0, 1 + end.sent++ * 37 % 5000));
    };
    std::uint64_t fresh = 2'000'000;
    end.node.on_completion = [&end, &slots = slots[i], read, send,
                              fresh](const Completion& c) mutable {
      ASSERT_EQ(c.status, CompletionStatus::success);
      if (c.op == Opcode::read) {
        const std::uint64_t slot = slots[c.id];
        const auto landed = std::span(end.landing->bytes).subspan(slot * kBytes, kBytes);
        EXPECT_TRUE(has_pattern(landed));
        std::fill(landed.begin(), landed.end(), std::byte{0});
        if (++end.reads < 40) read(slot);
      } else if (c.op == Opcode::receive) {
        const std::uint64_t s = end.received % 64;
        const auto got = std::span(end.in->bytes).subspan(s * 5000, 5000);
        EXPECT_EQ(c.bytes, 1 + end.received * 37 % 5000);
        EXPECT_TRUE(has_pattern(got.first(c.bytes)));
        ++end.received;
        end.node.receive(end.endpoint, fresh++, end.in->segment(s * 5000, 5000));
      } else if (end.sent < 400) {
        send();
      }
    };
    for (std::uint64_t slot = 0; slot < 8; ++slot) read(slot);
    for (int n = 0; n < 16; ++n) send();
  }
  EXPECT_TRUE(run_until([&] {
    return std::all_of(ends.begin(), ends.end(),
                       [](const End& end) { return end.reads >= 40 && end.received >= 400; });
  }));
  a_.on_completion = b_.on_completion = nullptr;
}

// The key dies while its bytes are on the way: the rest is refused, and the memory is not touched
// after deregister_memory returned.
TEST_F(TcpTransfer, DeregisterInTheMiddleOfARead) {
  const Link link = connect();
  auto from = b_.memory(64 * kMiB);
  auto to = a_.memory(64 * kMiB);
  std::fill(from->bytes.begin(), from->bytes.end(), std::byte{'o'});
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), from->bytes.size()).value();
  a_.read(link.a, 1, to->segment(0, 64 * kMiB), remote);
  ASSERT_TRUE(run_until([&] { return to->bytes[kMiB] == std::byte{'o'}; }));
  std::atomic<bool> gone{false};
  std::thread other([&] {
    EXPECT_TRUE(b_.fabric->deregister_memory(from->handle).ok());
    std::fill(from->bytes.begin(), from->bytes.end(), std::byte{'N'});
    gone = true;
  });
  ASSERT_TRUE(run_until([&] { return gone && a_.done(1); }));
  other.join();
  EXPECT_EQ(a_.status(1), "remote_access");
  EXPECT_EQ(std::count(to->bytes.begin(), to->bytes.end(), std::byte{'N'}), 0);
  EXPECT_TRUE(run_until(
      [&] { return a_.event(EventKind::failed, link.a) && b_.event(EventKind::failed, link.b); }));
  EXPECT_EQ(b_.fabric->resources().keys, 0u);
}

TEST_F(TcpTransfer, CloseWithEverythingOutstanding) {
  const Link link = connect({.group = {1}, .read_depth = 4}, {.group = {1}});
  auto from = b_.memory(32 * kMiB);
  auto to = a_.memory(32 * kMiB);
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), from->bytes.size()).value();
  for (std::uint64_t i = 0; i < 8; ++i) {
    a_.read(link.a, 1 + i, to->segment(i * 4 * kMiB, 4 * kMiB), remote);
    a_.receive(link.a, 100 + i, to->segment(0, 64));
    b_.send(link.b, 200 + i, from->segment(0, 64));
    b_.receive(link.b, 300 + i, from->segment(0, 64));
    if (i % 2 == 0) a_.send(link.a, 400 + i, to->segment(0, 64));
  }
  run_turns(3);
  a_.fabric->close(link.a);
  ASSERT_TRUE(run_until(
      [&] { return a_.event(EventKind::closed, link.a) && b_.event(EventKind::failed, link.b); }));
  for (std::uint64_t i = 0; i < 8; ++i) {
    for (const std::uint64_t id : {1 + i, 100 + i, 400 + i / 2 * 2}) EXPECT_TRUE(a_.done(id)) << id;
  }
  // After `closed` the fabric writes nowhere any more.
  std::fill(to->bytes.begin(), to->bytes.end(), std::byte{0});
  run_turns(20);
  EXPECT_EQ(std::count(to->bytes.begin(), to->bytes.end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(to->bytes.size()));
  EXPECT_TRUE(run_until([&] { return b_.done(307) && b_.done(207); }));
  for (std::uint64_t i = 4; i < 8; ++i) EXPECT_EQ(b_.status(300 + i), "flushed");
}

// Posting and executing a bind costs one system call with the message that carries its key, and
// the key works as soon as the message is there.
TEST_F(TcpTransfer, WindowChainsAHundredTimes) {
  const Link link = connect();
  auto from = b_.memory(kMiB, MemoryUse::bulk_window_only);
  auto to = a_.memory(kMiB);
  auto slots = a_.memory(4096);
  fill_pattern(from->bytes);
  const WindowId window = b_.fabric->allocate_window().value();
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t key = b_.fabric->next_window_key(window);
    a_.receive(link.a, 1000 + i, slots->segment(0, 64));
    const LocalSegment message{
        .address = reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(&key)), .length = 8};
    const std::array<WorkRequest, 2> chain = {
        WorkRequest{.id = 2000 + i,
                    .op = Opcode::bind,
                    .signalled = false,
                    .window = window,
                    .bind_target = from->segment(i * 100, 70'000)},
        WorkRequest{.id = 3000 + i,
                    .op = Opcode::send,
                    .inline_payload = true,
                    .local = std::span(&message, 1)}};
    Status why;
    ASSERT_EQ(b_.fabric->post(link.b, chain, why), 2u) << why.to_string();
    ASSERT_TRUE(run_until([&] { return a_.done(1000 + i); }));
    RemoteAddress remote;
    std::memcpy(&remote.key, slots->bytes.data(), 8);
    EXPECT_EQ(remote.key, key);
    a_.read(link.a, 4000 + i, to->segment(0, 70'000), remote);
    ASSERT_TRUE(run_until([&] { return a_.done(4000 + i) && b_.done(3000 + i); }));
    ASSERT_EQ(a_.status(4000 + i), "success");
    EXPECT_EQ(b_.status(2000 + i), "success");
    ASSERT_TRUE(std::equal(to->bytes.begin(), to->bytes.begin() + 70'000,
                           from->bytes.begin() + static_cast<std::ptrdiff_t>(i * 100)));
    b_.post(link.b, {.id = 5000 + i, .op = Opcode::invalidate, .window = window});
    ASSERT_TRUE(run_until([&] { return b_.done(5000 + i); }));
  }
  EXPECT_TRUE(b_.fabric->free_window(window).ok());
  EXPECT_EQ(b_.fabric->resources().windows, 0u);
}

}  // namespace
}  // namespace pawl::fabric::tcp
