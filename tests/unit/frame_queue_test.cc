// SPDX-License-Identifier: Apache-2.0
#include "rpc/frame_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace pawl::rpc {
namespace {

FrameHeader header_of(std::uint64_t call) {
  FrameHeader header;
  header.type = FrameType::pong;
  header.call = call;
  return header;
}

std::vector<std::uint64_t> calls_in(std::span<const std::byte> rest) {
  std::vector<std::uint64_t> calls;
  while (!rest.empty()) {
    FrameHeader header;
    std::span<const std::byte> body;
    const char* why = nullptr;
    if (!next_frame(rest, header, body, why)) break;
    calls.push_back(header.call);
  }
  return calls;
}

TEST(FrameQueue, GivesWholeFramesInOrder) {
  FrameQueue queue;
  const std::array<std::byte, 8> body{};
  for (std::uint64_t call = 1; call <= 3; ++call) ASSERT_TRUE(queue.push(header_of(call), body));
  std::vector<std::byte> out(2 * (FrameHeader::kBytes + 8) + 5);
  std::uint16_t frames = 0;
  const std::size_t bytes = queue.take(out, frames);
  EXPECT_EQ(frames, 2);
  EXPECT_EQ(calls_in(std::span(out).first(bytes)), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.take(out, frames), FrameHeader::kBytes + 8);
  EXPECT_TRUE(queue.empty());
}

TEST(FrameQueue, RefusesWhatIsBeyondItsBound) {
  FrameQueue queue;
  const std::vector<std::byte> body(1000);
  std::size_t pushed = 0;
  while (queue.push(header_of(1), body)) ++pushed;
  EXPECT_EQ(pushed, FrameQueue::kBytesMax / (FrameHeader::kBytes + 1000));
}

// A peer that gives just enough credit never lets it run empty.
TEST(FrameQueue, HoldsNoMoreThanTwiceWhatWaitsHoweverLongItIsNeverEmpty) {
  FrameQueue queue;
  const std::array<std::byte, 8> body{};
  constexpr std::size_t kFrame = FrameHeader::kBytes + 8;
  std::vector<std::byte> out(10 * kFrame);
  std::uint64_t pushed = 0, taken = 0;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(queue.push(header_of(++pushed), body));
  for (int round = 0; round < 10'000; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(queue.push(header_of(++pushed), body));
    std::uint16_t frames = 0;
    const std::size_t bytes = queue.take(out, frames);
    ASSERT_EQ(frames, 10);
    for (const std::uint64_t call : calls_in(std::span(out).first(bytes))) {
      ASSERT_EQ(call, ++taken);
    }
  }
  EXPECT_LE(queue.memory(), 4 * 30 * kFrame);
}

}  // namespace
}  // namespace pawl::rpc
