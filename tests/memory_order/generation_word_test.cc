// SPDX-License-Identifier: Apache-2.0
#include "memory/generation_word.h"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace pawl::memory {
namespace {

// What would let other code change a word. Templates, so that the compiler may say no.
template <class Word>
concept Stores = requires(Word& word) {
  word.store(std::uint64_t{2});
};
template <class Word>
concept Exchanges = requires(Word& word) {
  word.exchange(std::uint64_t{2});
};
template <class Word>
concept Adds = requires(Word& word) {
  word.fetch_add(std::uint64_t{1});
}
|| requires(Word& word) { ++word; }
|| requires(Word& word) { word += 1; };
template <class Word>
concept ShowsBits = requires(Word& word) {
  word.bits_;
};

TEST(GenerationWord, TheCompilerRefusesOtherWaysToChangeIt) {
  static_assert(!Stores<GenerationWord> && !Exchanges<GenerationWord> && !Adds<GenerationWord>);
  static_assert(!ShowsBits<GenerationWord>);
  static_assert(!std::is_assignable_v<GenerationWord&, std::uint64_t>);
  static_assert(!std::copyable<GenerationWord> && !std::movable<GenerationWord>);
  static_assert(!std::is_constructible_v<GenerationWord, std::uint64_t>);
}

TEST(GenerationWord, EndsOnce) {
  GenerationWord word;
  word.start(10);
  EXPECT_FALSE(end_word(word, 11));
  word.lend(11, std::memory_order_release);
  EXPECT_FALSE(end_word(word, 9));
  EXPECT_EQ(word.load(std::memory_order_acquire), 11u);
  EXPECT_TRUE(end_word(word, 11));
  EXPECT_FALSE(end_word(word, 11));
  EXPECT_EQ(word.load(std::memory_order_acquire), 12u);
}

TEST(GenerationWordDeathTest, NeverGoesBackAndIsNeverEndedByLending) {
  GenerationWord word;
  word.start(10);
  EXPECT_DEATH(word.start(20), "starts once");
  word.lend(11, std::memory_order_relaxed);
  EXPECT_DEATH(word.lend(12, std::memory_order_relaxed), "lent again");
  EXPECT_DEATH(word.lend(11, std::memory_order_relaxed), "lent again");
  EXPECT_DEATH(word.lend(9, std::memory_order_relaxed), "lent again");
  GenerationWord other;
  EXPECT_DEATH(other.start(11), "at an even number");
}

}  // namespace
}  // namespace pawl::memory
