// SPDX-License-Identifier: Apache-2.0
// How long calls of the demo may take, how long their READs are held, and how the reader knows.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "tools/demo_hold.h"
#include "tools/demo_reuse.h"

namespace pawl::tools {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::array<std::size_t, 9> kSizes = {
    1, 4096, kReadBytes, kReadBytes + 1, 256 << 10, 1 << 20, 8 << 20, (8 << 20) + 1, 64 << 20};

RowSettings settings_of(bool large_only) {
  RowSettings settings{};
  settings.deadline = 40ms;
  settings.hold = true;
  settings.large_only = settings.large_shows = large_only;
  return settings;
}

TEST(DemoHold, EveryReadIsHeldForUpToFiveDeadlinesOfItsOwnCall) {
  for (const bool large_only : {false, true}) {
    const RowSettings settings = settings_of(large_only);
    for (const std::size_t bytes : kSizes) {
      const fabric::RandomDelay hold = hold_of(settings, bytes);
      EXPECT_EQ(hold.min, Duration{0}) << bytes;
      EXPECT_EQ(hold.max, deadline_of(settings, bytes) * 5) << bytes;
      EXPECT_GT(hold.probability, 0) << bytes;
      EXPECT_LE(hold.probability, 1) << bytes;
    }
  }
}

TEST(DemoHold, CallsOfEverySizeHaveAsManyReadsHeld) {
  for (const std::size_t bytes : kSizes) {
    const double reads = static_cast<double>((bytes + kReadBytes - 1) / kReadBytes);
    EXPECT_NEAR(hold_of(settings_of(false), bytes).probability * reads, 0.15, 1e-9) << bytes;
  }
  // One in each large call, where small ones can show nothing.
  RowSettings settings = settings_of(false);
  settings.large_shows = true;
  EXPECT_NEAR(hold_of(settings, 8 << 20).probability * 128, 1, 1e-9);
  EXPECT_NEAR(hold_of(settings, 8 << 10).probability, 0.15, 1e-9);
}

TEST(DemoHold, DeadlinesGrowWithTheFileAndAreMeasuredBackwards) {
  for (const bool large_only : {false, true}) {
    const RowSettings settings = settings_of(large_only);
    Duration before{0};
    for (const std::size_t bytes : kSizes) {
      const Duration deadline = deadline_of(settings, bytes);
      EXPECT_GE(deadline, before) << bytes;
      EXPECT_EQ(small_deadline_for(settings, bytes, deadline), settings.deadline) << bytes;
      before = deadline;
    }
  }
  EXPECT_EQ(small_deadline_for(settings_of(true), 64 << 20, 1ms), Duration{0});
}

TEST(DemoReuse, TheReaderKnowsTheSizeOfTheFileInABuffer) {
  Result<fabric::SharedReuseTable> table = fabric::SharedReuseTable::create();
  ASSERT_TRUE(table.ok());
  ProcessBoard owner_board{};
  ProcessBoard reader_board{};
  ReuseBook owner(*table, owner_board);
  ReuseBook reader(*table, reader_board);
  std::array<std::byte, 64> memory{};
  const fabric::RemoteAddress first{.key = 11, .address = 0};
  const fabric::RemoteAddress second{.key = 12, .address = 0};

  EXPECT_EQ(reader.file_bytes(first), 0u);
  {
    const BufferUse use(owner, std::span(memory).first(10));
    owner.on_expose({}, first, memory.data());
    EXPECT_EQ(reader.file_bytes(first), 10u);
  }
  const BufferUse use(owner, std::span(memory).first(60));
  EXPECT_EQ(reader.file_bytes(first), 60u);
  owner.on_expose({}, second, memory.data());  // over another connection
  EXPECT_EQ(reader.file_bytes(second), 60u);
}

}  // namespace
}  // namespace pawl::tools
