// SPDX-License-Identifier: Apache-2.0
// How many tickets there may be, and when they go.
#include "rpc/ticket_table.h"

#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using rpc::TicketTable;

constexpr TimePoint kNow{1'000'000'000};

class TicketTableTest : public ::testing::Test {
 protected:
  Result<Ticket> issue(Duration deadline, TimePoint now = kNow) {
    return table_.issue({block_of(pool_, 4096)}, "peer:1", now, now + deadline);
  }
  std::size_t held() { return pool_.stats().bytes_in_use / 4096; }

  Pool pool_{small_pool()};
  TicketTable table_{1, 2, 4};
};

TEST_F(TicketTableTest, MoreThanItsBoundAreRefusedUntilSomeAreOver) {
  const Ticket first = *issue(1s);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(issue(10s).ok());
  const Status refused = issue(10s).status();
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_NE(refused.what().find("tickets_max"), std::string_view::npos) << refused.what();
  EXPECT_EQ(held(), 4u) << "what was refused holds nothing";
  table_.end(*rpc::decode_ticket(first.bytes()));
  ASSERT_TRUE(issue(1s).ok());
  EXPECT_FALSE(issue(1s, kNow + Duration(999ms)).ok());
  EXPECT_TRUE(issue(1s, kNow + Duration(1s)).ok()) << "those whose time is over do not count";
  EXPECT_EQ(table_.size(), 4u);
}

TEST_F(TicketTableTest, EachGoesAtItsOwnDeadline) {
  for (const Duration deadline : {Duration(30ms), Duration(10ms), Duration(20ms)}) {
    ASSERT_TRUE(issue(deadline).ok());
  }
  EXPECT_EQ(table_.sweep(kNow), kNow + Duration(10ms));
  EXPECT_EQ(held(), 3u);
  EXPECT_EQ(table_.sweep(kNow + Duration(10ms)), kNow + Duration(20ms));
  EXPECT_EQ(held(), 2u);
  EXPECT_EQ(table_.sweep(kNow + Duration(30ms)), TimePoint::never());
  EXPECT_EQ(held(), 0u);
}

// Found: every ticket that was issued posted a sweep, and each sweep looked at all of them.
TEST_F(TicketTableTest, OnlyTheEarliestAsksForASweep) {
  EXPECT_TRUE(table_.wants_sweep(kNow + Duration(20ms)));
  EXPECT_FALSE(table_.wants_sweep(kNow + Duration(20ms)));
  EXPECT_FALSE(table_.wants_sweep(kNow + Duration(30ms)));
  EXPECT_TRUE(table_.wants_sweep(kNow + Duration(10ms)));
  ASSERT_TRUE(issue(40ms).ok());
  EXPECT_EQ(table_.sweep(kNow), kNow + Duration(40ms));
  EXPECT_FALSE(table_.wants_sweep(kNow + Duration(40ms)));
  EXPECT_TRUE(table_.wants_sweep(kNow + Duration(39ms)));
}

}  // namespace
}  // namespace pawl
