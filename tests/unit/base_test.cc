// SPDX-License-Identifier: Apache-2.0
// Checks, lists, rings, slots, bytes, random, checksums, histogram.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/random.h"
#include "base/ref_counted.h"
#include "base/ring.h"
#include "base/slot_map.h"
#include "base/unique_fd.h"

namespace pawl {
namespace {

TEST(CheckDeathTest, PrintsTheSentenceAndAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(PAWL_CHECK(1 + 1 == 3, "the sums are wrong"),
               "the sums are wrong \\(1 \\+ 1 == 3 is false at");
}

// ---- List

struct Item : ListNode<>, ListNode<struct Other> {
  explicit Item(int n) : number(n) {}
  int number;
};

std::vector<int> numbers(List<Item>& list) {
  std::vector<int> out;
  for (Item& item : list) out.push_back(item.number);
  return out;
}

TEST(List, KeepsOrderAndRemovesAnywhere) {
  Item a(1);
  Item b(2);
  Item c(3);
  List<Item> list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), nullptr);
  list.push_back(b);
  list.push_back(c);
  list.push_front(a);
  EXPECT_EQ(numbers(list), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(list.back(), &c);
  EXPECT_EQ(list.next(a), &b);
  EXPECT_EQ(list.next(c), nullptr);
  list.remove(b);
  list.remove(b);
  EXPECT_EQ(numbers(list), (std::vector<int>{1, 3}));
  EXPECT_EQ(list.pop_front(), &a);
  EXPECT_EQ(list.pop_front(), &c);
  EXPECT_EQ(list.pop_front(), nullptr);
}

TEST(List, AnObjectLeavesWhenItIsDestroyedAndMayBeInSeveral) {
  List<Item> list;
  List<Item, Other> other;
  Item stays(1);
  list.push_back(stays);
  {
    Item goes(2);
    list.push_back(goes);
    other.push_back(goes);
    EXPECT_EQ(list.count(), 2U);
  }
  EXPECT_EQ(list.count(), 1U);
  EXPECT_TRUE(other.empty());
}

TEST(List, SpliceMovesAllAndAListMayGoFirst) {
  Item a(1);
  Item b(2);
  List<Item> to;
  to.push_back(a);
  {
    List<Item> from;
    from.push_back(b);
    to.splice_back(from);
    EXPECT_TRUE(from.empty());
    to.splice_back(from);
  }
  EXPECT_EQ(numbers(to), (std::vector<int>{1, 2}));
  Item c(3);
  {
    List<Item> short_lived;
    short_lived.push_back(c);
  }
  EXPECT_FALSE(static_cast<ListNode<>&>(c).linked());
}

// ---- Ring

TEST(Ring, IsFirstInFirstOutAndBounded) {
  Ring<std::unique_ptr<int>> ring(3);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.push(std::make_unique<int>(i)));
    EXPECT_TRUE(ring.full());
    EXPECT_FALSE(ring.push(std::make_unique<int>(9)));
    EXPECT_EQ(*ring.at(2), 2);
    EXPECT_EQ(*ring.pop(), 0);
    EXPECT_TRUE(ring.push(std::make_unique<int>(3)));
    for (int i = 1; i < 4; ++i) EXPECT_EQ(*ring.pop(), i);
    EXPECT_TRUE(ring.empty());
  }
}

TEST(RingDeathTest, IsNotReadWhenEmpty) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Ring<int> ring(1);
  EXPECT_DEATH((void)ring.front(), "behind its end");
  EXPECT_DEATH(ring.pop(), "empty ring");
}

// ---- SlotMap

TEST(SlotMap, AnOldIdFindsNothing) {
  SlotMap<std::string> map(2);
  const auto a = map.emplace("a");
  const auto b = map.emplace("b");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(map.emplace("c"), std::nullopt);
  EXPECT_EQ(*map.find(*a), "a");
  EXPECT_TRUE(map.erase(*a));
  EXPECT_FALSE(map.erase(*a));
  EXPECT_EQ(map.find(*a), nullptr);
  const auto c = map.emplace("c");
  EXPECT_EQ(c->index, a->index);
  EXPECT_NE(c->generation, a->generation);
  EXPECT_EQ(map.find(*a), nullptr);
  EXPECT_EQ(*map.find(*c), "c");
  EXPECT_EQ(map.size(), 2U);
  EXPECT_EQ(SlotId::unpack(c->packed()), *c);
}

TEST(SlotMap, AnyBitsAreSafe) {
  SlotMap<int> map(4, 0xffffffff);
  Random random(1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(map.find(SlotId::unpack(random.next())), nullptr);
  EXPECT_EQ(map.find(SlotId{}), nullptr);
  // The generation wraps past 0, which is never an id.
  const auto first = map.emplace(1);
  EXPECT_EQ(first->generation, 0xffffffff);
  map.erase(*first);
  const auto second = map.emplace(2);
  EXPECT_EQ(second->generation, 1U);
}

TEST(SlotMap, ElementsStayInPlaceAndMayBeErasedDuringAWalk) {
  SlotMap<int> map(100);
  std::vector<std::pair<SlotId, int*>> places;
  for (int i = 0; i < 100; ++i) {
    const auto id = map.emplace(i);
    places.emplace_back(*id, map.find(*id));
  }
  map.for_each([&](SlotId id, int& n) {
    if (n % 2 == 1) map.erase(id);
  });
  EXPECT_EQ(map.size(), 50U);
  for (auto [id, place] : places) {
    if (map.find(id) != nullptr) {
      EXPECT_EQ(map.find(id), place);
    }
  }
}

// ---- Bytes

TEST(Bytes, RoundTripLittleEndian) {
  std::array<std::byte, 64> memory{};
  Writer writer(memory);
  writer.u8(0x01);
  writer.u16(0x0302);
  writer.u32(0x07060504);
  writer.u64(0x0f0e0d0c0b0a0908);
  writer.text("pawl");
  writer.zeros(2);
  writer.patch_u32(3, 0xaabbccdd);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer.size(), 21U);
  EXPECT_EQ(memory[1], std::byte{0x02});
  EXPECT_EQ(memory[7], std::byte{0x08});

  Reader reader(writer.written());
  EXPECT_EQ(reader.u8(), 0x01);
  EXPECT_EQ(reader.u16(), 0x0302);
  EXPECT_EQ(reader.u32(), 0xaabbccdd);
  EXPECT_EQ(reader.u64(), 0x0f0e0d0c0b0a0908U);
  EXPECT_EQ(reader.text(4), "pawl");
  EXPECT_EQ(reader.remaining(), 2U);
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.rest().size(), 2U);
  EXPECT_TRUE(reader.done());
}

TEST(Bytes, ReadingPastTheEndSticks) {
  const std::array<std::byte, 5> memory{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                        std::byte{5}};
  for (std::size_t size = 0; size < 8; ++size) {
    Reader reader(std::span<const std::byte>(memory).first(std::min<std::size_t>(size, 5)));
    reader.skip(2);
    reader.u32();
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(reader.u8(), 0);  // also where a byte would be left
    EXPECT_TRUE(reader.bytes(0).empty());
    EXPECT_FALSE(reader.ok());
  }
  Reader huge(memory);
  huge.u8();
  EXPECT_TRUE(huge.bytes(SIZE_MAX).empty());
  EXPECT_FALSE(huge.ok());
}

TEST(Bytes, WritingPastTheEndWritesNothing) {
  std::array<std::byte, 5> memory{};
  Writer writer(std::span<std::byte>(memory).first(3));
  writer.u16(0x1111);
  writer.u32(0x22222222);
  writer.u8(0x33);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.size(), 2U);
  EXPECT_EQ(writer.remaining(), 0U);
  EXPECT_EQ(memory[2], std::byte{0});
  Writer patch(memory);
  patch.u16(1);
  patch.patch_u32(0, 1);
  EXPECT_FALSE(patch.ok());
}

// ---- Random, checksum, histogram, references, descriptors

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  Random a(42);
  Random b(42);
  Random c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto n = a.next();
    EXPECT_EQ(n, b.next());
    differs |= n != c.next();
  }
  EXPECT_TRUE(differs);
  // xoshiro256** seeded with splitmix64(0), as published by its authors.
  EXPECT_EQ(Random(0).next(), 0x99ec5f36cb75f2b4U);
}

TEST(Random, StaysInItsRange) {
  Random random(7);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(random.below(5));
    const auto n = random.between(-3, 3);
    EXPECT_TRUE(n >= -3 && n <= 3);
    const double unit = random.unit();
    EXPECT_TRUE(unit >= 0 && unit < 1);
  }
  EXPECT_EQ(seen.size(), 5U);
  EXPECT_EQ(random.below(0), 0U);
  EXPECT_EQ(random.between(5, 5), 5);
  random.between(INT64_MIN, INT64_MAX);
  EXPECT_FALSE(Random(1).chance(0.0));
  EXPECT_TRUE(Random(1).chance(1.0));
  EXPECT_NE(random_u64(), random_u64());
}

TEST(Crc32c, KnownValues) {
  const auto of = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xe3069283U);
  EXPECT_EQ(
      of(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32)),
      0x8a9136aaU);  // RFC 3720, B.4
  const std::string_view text = "in several pieces";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), of(text));
  }
}

TEST(Histogram, QuantilesAreClose) {
  Histogram histogram;
  EXPECT_EQ(histogram.p99(), Duration(0));
  for (int i = 1; i <= 100'000; ++i) histogram.add(Duration(i));
  EXPECT_EQ(histogram.count(), 100'000U);
  EXPECT_EQ(histogram.min(), Duration(1));
  EXPECT_EQ(histogram.max(), Duration(100'000));
  EXPECT_EQ(histogram.mean(), Duration(50'000));
  const auto near = [](Duration got, std::int64_t wanted) {
    EXPECT_GE(got.count(), wanted);
    EXPECT_LE(static_cast<double>(got.count()), static_cast<double>(wanted) * 1.032);
  };
  near(histogram.p50(), 50'000);
  near(histogram.p99(), 99'000);
  near(histogram.p999(), 99'900);
  EXPECT_EQ(histogram.quantile(1), Duration(100'000));
  EXPECT_EQ(histogram.quantile(0), Duration(1));
}

TEST(Histogram, TakesAnyValueAndMerges) {
  Histogram a;
  Histogram b;
  a.add(Duration(-5));
  a.add(Duration::max());
  b.add(Duration(31));
  a.merge(b);
  EXPECT_EQ(a.count(), 3U);
  EXPECT_EQ(a.min(), Duration(0));
  EXPECT_EQ(a.p50(), Duration(31));
  EXPECT_EQ(a.max(), Duration::max());
  EXPECT_EQ(a.sum(), Duration::max()) << "it stays there";
  a.clear();
  EXPECT_EQ(a.count(), 0U);
}

struct Counted : RefCounted<Counted> {
  explicit Counted(int* count) : alive(count) { ++*alive; }
  ~Counted() { --*alive; }
  int* alive;
};

TEST(Ref, CountsAndMoves) {
  int alive = 0;
  {
    Ref<Counted> a = make_ref<Counted>(&alive);
    EXPECT_TRUE(a->unique());
    Ref<Counted> b = a;
    EXPECT_FALSE(a->unique());
    Ref<Counted> c = std::move(b);
    EXPECT_EQ(a, c);
    a.reset();
    EXPECT_EQ(alive, 1);
    Counted* raw = c.detach();
    EXPECT_FALSE(c);
    c = Ref<Counted>::adopt(raw);
  }
  EXPECT_EQ(alive, 0);
}

TEST(UniqueFd, ClosesOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueFd read_end(ends[0]);
  {
    UniqueFd write_end(ends[1]);
    UniqueFd moved = std::move(write_end);
    EXPECT_EQ(moved.get(), ends[1]);
  }
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0);  // the other end is closed
  const int fd = read_end.release();
  EXPECT_FALSE(read_end);
  EXPECT_EQ(::close(fd), 0);
}

}  // namespace
}  // namespace pawl
