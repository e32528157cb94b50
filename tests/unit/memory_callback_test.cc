// SPDX-License-Identifier: Apache-2.0
// Callbacks of those who wait without a poller run inside the release that lets them go on: what
// they may do there.
#include <functional>
#include <memory>
#include <thread>

#include "memory_fixture.h"
#include "support/host_kind.h"

namespace pawl {
namespace {

using namespace memory_test;  // NOLINT(google-build-using-namespace)

/// Host memory; `refuse`, if set, is asked before each allocation.
class MoodyMemory final : public testing::HostKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "moody"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    if (refuse && refuse()) return Status(Code::resource_exhausted, "not now");
    return HostKind::allocate(bytes);
  }

  std::function<bool()> refuse;
};

/// A callback that is a function object.
template <class T>
struct Told {
  explicit Told(std::function<void(T)> on_value) : fn(std::move(on_value)) {}
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  Callback<T> callback() {
    return {[](void* self, T value) { static_cast<Told*>(self)->fn(std::move(value)); }, this};
  }
  std::function<void(T)> fn;
};

// Found: both used one list of the thread's, and the outer one gave out the inner one's buffer.
TEST(MemoryCallback, AnAcquireInsideAnAcquireHasABufferOfItsOwn) {
  MoodyMemory kind;
  PoolOptions options = small_pool(512 * kKiB);
  options.slab_bytes = 256 * kKiB;
  options.kind = &kind;
  ManualClock clock;
  Pool pool(options, &clock);
  Buffer all = must(pool.try_acquire(256 * kKiB));
  kind.refuse = [] { return true; };
  Buffer waited;
  Buffer inner;
  Told<Result<Buffer>> told([&](Result<Buffer> got) {
    waited = must(std::move(got));
    inner = must(pool.try_acquire(4 * kKiB));
  });
  const Started waiting = start(pool.acquire(128 * kKiB), told.callback());
  ASSERT_FALSE(waited);
  kind.refuse = [&] {  // somebody else gives back while this thread asks for growth, in vain
    all = Buffer();
    return true;
  };
  const Buffer outer = must(pool.try_acquire(4 * kKiB));
  ASSERT_TRUE(waited && inner && outer);
  EXPECT_NE(outer.bytes().data(), inner.bytes().data());
}

// Found: what the first one drops had been taken off the region's list, and was kept for ever.
TEST(MemoryCallback, ACloseMayDropAnotherOfTheSameRegion) {
  Pool pool(small_pool());
  std::vector<std::byte> memory(64 * kKiB);
  auto keep_alive = std::make_shared<int>();
  const std::weak_ptr<int> alive = keep_alive;
  Region region =
      std::move(*Region::create(pool, memory, std::move(keep_alive), {.block_bytes = 4 * kKiB}));
  memory::Landing landing = std::move(*memory::Landing::into_region(region, 0, 4 * kKiB));
  Started second;
  int closed = 0;
  Told<Status> told([&](Status status) {
    EXPECT_TRUE(status.ok());
    ++closed;
    second.drop();
  });
  Started first = start(region.close(), told.callback());
  second = start(region.close(), told.callback());
  region = Region();
  (void)std::move(landing).discard();
  EXPECT_EQ(closed, 1);
  first.drop();
  EXPECT_TRUE(alive.expired());
}

// Found: it was told on its poller, which was gone.
TEST(MemoryCallback, AWaiterThatIsDroppedBeforeItIsToldMayTakeItsPollerAlong) {
  ManualClock clock;
  Pool pool(small_pool(64 * kKiB), &clock);
  Buffer all = must(pool.try_acquire(64 * kKiB));
  auto poller = std::make_unique<Poller>(test::Rig::options(clock));
  Started on_poller;
  Buffer got;
  Told<Result<Buffer>> first([&](Result<Buffer> buffer) {
    got = must(std::move(buffer));
    {
      const Poller::Scope scope(*poller);
      on_poller.drop();
    }
    poller.reset();
  });
  Told<Result<Buffer>> second([](const Result<Buffer>&) { ADD_FAILURE() << "it was dropped"; });
  const Started off_poller = start(pool.acquire(4 * kKiB), first.callback());
  {
    const Poller::Scope scope(*poller);
    on_poller = start(pool.acquire(4 * kKiB), second.callback());
  }
  EXPECT_EQ(pool.stats().waiting, 2u);
  all = Buffer();
  ASSERT_TRUE(got);
  EXPECT_EQ(poller, nullptr);
  EXPECT_EQ(pool.stats().bytes_in_use, 4 * kKiB);
}

// Found: it ran inside the release, in the middle of whatever the poller was doing.
TEST(MemoryCallback, OnAPollersThreadAWaiterIsToldFromItsReadyQueue) {
  test::Rig rig;
  Pool pool(small_pool(64 * kKiB), &rig.clock);
  Buffer all = must(pool.try_acquire(64 * kKiB));
  Buffer got;
  Told<Result<Buffer>> told([&](Result<Buffer> buffer) { got = must(std::move(buffer)); });
  const Started waiting = start(pool.acquire(4 * kKiB), told.callback());
  {
    const Poller::Scope scope(rig.poller);
    all = Buffer();
    EXPECT_FALSE(got);
  }
  rig.turn();
  EXPECT_TRUE(got);
}

TEST(MemoryCallback, OnAPollersThreadACloseIsToldFromItsReadyQueue) {
  test::Rig rig;
  Pool pool(small_pool(), &rig.clock);
  std::vector<std::byte> memory(64 * kKiB);
  Region region = std::move(*Region::create(pool, memory, nullptr));
  memory::Landing landing = std::move(*memory::Landing::into_region(region, 0, 4 * kKiB));
  int closed = 0;
  Told<Status> told([&](const Status&) { ++closed; });
  const Started off_poller = start(region.close(), told.callback());
  {
    const Poller::Scope scope(rig.poller);
    Started on_poller = start(region.close(), told.callback());
    Started dropped = start(region.close(), told.callback());
    (void)std::move(landing).discard();
    EXPECT_EQ(closed, 0);
    dropped.drop();
    rig.turn();
    EXPECT_EQ(closed, 2);
  }
}

TEST(MemoryCallbackThreads, ACloseIsDroppedWhileTheRegionIsDeregistered) {
  Pool pool(small_pool());
  std::vector<std::byte> memory(64 * kKiB);
  for (int i = 0; i < 400; ++i) {
    auto keep_alive = std::make_shared<int>();
    const std::weak_ptr<int> alive = keep_alive;
    Region region =
        std::move(*Region::create(pool, memory, std::move(keep_alive), {.block_bytes = 4 * kKiB}));
    memory::Landing landing = std::move(*memory::Landing::into_region(region, 0, 4 * kKiB));
    int closed = 0;
    Told<Status> told([&](const Status&) { ++closed; });
    Started kept = start(region.close(), told.callback());
    Told<Status> ignored([](const Status&) {});
    Started dropped = start(region.close(), ignored.callback());
    region = Region();
    std::thread other([&] { (void)std::move(landing).discard(); });
    for (int k = 0; k < i % 50; ++k) std::this_thread::yield();
    dropped.drop();
    other.join();
    ASSERT_EQ(closed, 1);
    kept.drop();
    ASSERT_TRUE(alive.expired());
  }
}

TEST(MemoryCallbackThreads, AWaiterAndItsPollerGoWhileItIsServed) {
  ManualClock clock;
  Pool pool(small_pool(64 * kKiB), &clock);
  int served = 0;
  for (int i = 0; i < 1'000; ++i) {
    Buffer all = must(pool.try_acquire(64 * kKiB));
    std::thread other;
    std::atomic<bool> go{false};
    {
      Poller poller(test::Rig::options(clock));
      const Poller::Scope scope(poller);
      Told<Result<Buffer>> told([&](const Result<Buffer>& got) { served += got.ok(); });
      Started waiting = start(pool.acquire(4 * kKiB), told.callback());
      other = std::thread([&] {
        go.wait(false);
        all = Buffer();
      });
      go = true;
      go.notify_all();
      for (int k = 0; k < i % 50; ++k) poller.run_once();
      waiting.drop();
    }
    other.join();
    ASSERT_EQ(pool.stats().bytes_in_use, 0u);
    ASSERT_EQ(pool.stats().waiting, 0u);
  }
  RecordProperty("served", served);
}

}  // namespace
}  // namespace pawl
