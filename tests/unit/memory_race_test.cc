// SPDX-License-Identifier: Apache-2.0
// Two threads at one lease, region or pool: whatever the order, exactly one wins, and who lost
// finds everything done.
#include <barrier>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>

#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)
using memory::Lease;
using memory::LeaseEnd;
using memory::LeaseHandle;

/// Runs `mine` and `theirs` at the same time, `rounds` times, each pair between `before` and
/// `after` on the calling thread. The other thread ends after the last `after`: at its end the free
/// buffers that it caches go back to the pool one by one, and count as in use on their way.
template <class Before, class Mine, class Theirs, class After>
void race(int rounds, Before before, Mine mine, Theirs theirs, After after) {
  std::barrier<> gate(2);
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      gate.arrive_and_wait();
      theirs();
      gate.arrive_and_wait();
    }
    gate.arrive_and_wait();
  });
  for (int i = 0; i < rounds; ++i) {
    before();
    gate.arrive_and_wait();
    mine();
    gate.arrive_and_wait();
    after();
  }
  gate.arrive_and_wait();
  other.join();
}

struct Counts final : memory::LeaseListener {
  void lease_ended(Lease&, LeaseEnd reason) override {
    ++ends;
    last = reason;
  }
  void segment_withdrawn(Lease&, std::size_t) override { ++withdrawals; }
  std::atomic<int> ends{0}, withdrawals{0};
  std::atomic<LeaseEnd> last{};
};

TEST(MemoryRace, RetireAgainstReleaseExactlyOneWins) {
  Pool pool(small_pool());
  Block block;
  LeaseHandle lease;
  Counts counts;
  std::uint64_t generation = 0;
  bool released = false, valid_after_retire = true;
  race(
      2000,
      [&] {
        block = block_of(pool, 4096);
        lease = std::move(*lend(pool, std::span(&block, 1), TimePoint{0}, &counts));
        generation = lease->generation();
        counts.ends = 0;
      },
      [&] {
        std::move(block).retire();
        valid_after_retire = lease->valid(generation);
      },
      [&] { released = lease->end(LeaseEnd::released); },
      [&] {
        ASSERT_FALSE(valid_after_retire);
        ASSERT_EQ(counts.ends, 1);
        ASSERT_EQ(lease->end_reason(), released ? LeaseEnd::released : LeaseEnd::withdrawn);
        ASSERT_EQ(counts.last.load(), lease->end_reason());
        lease.reset();
        ASSERT_EQ(pool.stats().bytes_in_use, 0u);
      });
}

TEST(MemoryRace, TwoReleasesExactlyOneWins) {
  Pool pool(small_pool());
  LeaseHandle lease;
  std::atomic<int> wins{0};
  const auto end = [&] { wins += lease->end(LeaseEnd::released) ? 1 : 0; };
  race(
      2000,
      [&] {
        wins = 0;
        lease = std::move(*lend(pool, block_of(pool, 4096)));
      },
      end, end,
      [&] {
        ASSERT_EQ(wins, 1);
        lease.reset();
        ASSERT_EQ(pool.stats().bytes_in_use, 0u);
      });
}

TEST(MemoryRace, WithdrawalsAgainstTheEndOfALeaseOfManyGiveBackOnce) {
  Pool pool(small_pool());
  std::vector<Block> blocks;
  LeaseHandle lease;
  Counts counts;
  race(
      1000,
      [&] {
        blocks.clear();
        for (int i = 0; i < 6; ++i) blocks.push_back(block_of(pool, 4096));
        lease = std::move(*lend(pool, blocks, TimePoint{0}, &counts));
        counts.ends = counts.withdrawals = 0;
      },
      [&] {
        for (Block& block : blocks) std::move(block).retire();
      },
      [&] { lease->end(LeaseEnd::timeout); },
      [&] {
        ASSERT_EQ(counts.ends, 1);
        ASSERT_LE(counts.withdrawals, 6);
        ASSERT_FALSE(lease->live());
        lease.reset();
        ASSERT_EQ(pool.stats().bytes_in_use, 0u);
      });
}

TEST(MemoryRace, NobodyIsToldAfterTheHandleIsGone) {
  Pool pool(small_pool());
  Block block;
  LeaseHandle lease;
  std::unique_ptr<Counts> counts;
  race(
      2000,
      [&] {
        block = block_of(pool, 4096);
        counts = std::make_unique<Counts>();
        lease = std::move(*lend(pool, std::span(&block, 1), TimePoint{0}, counts.get()));
      },
      [&] {
        lease.reset();
        counts.reset();  // address sanitizer sees a call after this
      },
      [&] { std::move(block).retire(); }, [&] { ASSERT_EQ(pool.stats().bytes_in_use, 0u); });
}

// What the guarantee is about, without a network: bytes that were fetched before a check that says
// valid are of the use that was lent, never of the next one.
TEST(MemoryRace, NoBytesOfAnotherUsePassTheCheck) {
  constexpr std::size_t kWords = 64;
  constexpr int kRounds = 4000;
  Pool pool(small_pool(64 * kKiB));
  Buffer buffer = must(pool.try_acquire(kWords * 8));
  auto* const words = reinterpret_cast<std::uint64_t*>(buffer.bytes().data());
  const auto write = [&](std::uint64_t value) {
    for (std::size_t i = 0; i < kWords; ++i) {
      std::atomic_ref(words[i]).store(value, std::memory_order_relaxed);
    }
  };
  std::atomic<Lease*> current{nullptr};
  std::atomic<std::uint64_t> name{0}, use{0};
  std::atomic<bool> over{false};
  std::atomic<int> accepted{0};
  std::thread reader([&] {
    while (!over.load()) {
      const std::uint64_t generation = name.load();
      const std::uint64_t expected = use.load();
      Lease* const lease = current.load();
      if (lease == nullptr || name.load() != generation) continue;
      bool mixed = false;
      for (std::size_t i = 0; i < kWords; ++i) {
        mixed = std::atomic_ref(words[i]).load(std::memory_order_acquire) != expected || mixed;
      }
      if (!lease->valid(generation)) continue;
      ++accepted;
      if (mixed) {
        over = true;
        ADD_FAILURE() << "bytes of another use passed the check";
      }
    }
  });
  for (int i = 1; i <= kRounds || (accepted == 0 && i < 100 * kRounds); ++i) {
    write(static_cast<std::uint64_t>(i));
    Block block = std::move(buffer).freeze();
    LeaseHandle lease = std::move(*lend(pool, block));
    current = nullptr;
    name = 0;
    use = static_cast<std::uint64_t>(i);
    current = &*lease;
    name = lease->generation();
    if (i % 8 == 0) std::this_thread::yield();
    if (i % 2 == 0) {
      lease->end(LeaseEnd::timeout);
    } else {
      lease.reset();
    }
    buffer = must(std::move(block).unique());
  }
  over = true;
  reader.join();
  EXPECT_GT(accepted, 0);
}

TEST(MemoryRace, NoLeaseIsLiveWhileTheWriterOfARegionWrites) {
  Pool pool(small_pool());
  std::vector<std::byte> memory(16 * 4096);
  Region region = std::move(*Region::create(pool, memory, nullptr));
  std::mutex mutex;
  Block published = *region.block(0, 4);
  std::atomic<bool> writing{false}, over{false};
  std::atomic<int> lent{0}, stale{0};
  std::thread lender([&] {
    Block block;
    for (int i = 0; !over; ++i) {
      if (i % 4 != 3) {  // else it lends what may be of an earlier use
        const std::lock_guard lock(mutex);
        block = published;
      }
      Result<LeaseHandle> lease = lend(pool, block.slice(100, 8000));
      if (!lease.ok()) {
        ASSERT_EQ(lease.status().code(), Code::stale);
        ++stale;
        continue;
      }
      ++lent;
      const bool seen = writing;
      ASSERT_FALSE(seen && (*lease)->live());
    }
  });
  for (int i = 0; i < 20'000 || (i < 2'000'000 && (lent == 0 || stale == 0)); ++i) {
    Result<std::span<std::byte>> span = region.reuse(1, 2);
    ASSERT_TRUE(span.ok()) << span.status().to_string();
    writing = true;
    (*span)[0] = std::byte{1};
    writing = false;
    {
      const std::lock_guard lock(mutex);
      published = *region.block(0, 4);
    }
    if (i % 64 == 0) std::this_thread::yield();
  }
  over = true;
  lender.join();
  EXPECT_GT(lent, 0);
  EXPECT_GT(stale, 0);
  published = Block();
  region = Region();
}

// The other thread takes a Block that is not the first of the range, and lends it.
TEST(MemoryRace, ReuseAgainstBlockAndLend) {
  Pool pool(small_pool());
  std::vector<std::byte> memory(16 * 4096);
  Region region = std::move(*Region::create(pool, memory, nullptr));
  Block block;
  LeaseHandle lease;
  bool ok = false;
  race(
      5000, [&] { lease = std::move(*lend(pool, *region.block(2))); },
      [&] { ok = region.reuse(1, 3).ok(); },
      [&] {
        block = *region.block(2);
        Result<LeaseHandle> lent = lend(pool, block);
        if (lent.ok()) lease = std::move(*lent);
      },
      [&] {
        ASSERT_TRUE(ok);
        // Before it or after it, nothing in between.
        ASSERT_EQ(lease->live(), lend(pool, block).ok());
        lease.reset();
      });
  block = Block();
  region = Region();
}

// Time stands still, so nothing but a release can serve a waiter: one that is passed by hangs.
// case 7: the pool's helper thread deletes the region, and with it the pool, while the thread that
// gave it that to do is still on its way out. The thread sanitizer looks on. Found: it woke the
// helper by what was gone.
TEST(MemoryRace, TheLastRegionMayTakeThePoolWithIt) {
  std::vector<std::byte> memory(64 * kKiB);
  PoolOptions options = small_pool();
  options.grow_inline = false;
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> gone{false};
    Region region;
    {
      Pool pool(options);
      const std::shared_ptr<void> keep_alive(
          &gone, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); });
      Result<Region> made = Region::create(pool, memory, keep_alive);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      region = *std::move(made);
    }
    region = Region();
    while (!gone) std::this_thread::yield();
  }
}

TEST(MemoryRace, NoWakeUpIsLost) {
  ManualClock clock;
  PoolOptions options = small_pool(256 * kKiB);
  options.slab_bytes = 256 * kKiB;
  options.landing_reserve_bytes = 64 * kKiB;
  Pool pool(options, &clock);
  std::atomic<int> served{0};
  const auto worker = [&](unsigned seed) {
    std::mt19937 random(seed);
    struct Slot {
      std::binary_semaphore there{0};
      Result<Buffer> buffer = Status(Code::internal, "not told");
    } slot;
    for (int i = 0; i < 1500; ++i) {
      const std::size_t bytes = std::size_t{4096} << random() % 6;
      const Started started = pawl::start(
          pool.acquire(bytes), Callback<Result<Buffer>>{[](void* to, Result<Buffer> got) {
                                                          auto* s = static_cast<Slot*>(to);
                                                          s->buffer = std::move(got);
                                                          s->there.release();
                                                        },
                                                        &slot});
      slot.there.acquire();
      served += slot.buffer.ok();
      const Result<Buffer> more = pool.try_acquire(std::size_t{4096} << random() % 4);
      const Result<detail::FrameVector<Buffer>> landing =
          pool.core().try_acquire_landing(std::array{std::size_t{4096} << random() % 5});
      slot.buffer = Status(Code::internal, "not told");
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(worker, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 6000);
  EXPECT_EQ(pool.stats().waiting, 0u);
  EXPECT_EQ(pool.stats().bytes_in_use, 0u);
}

}  // namespace
}  // namespace pawl
