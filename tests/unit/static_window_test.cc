// SPDX-License-Identifier: Apache-2.0
#include "flow/static_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace pawl::flow {
namespace {

constexpr TimePoint kNow{1};
constexpr std::uint32_t kKiB = 1024;

StaticWindowOptions small_options() {
  StaticWindowOptions options;
  options.window_bytes = 256 * kKiB;
  options.peer_window_bytes = 128 * kKiB;
  options.chunk_bytes = 64 * kKiB;
  options.reads_per_peer_max = 4;
  options.transfers_max = 16;
  return options;
}

Transfer transfer(std::uint64_t id, std::uint64_t peer, std::uint64_t bytes,
                  Priority priority = Priority::interactive) {
  Transfer made;
  made.id = {id};
  made.peer = {peer};
  made.bytes = bytes;
  made.priority = priority;
  return made;
}

std::vector<Grant> take(StaticWindow& window, std::size_t grants_max = 64) {
  std::vector<Grant> grants(grants_max);
  grants.resize(window.take(grants, kNow));
  return grants;
}

std::vector<std::uint64_t> ids(const std::vector<Grant>& grants) {
  std::vector<std::uint64_t> list;
  for (const Grant& grant : grants) list.push_back(grant.transfer.value);
  return list;
}

void complete(StaticWindow& window, const Grant& grant) {
  window.on_complete(grant, true, Duration(1000), kNow);
}

using Ids = std::vector<std::uint64_t>;

TEST(StaticWindow, CutsATransferIntoChunksInOrder) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 7, 100 * kKiB), kNow));
  const std::vector<Grant> grants = take(window);
  ASSERT_EQ(2u, grants.size());
  EXPECT_EQ(0u, grants[0].offset);
  EXPECT_EQ(64 * kKiB, grants[0].bytes);
  EXPECT_EQ(64 * kKiB, grants[1].offset);
  EXPECT_EQ(36 * kKiB, grants[1].bytes);
  EXPECT_EQ(PeerId{7}, grants[1].peer);
  EXPECT_EQ(100 * kKiB, window.bytes_in_flight());
  for (const Grant& grant : grants) complete(window, grant);
  EXPECT_EQ(0u, window.bytes_in_flight());
  EXPECT_EQ(0u, window.transfers());
  EXPECT_EQ(0u, window.peers());
}

TEST(StaticWindow, HoldsBothWindows) {
  StaticWindow window(small_options());
  for (std::uint64_t peer = 1; peer <= 3; ++peer) {
    ASSERT_TRUE(window.submit(transfer(peer, peer, 1024 * kKiB), kNow));
  }
  const std::vector<Grant> grants = take(window);
  EXPECT_EQ((Ids{1, 2, 3, 1}), ids(grants)) << "256 KiB for the NIC";
  complete(window, grants[1]);
  EXPECT_EQ(Ids{2}, ids(take(window))) << "its turn is next";

  StaticWindow one(small_options());
  ASSERT_TRUE(one.submit(transfer(1, 1, 1024 * kKiB), kNow));
  EXPECT_EQ((Ids{1, 1}), ids(take(one))) << "128 KiB for a peer";
}

TEST(StaticWindow, HoldsTheReadsOfAPeer) {
  StaticWindow window(small_options());
  for (std::uint64_t id = 1; id <= 6; ++id) {
    ASSERT_TRUE(window.submit(transfer(id, 1, 100), kNow));
  }
  const std::vector<Grant> grants = take(window);
  EXPECT_EQ((Ids{1, 2, 3, 4}), ids(grants)) << "in the order in which they came";
  complete(window, grants[2]);
  EXPECT_EQ(Ids{5}, ids(take(window)));
}

TEST(StaticWindow, APeerAtItsLimitDoesNotHoldUpOthers) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 1, 1024 * kKiB), kNow));
  EXPECT_EQ((Ids{1, 1}), ids(take(window)));
  ASSERT_TRUE(window.submit(transfer(2, 1, 64 * kKiB), kNow));
  ASSERT_TRUE(window.submit(transfer(3, 2, 64 * kKiB), kNow));
  EXPECT_EQ(Ids{3}, ids(take(window)));
}

TEST(StaticWindow, MakesProgressWithAWindowBelowOneChunk) {
  StaticWindowOptions options = small_options();
  options.window_bytes = 10'000;
  StaticWindow window(options);
  ASSERT_TRUE(window.submit(transfer(1, 1, 25'000), kNow));
  std::uint64_t offset = 0;
  for (const std::uint32_t bytes : {10'000u, 10'000u, 5'000u}) {
    const std::vector<Grant> grants = take(window);
    ASSERT_EQ(1u, grants.size());
    EXPECT_EQ(offset, grants[0].offset);
    EXPECT_EQ(bytes, grants[0].bytes);
    EXPECT_LE(window.bytes_in_flight(), options.window_bytes);
    offset += bytes;
    complete(window, grants[0]);
  }
  EXPECT_EQ(0u, window.transfers());
}

TEST(StaticWindow, PeersTakeTurnsHoweverManyTransfersTheyHave) {
  StaticWindow window(small_options());
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(window.submit(transfer(id, 1, 4 * kKiB), kNow));
  }
  ASSERT_TRUE(window.submit(transfer(4, 2, 4 * kKiB), kNow));
  ASSERT_TRUE(window.submit(transfer(5, 3, 4 * kKiB), kNow));
  EXPECT_EQ((Ids{1, 4, 5, 2, 3}), ids(take(window)));
}

TEST(StaticWindow, ExpressGoesFirstEvenFromTheSamePeer) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 1, 1024 * kKiB, Priority::background), kNow));
  ASSERT_TRUE(window.submit(transfer(2, 1, 4 * kKiB, Priority::interactive), kNow));
  ASSERT_TRUE(window.submit(transfer(3, 1, 4 * kKiB, Priority::express), kNow));
  ASSERT_TRUE(window.submit(transfer(4, 2, 4 * kKiB, Priority::express), kNow));
  EXPECT_EQ((Ids{3, 4, 1}), ids(take(window, 3)));
}

TEST(StaticWindow, NobodyOvertakesWhoWaitsForRoom) {
  StaticWindow window(small_options());
  for (std::uint64_t peer = 1; peer <= 4; ++peer) {
    ASSERT_TRUE(window.submit(transfer(peer, peer, peer == 4 ? 60 * kKiB : 64 * kKiB), kNow));
  }
  const std::vector<Grant> first = take(window);
  ASSERT_EQ(4u, first.size());  // 4 KiB are left
  ASSERT_TRUE(window.submit(transfer(5, 5, 64 * kKiB), kNow));
  ASSERT_TRUE(window.submit(transfer(6, 6, 4 * kKiB), kNow));
  EXPECT_TRUE(take(window).empty());
  complete(window, first[3]);
  EXPECT_EQ(Ids{5}, ids(take(window)));
}

TEST(StaticWindow, CancelDropsTheRestAndCountsWhatIsPosted) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 1, 1024 * kKiB), kNow));
  ASSERT_TRUE(window.submit(transfer(2, 1, 64 * kKiB), kNow));
  const std::vector<Grant> grants = take(window);
  EXPECT_EQ((Ids{1, 1}), ids(grants));
  window.cancel({1}, kNow);
  EXPECT_EQ(128 * kKiB, window.bytes_in_flight());
  EXPECT_TRUE(take(window).empty()) << "the peer's window is still full";
  complete(window, grants[0]);
  EXPECT_EQ(Ids{2}, ids(take(window)));
  complete(window, grants[1]);
  EXPECT_EQ(1u, window.transfers());

  window.cancel({2}, kNow);
  EXPECT_EQ(1u, window.transfers()) << "its READ is still out";
}

TEST(StaticWindow, CancelBeforeTheFirstGrantForgetsAtOnce) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 1, kKiB), kNow));
  window.cancel({1}, kNow);
  EXPECT_EQ(0u, window.transfers());
  EXPECT_EQ(0u, window.peers());
  EXPECT_TRUE(take(window).empty());
}

TEST(StaticWindow, StaleIdsChangeNothing) {
  StaticWindow window(small_options());
  ASSERT_TRUE(window.submit(transfer(1, 1, kKiB), kNow));
  const Grant grant = take(window).at(0);
  complete(window, grant);
  complete(window, grant);
  window.cancel({1}, kNow);
  window.cancel({0}, kNow);
  window.cancel({99}, kNow);
  EXPECT_EQ(0u, window.bytes_in_flight());
  ASSERT_TRUE(window.submit(transfer(2, 1, kKiB), kNow));
  complete(window, grant);
  complete(window, Grant{{2}, {1}, 0, kKiB});  // was not granted yet
  EXPECT_EQ(Ids{2}, ids(take(window)));
  EXPECT_EQ(kKiB, window.bytes_in_flight());
}

TEST(StaticWindow, RefusesMoreThanTransfersMax) {
  StaticWindow window(small_options());
  for (std::uint64_t id = 1; id <= 16; ++id) {
    ASSERT_TRUE(window.submit(transfer(id, id, kKiB), kNow));
  }
  EXPECT_FALSE(window.submit(transfer(17, 17, kKiB), kNow));
  complete(window, take(window).at(0));
  EXPECT_TRUE(window.submit(transfer(17, 17, kKiB), kNow));
}

/// A storm of everything, against a model of what is allowed.
class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed), window_(options()) {}

  void run() {
    for (int step = 0; step < 5'000; ++step) {
      switch (below(8)) {
        case 0:
        case 1:
          submit();
          break;
        case 2:
          window_.cancel({1 + below(next_id_ + 2)}, kNow);  // often stale
          break;
        case 3:
        case 4:
          take_some();
          break;
        default:
          complete_one();
      }
      ASSERT_NO_FATAL_FAILURE(check());
    }
    while (window_.transfers() > 0) {
      take_some();
      ASSERT_FALSE(out_.empty()) << "no progress";
      complete_one();
      ASSERT_NO_FATAL_FAILURE(check());
    }
    EXPECT_EQ(0u, window_.bytes_in_flight());
    EXPECT_EQ(0u, window_.peers());
  }

 private:
  StaticWindowOptions options() {
    options_ = small_options();
    options_.window_bytes = 1 + below(300'000);
    options_.peer_window_bytes = 1 + below(300'000);
    options_.chunk_bytes = static_cast<std::uint32_t>(1 + below(100'000));
    options_.reads_per_peer_max = static_cast<std::uint32_t>(1 + below(6));
    return options_;
  }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  void submit() {
    const std::uint64_t id = ++next_id_;
    const bool room = window_.transfers() < options_.transfers_max;
    ASSERT_EQ(room, window_.submit(transfer(id, 1 + below(5), 1 + below(200'000),
                                            static_cast<Priority>(below(3))),
                                   kNow));
  }
  void take_some() {
    for (const Grant& grant : take(window_, 1 + below(6))) {
      EXPECT_EQ(next_offset_[grant.transfer.value], grant.offset);
      next_offset_[grant.transfer.value] += grant.bytes;
      EXPECT_GT(grant.bytes, 0u);
      EXPECT_LE(grant.bytes, options_.chunk_bytes);
      out_.push_back(grant);
    }
  }
  void complete_one() {
    if (out_.empty()) return;
    std::swap(out_[below(out_.size())], out_.back());
    window_.on_complete(out_.back(), below(2) == 0, Duration(0), kNow);
    out_.pop_back();
  }
  void check() {
    std::uint64_t bytes = 0;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> peers;
    for (const Grant& grant : out_) {
      bytes += grant.bytes;
      peers[grant.peer.value].first += grant.bytes;
      ++peers[grant.peer.value].second;
    }
    ASSERT_EQ(bytes, window_.bytes_in_flight());
    ASSERT_LE(bytes, options_.window_bytes);
    for (const auto& [id, in_flight] : peers) {
      ASSERT_LE(in_flight.first, options_.peer_window_bytes) << "peer " << id;
      ASSERT_LE(in_flight.second, options_.reads_per_peer_max) << "peer " << id;
    }
  }

  std::mt19937_64 random_;
  StaticWindowOptions options_;
  StaticWindow window_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, std::uint64_t> next_offset_;
  std::vector<Grant> out_;
};

TEST(StaticWindow, StormKeepsEveryBoundAndEndsAtZero) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Storm storm(seed);
    ASSERT_NO_FATAL_FAILURE(storm.run());
  }
}

TEST(IdTable, KeepsWhatCollidesFindable) {
  // Few places and many ids: every erase moves others.
  IdTable<int> table(30);
  std::vector<int> objects(1000);
  std::map<std::uint64_t, int*> model;
  std::mt19937_64 random(3);
  for (int step = 0; step < 5'000; ++step) {
    const std::uint64_t id = 1 + random() % 1000;
    if (model.contains(id)) {
      table.erase(id);
      model.erase(id);
    } else if (model.size() < 30) {
      table.insert(id, objects[id - 1]);
      model[id] = &objects[id - 1];
    }
    ASSERT_EQ(model.size(), table.size());
    for (std::uint64_t probe = 0; probe <= 1000; probe += 1 + random() % 7) {
      const auto found = model.find(probe);
      ASSERT_EQ(found == model.end() ? nullptr : found->second, table.find(probe));
    }
  }
}

}  // namespace
}  // namespace pawl::flow
