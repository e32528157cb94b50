// SPDX-License-Identifier: Apache-2.0
#include "hammer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

namespace pawl::memory_order_test {
namespace {

constexpr std::uint64_t kRounds = 100'000;
constexpr std::uint64_t kSoakRounds = 10'000'000;

std::uint64_t seed() {
  const char* const text = std::getenv("PAWL_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

TEST(Hammer, NoSampleThatTheCheckAcceptsHasBytesOfAnotherUse) {
  Options options;
  options.rounds = std::getenv("PAWL_TEST_SOAK") != nullptr ? kSoakRounds : kRounds;
  options.seed = seed();
  const Report report = hammer(options);
  std::cout << report.to_string() << '\n';
  EXPECT_TRUE(report.reader_left_well);
  EXPECT_EQ(report.wrong, 0u);
  EXPECT_GE(report.rounds, options.rounds);
  EXPECT_GE(report.samples, options.rounds);
  EXPECT_GT(report.overlapped, 0u) << "nothing was sampled while being overwritten: proves nothing";
  EXPECT_GT(report.valid, 0u) << "the check refused everything: proves nothing";
  EXPECT_GT(report.refused, 0u);
}

// The negative control: the same hammer over the wrong order.
TEST(Hammer, OverwritingBeforeTheEndIsCaught) {
  Options options;
  options.order = Order::overwrite_then_end;
  options.rounds = kRounds;
  options.seed = seed();
  const Report report = hammer(options);
  std::cout << report.to_string() << '\n';
  EXPECT_TRUE(report.reader_left_well);
  EXPECT_GT(report.wrong, 0u);
}

}  // namespace
}  // namespace pawl::memory_order_test
