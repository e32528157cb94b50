// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>
#include <thread>

#include "memory_fixture.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)

TEST(MemoryPool, ABufferHasTheSizeAskedForAndTheCapacityOfItsClass) {
  Pool pool(small_pool());
  Buffer buffer = must(pool.try_acquire(5000));
  EXPECT_EQ(buffer.size(), 5000u);
  EXPECT_EQ(buffer.capacity(), 8192u);
  EXPECT_TRUE(buffer.host_accessible());
  EXPECT_TRUE(buffer.resize(8192).ok());
  EXPECT_EQ(buffer.resize(8193).code(), Code::invalid_argument);
  EXPECT_EQ(buffer.size(), 8192u);
}

TEST(MemoryPool, EverySizeClassFitsItsSizes) {
  EXPECT_EQ(memory::order_of(1), 0u);
  EXPECT_EQ(memory::order_of(4096), 0u);
  EXPECT_EQ(memory::order_of(4097), 1u);
  EXPECT_EQ(memory::order_of(64 * kMiB), 14u);
  for (std::size_t bytes = 1; bytes <= Pool::kBufferBytesMax; bytes += bytes / 3 + 1) {
    EXPECT_GE(memory::order_bytes(memory::order_of(bytes)), bytes);
  }
}

TEST(MemoryPool, AMovedFromBufferIsEmpty) {
  Pool pool(small_pool());
  Buffer buffer = must(pool.try_acquire(100));
  Buffer other = std::move(buffer);
  EXPECT_EQ(buffer.size(), 0u);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(buffer.bytes().empty());
  EXPECT_FALSE(buffer);
  Block block = std::move(other).freeze();
  EXPECT_TRUE(other.bytes().empty());  // NOLINT(bugprone-use-after-move)
  Block taken = std::move(block);
  EXPECT_TRUE(block.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(taken.size(), 100u);
}

TEST(MemoryPool, AFreedBufferIsTheNextOneHandedOut) {
  PoolOptions options = small_pool(8 * kMiB);
  options.slab_bytes = 8 * kMiB;
  Pool pool(options);
  for (std::size_t bytes : {4 * kKiB, 64 * kKiB, kMiB, 2 * kMiB}) {
    Buffer keep = must(pool.try_acquire(bytes));
    Buffer buffer = must(pool.try_acquire(bytes));
    const void* const at = buffer.bytes().data();
    buffer = Buffer();
    buffer = must(pool.try_acquire(bytes));
    EXPECT_EQ(buffer.bytes().data(), at) << bytes;
    keep = Buffer();
  }
}

TEST(MemoryPool, NobodySharesBytes) {
  Pool pool(small_pool(8 * kMiB));
  std::mt19937 random(7);
  std::vector<Buffer> held;
  int value = 0;
  std::vector<int> values;
  for (int round = 0; round < 1000; ++round) {
    if (held.size() < 40 && random() % 3 != 0) {
      Result<Buffer> buffer = pool.try_acquire(1 + random() % (128 * kKiB));
      if (!buffer.ok()) continue;
      fill(*buffer, ++value);
      held.push_back(std::move(*buffer));
      values.push_back(value);
    } else if (!held.empty()) {
      const std::size_t i = random() % held.size();
      for (std::byte b : held[i].bytes()) {
        ASSERT_EQ(b, static_cast<std::byte>(values[i]));
      }
      held[i] = std::move(held.back());
      values[i] = values.back();
      held.pop_back();
      values.pop_back();
    }
  }
  held.clear();
  EXPECT_EQ(pool.stats().bytes_in_use, 0u);
}

// Mutation: without merge_all in Arena::allocate this fails.
TEST(MemoryPool, NoClassKeepsMemoryThatAnotherNeeds) {
  PoolOptions options = small_pool(kMiB);
  options.slab_bytes = kMiB;
  Pool pool(options);
  for (int round = 0; round < 3; ++round) {
    std::vector<Buffer> small;
    for (int i = 0; i < 256; ++i) small.push_back(must(pool.try_acquire(4 * kKiB)));
    EXPECT_EQ(pool.try_acquire(1).status().code(), Code::resource_exhausted);
    small.clear();
    Buffer large = must(pool.try_acquire(kMiB));
    EXPECT_EQ(large.capacity(), kMiB);
  }
  EXPECT_EQ(pool.stats().bytes_total, kMiB);
}

TEST(MemoryPool, ALargerBufferGetsASlabOfItsOwn) {
  Pool pool(small_pool(4 * kMiB));
  Buffer large = must(pool.try_acquire(2 * kMiB));
  EXPECT_EQ(pool.stats().slabs, 1u);
  EXPECT_EQ(pool.stats().bytes_total, 2 * kMiB);
}

TEST(MemoryPool, WhatIsLeftOfBytesMaxIsUsed) {
  PoolOptions options = small_pool(kMiB + 512 * kKiB);
  options.slab_bytes = kMiB;
  Pool pool(options);
  std::vector<Buffer> all;
  for (int i = 0; i < 6; ++i) all.push_back(must(pool.try_acquire(256 * kKiB)));
  EXPECT_EQ(pool.stats().bytes_total, options.bytes_max);
  EXPECT_FALSE(pool.try_acquire(1).ok());
}

TEST(MemoryPool, SizesThatCannotBeAreNamed) {
  Pool pool(small_pool());
  EXPECT_EQ(pool.try_acquire(0).status().code(), Code::invalid_argument);
  EXPECT_EQ(pool.try_acquire(Pool::kBufferBytesMax + 1).status().code(), Code::too_large);
  const Status status = pool.try_acquire(2 * kMiB).status();
  EXPECT_EQ(status.code(), Code::too_large);
  EXPECT_NE(status.what().find("bytes_max"), std::string_view::npos) << status.what();
}

TEST(MemoryPool, OptionsThatCannotWorkAreNamedByEveryAcquire) {
  auto status_of = [](auto change) {
    PoolOptions options = small_pool();
    change(options);
    return Pool(options).try_acquire(1).status();
  };
  EXPECT_EQ(status_of([](PoolOptions& o) { o.slab_bytes = 2 * kMiB; }).code(),
            Code::invalid_argument);
  EXPECT_EQ(status_of([](PoolOptions& o) { o.slab_bytes = 100000; }).code(),
            Code::invalid_argument);
  EXPECT_EQ(status_of([](PoolOptions& o) { o.landing_reserve_bytes = kMiB; }).code(),
            Code::invalid_argument);
  EXPECT_EQ(status_of([](PoolOptions& o) { o.bytes_at_start = 2 * kMiB; }).code(),
            Code::invalid_argument);
  EXPECT_EQ(status_of([](PoolOptions& o) { o.leases_max = 0; }).code(), Code::invalid_argument);
}

TEST(MemoryPool, BuffersOutliveTheirPool) {
  Buffer buffer;
  Block block;
  memory::LeaseHandle lease;
  {
    Pool pool(small_pool());
    buffer = must(pool.try_acquire(4096));
    block = block_of(pool, 4096, 5);
    lease = std::move(*lend(pool, block));
  }
  fill(buffer, 7);
  EXPECT_EQ(block.bytes()[4095], std::byte{5});
  EXPECT_TRUE(lease->live());
  std::move(block).retire();
  EXPECT_FALSE(lease->live());
  buffer = Buffer();
}

TEST(MemoryPool, AThreadThatEndsGivesItsCacheBack) {
  PoolOptions options = small_pool(64 * kKiB);
  Pool pool(options);
  std::thread([&] {
    std::vector<Buffer> all;
    for (int i = 0; i < 16; ++i) all.push_back(must(pool.try_acquire(4096)));
  }).join();
  EXPECT_EQ(pool.stats().bytes_cached, 0u);
  Buffer whole = must(pool.try_acquire(64 * kKiB));
  EXPECT_EQ(pool.stats().bytes_in_use, 64 * kKiB);
}

TEST(MemoryPool, WhatLiesInTheCacheOfAnotherThreadIsFound) {
  Pool pool(small_pool(64 * kKiB));
  std::atomic<int> stage{0};
  std::thread other([&] {
    { Buffer buffer = must(pool.try_acquire(64 * kKiB)); }
    stage = 1;
    stage.notify_all();
    stage.wait(1);
  });
  stage.wait(0);
  EXPECT_EQ(pool.stats().bytes_cached, 64 * kKiB);
  EXPECT_TRUE(pool.try_acquire(4096).ok());
  stage = 2;
  stage.notify_all();
  other.join();
}

TEST(MemoryPool, CachesAreBounded) {
  Pool pool(small_pool(16 * kMiB));
  {
    std::vector<Buffer> all;
    for (int i = 0; i < 200; ++i) all.push_back(must(pool.try_acquire(4096)));
    for (int i = 0; i < 10; ++i) all.push_back(must(pool.try_acquire(kMiB)));
  }
  const PoolStats stats = pool.stats();
  EXPECT_GT(stats.bytes_cached, 0u);
  EXPECT_LE(stats.bytes_cached, memory::ThreadCache::kBytesMax);
  EXPECT_EQ(stats.bytes_in_use, 0u);
}

TEST(MemoryPool, ABufferReleasedElsewhereIsWholeAgain) {
  Pool pool(small_pool(256 * kKiB));
  for (int round = 0; round < 100; ++round) {
    Buffer buffer = must(pool.try_acquire(256 * kKiB));
    ASSERT_TRUE(buffer);
    std::thread([moved = std::move(buffer)]() mutable { moved = Buffer(); }).join();
  }
}

TEST(MemoryPool, CopyOf) {
  Pool pool(small_pool());
  const std::string text = "static content";
  const Result<Block> block = pool.copy_of(std::as_bytes(std::span(text)));
  ASSERT_TRUE(block.ok());
  ASSERT_EQ(block->size(), text.size());
  EXPECT_EQ(std::memcmp(block->bytes().data(), text.data(), text.size()), 0);
}

TEST(MemoryPool, BytesAtStart) {
  PoolOptions options = small_pool();
  options.bytes_at_start = 128 * kKiB;
  Pool pool(options);
  EXPECT_EQ(pool.stats().bytes_total, 128 * kKiB);
}

TEST(MemoryBlock, UniqueOnlyForTheSoleHolderOfTheWhole) {
  Pool pool(small_pool());
  Block block = block_of(pool, 8192);
  Block copy = block;
  EXPECT_EQ(std::move(block).unique().status().code(), Code::failed_precondition);
  EXPECT_EQ(block.size(), 8192u);  // NOLINT(bugprone-use-after-move): unchanged
  Block slice = copy.slice(4096, 4096);
  copy = Block();
  block = Block();
  EXPECT_EQ(std::move(slice).unique().status().code(), Code::failed_precondition);
  slice = Block();

  block = block_of(pool, 8192);
  Result<memory::LeaseHandle> lease = lend(pool, block);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(std::move(block).unique().status().code(), Code::failed_precondition);
  EXPECT_TRUE((*lease)->end(memory::LeaseEnd::released));
  EXPECT_TRUE(std::move(block).unique().ok());
}

TEST(MemoryBlockDeathTest, ASliceOutOfRangeEndsTheProcess) {
  Pool pool(small_pool());
  const Block block = block_of(pool, 100);
  EXPECT_EQ(block.slice(100, 0).size(), 0u);
  EXPECT_DEATH((void)block.slice(50, 51), "slice is outside of its Block");
  EXPECT_DEATH((void)block.slice(SIZE_MAX, 2), "slice is outside of its Block");
}

TEST(MemoryBlock, CopiesAreChecked) {
  Pool pool(small_pool());
  Buffer buffer = must(pool.try_acquire(100));
  std::array<std::byte, 60> bytes{};
  bytes.fill(std::byte{9});
  EXPECT_TRUE(buffer.copy_in(40, bytes).ok());
  EXPECT_EQ(buffer.copy_in(41, bytes).code(), Code::invalid_argument);
  const Block block = std::move(buffer).freeze();
  std::array<std::byte, 60> out{};
  EXPECT_TRUE(block.copy_out(40, out).ok());
  EXPECT_EQ(out, bytes);
  EXPECT_EQ(block.copy_out(41, out).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace pawl
