// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "fabric/tcp/memory_table.h"
#include "support/plain_memory.h"

namespace pawl::fabric::tcp {
namespace {

TEST(TcpKeyIndex, DoesWhatAMapDoes) {
  KeyIndex index;
  std::map<std::uint64_t, std::uint32_t> model;
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    // Few home places, so that runs form, meet and wrap around.
    const std::uint64_t key = 1 + (random() % 400) * 63;
    if (model.contains(key)) {
      index.erase(key);
      model.erase(key);
    } else {
      index.insert(key, static_cast<std::uint32_t>(round));
      model[key] = static_cast<std::uint32_t>(round);
    }
    ASSERT_EQ(index.size(), model.size());
    const std::uint64_t probe = 1 + (random() % 400) * 63;
    const auto found = model.find(probe);
    ASSERT_EQ(index.find(probe), found == model.end() ? KeyIndex::kNone : found->second);
  }
  for (const auto& [key, place] : model) EXPECT_EQ(index.find(key), place);
  EXPECT_EQ(index.find(0), KeyIndex::kNone);
  index.erase(0);
}

class TcpMemoryTable : public ::testing::Test {
 protected:
  static constexpr PeerGroup kGroup{1};
  static constexpr PeerGroup kOther{2};
  static constexpr EndpointId kEndpoint{11};
  static constexpr EndpointId kElsewhere{12};

  MemoryHandle add(MemoryUse use = MemoryUse::bulk) {
    return table_.add(bytes_, kind_, use).value();
  }
  bool opens(EndpointId endpoint, PeerGroup group, std::uint64_t key, std::uint64_t address,
             std::uint64_t length) {
    MemoryTable::Readable memory;
    const MemoryTable::Sampling sampling(table_);
    return sampling.resolve(endpoint, group, key, address, length, memory);
  }
  LocalSegment segment(MemoryHandle memory, std::size_t offset, std::uint32_t length) {
    return {.address = bytes_.data() + offset, .length = length, .memory = memory};
  }

  pawl::testing::PlainMemory kind_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
  MemoryTable table_;
};

TEST_F(TcpMemoryTable, SegmentsLieInTheirRegistration) {
  const MemoryHandle memory = add();
  MemoryKind* kind = nullptr;
  EXPECT_TRUE(table_.covers(segment(memory, 0, 4096), kind));
  EXPECT_EQ(kind, nullptr);
  EXPECT_TRUE(table_.covers(segment(memory, 4095, 1), kind));
  EXPECT_FALSE(table_.covers(segment(memory, 4095, 2), kind));
  EXPECT_FALSE(table_.covers(segment({}, 0, 1), kind));
  LocalSegment before = segment(memory, 0, 1);
  --before.address;
  EXPECT_FALSE(table_.covers(before, kind));
  EXPECT_TRUE(table_.remove(memory).ok());
  EXPECT_FALSE(table_.covers(segment(memory, 0, 1), kind));
  EXPECT_EQ(table_.remove(memory).code(), Code::not_found);
  EXPECT_FALSE(table_.add({}, kind_, MemoryUse::bulk).ok());
}

TEST_F(TcpMemoryTable, RegionKeysBelongToAGroupAndHaveBounds) {
  const MemoryHandle memory = add();
  const RemoteAddress a = table_.expose(kGroup, memory, bytes_.data() + 100, 50).value();
  EXPECT_TRUE(opens(kEndpoint, kGroup, a.key, 0, 50));
  EXPECT_TRUE(opens(kElsewhere, kGroup, a.key, 49, 1));
  EXPECT_FALSE(opens(kEndpoint, kOther, a.key, 0, 1));
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key, 0, 51));
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key, 50, 1));
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key, UINT64_MAX, 2));
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key, 1, UINT64_MAX));
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key + 1, 0, 1));
  EXPECT_FALSE(opens(kEndpoint, kGroup, 0, 0, 1));
  // The same key again; a longer use of the buffer widens it.
  EXPECT_EQ(table_.expose(kGroup, memory, bytes_.data() + 100, 20)->key, a.key);
  EXPECT_TRUE(opens(kEndpoint, kGroup, a.key, 0, 50));
  EXPECT_EQ(table_.expose(kGroup, memory, bytes_.data() + 100, 60)->key, a.key);
  EXPECT_TRUE(opens(kEndpoint, kGroup, a.key, 0, 60));
  const RemoteAddress b = table_.expose(kOther, memory, bytes_.data() + 100, 50).value();
  EXPECT_NE(b.key, a.key);
  table_.close_group(kGroup);
  EXPECT_FALSE(opens(kEndpoint, kGroup, a.key, 0, 1));
  EXPECT_TRUE(opens(kEndpoint, kOther, b.key, 0, 1));
  EXPECT_TRUE(table_.remove(memory).ok());
  EXPECT_FALSE(opens(kEndpoint, kOther, b.key, 0, 1));
  EXPECT_EQ(table_.counts().keys, 0u);
}

TEST_F(TcpMemoryTable, UseDecidesWhatMayBeRead) {
  for (const MemoryUse use : {MemoryUse::bulk, MemoryUse::bulk_window_only, MemoryUse::messages,
                              MemoryUse::generation_words}) {
    const MemoryHandle memory = add(use);
    const bool region = use == MemoryUse::bulk || use == MemoryUse::generation_words;
    const bool window = use == MemoryUse::bulk || use == MemoryUse::bulk_window_only;
    EXPECT_EQ(table_.expose(kGroup, memory, bytes_.data(), 8).ok(), region);
    const WindowId id = table_.allocate_window();
    std::uint64_t key = 0;
    ASSERT_TRUE(table_.take_window_key(id, key));
    EXPECT_EQ(table_.bind(id, key, kEndpoint, segment(memory, 0, 8)),
              window ? CompletionStatus::success : CompletionStatus::bind_error);
    EXPECT_TRUE(table_.free_window(id).ok());
    EXPECT_TRUE(table_.remove(memory).ok());
  }
  EXPECT_EQ(table_.counts().keys, 0u);
}

TEST_F(TcpMemoryTable, WindowsFollowTheRulesOfType2) {
  const MemoryHandle memory = add();
  const WindowId window = table_.allocate_window();
  const std::uint64_t first = table_.next_window_key(window);
  std::uint64_t key = 0;
  EXPECT_EQ(table_.invalidate(window, kEndpoint), CompletionStatus::local_error) << "not bound";
  ASSERT_TRUE(table_.take_window_key(window, key));
  EXPECT_EQ(key, first);
  EXPECT_NE(table_.next_window_key(window), first);
  EXPECT_FALSE(opens(kEndpoint, kGroup, key, 0, 1)) << "taken is not bound";
  ASSERT_EQ(table_.bind(window, key, kEndpoint, segment(memory, 64, 16)),
            CompletionStatus::success);
  EXPECT_TRUE(opens(kEndpoint, kGroup, key, 0, 16));
  EXPECT_TRUE(opens(kEndpoint, kOther, key, 15, 1)) << "a window asks for its endpoint only";
  EXPECT_FALSE(opens(kEndpoint, kGroup, key, 0, 17));
  EXPECT_FALSE(opens(kElsewhere, kGroup, key, 0, 1));
  std::uint64_t second = 0;
  ASSERT_TRUE(table_.take_window_key(window, second));
  EXPECT_EQ(table_.bind(window, second, kEndpoint, segment(memory, 0, 16)),
            CompletionStatus::bind_error)
      << "bound already";
  EXPECT_EQ(table_.invalidate(window, kElsewhere), CompletionStatus::local_error);
  EXPECT_EQ(table_.invalidate(window, kEndpoint), CompletionStatus::success);
  EXPECT_FALSE(opens(kEndpoint, kGroup, key, 0, 1));
  ASSERT_TRUE(table_.take_window_key(window, second));
  EXPECT_EQ(table_.bind(window, second, kEndpoint, segment(memory, 0, 16)),
            CompletionStatus::success);
  EXPECT_FALSE(opens(kEndpoint, kGroup, key, 0, 1)) << "an old key never works again";
  EXPECT_TRUE(table_.free_window(window).ok());
  EXPECT_FALSE(opens(kEndpoint, kGroup, second, 0, 1));
  EXPECT_FALSE(table_.free_window(window).ok());
  EXPECT_FALSE(table_.take_window_key(window, key));
  EXPECT_EQ(table_.next_window_key(window), 0u);
  EXPECT_TRUE(table_.remove(memory).ok());
}

TEST_F(TcpMemoryTable, DeregistrationEndsWindowKeysToo) {
  const MemoryHandle memory = add();
  const WindowId window = table_.allocate_window();
  std::uint64_t key = 0;
  ASSERT_TRUE(table_.take_window_key(window, key));
  ASSERT_EQ(table_.bind(window, key, kEndpoint, segment(memory, 0, 8)), CompletionStatus::success);
  EXPECT_TRUE(table_.remove(memory).ok());
  EXPECT_FALSE(opens(kEndpoint, kGroup, key, 0, 1));
  EXPECT_EQ(table_.invalidate(window, kEndpoint), CompletionStatus::success);
  EXPECT_TRUE(table_.free_window(window).ok());
  EXPECT_EQ(table_.counts().windows, 0u);
}

TEST_F(TcpMemoryTable, KeysAreAllDifferent) {
  const MemoryHandle memory = add();
  const WindowId window = table_.allocate_window();
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 2000; ++i) {
    std::uint64_t key = 0;
    ASSERT_TRUE(table_.take_window_key(window, key));
    EXPECT_TRUE(seen.insert(key).second);
    ASSERT_EQ(table_.bind(window, key, kEndpoint, segment(memory, 0, 8)),
              CompletionStatus::success);
    ASSERT_EQ(table_.invalidate(window, kEndpoint), CompletionStatus::success);
  }
  EXPECT_TRUE(table_.remove(memory).ok());
}

// Whoever ends a key gets it back only after the system call that may be reading the memory.
TEST_F(TcpMemoryTable, EndingAKeyWaitsForTheSamplingInProgressAndForNoOther) {
  const MemoryHandle memory = add();
  const RemoteAddress remote = table_.expose(kGroup, memory, bytes_.data(), 64).value();
  std::atomic<bool> removed{false};
  std::optional<MemoryTable::Sampling> sampling(std::in_place, table_);
  MemoryTable::Readable readable;
  ASSERT_TRUE(sampling->resolve(kEndpoint, kGroup, remote.key, 0, 64, readable));
  std::thread other([&] {
    EXPECT_TRUE(table_.remove(memory).ok());
    removed = true;
  });
  // The key dies at once, while the memory stays until the end of the sampling.
  while (table_.counts().registrations != 0) std::this_thread::yield();
  EXPECT_FALSE(removed);
  EXPECT_FALSE(sampling->resolve(kEndpoint, kGroup, remote.key, 0, 64, readable));
  sampling.reset();
  sampling.emplace(table_);  // the next one does not hold it up
  other.join();
  EXPECT_TRUE(removed);
}

}  // namespace
}  // namespace pawl::fabric::tcp
