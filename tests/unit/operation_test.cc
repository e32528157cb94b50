// SPDX-License-Identifier: Apache-2.0
#include "pawl/operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/task.h"
#include "unit/runtime_support.h"

namespace pawl {
namespace {

using test::Gate;
using test::Noisy;
using test::Rig;

/// Completed by hand, through a reference that a producer holds.
class Manual final : public OperationState<Result<int>> {
 public:
  explicit Manual(std::atomic<int>* drops = nullptr) : drops_(drops) { ++alive; }
  ~Manual() override { --alive; }
  static inline std::atomic<int> alive{0};

 private:
  void on_begin() override {}
  void on_drop() noexcept override {
    if (drops_ != nullptr) ++*drops_;
  }
  std::atomic<int>* drops_;
};

struct Receiver {
  std::atomic<int> calls{0};
  std::atomic<int> value{0};
  std::thread::id thread;
  Callback<Result<int>> callback() {
    return {[](void* context, Result<int> result) {
              auto* self = static_cast<Receiver*>(context);
              self->thread = std::this_thread::get_id();
              self->value = result.ok() ? *result : -1;
              ++self->calls;
              self->calls.notify_all();
            },
            this};
  }
};

TEST(Operation, TheFirstCompletionWins) {
  Rig rig;
  const Poller::Scope scope(rig.poller);
  Receiver receiver;
  auto* state = new Manual();
  const Ref<Manual> producer(state);
  {
    auto started = start(Operation<Result<int>>(state), receiver.callback());
    EXPECT_TRUE(producer->complete(1));
    EXPECT_FALSE(producer->complete(2));
  }
  EXPECT_FALSE(producer->complete(3));
  EXPECT_EQ(receiver.calls, 1);
  EXPECT_EQ(receiver.value, 1);
}

TEST(Operation, NothingHappensAfterADrop) {
  Rig rig;
  const Poller::Scope scope(rig.poller);
  Receiver receiver;
  std::atomic<int> drops{0};
  auto* state = new Manual(&drops);
  Ref<Manual> producer(state);
  auto started = start(Operation<Result<int>>(state), receiver.callback());
  started.drop();
  started.drop();
  EXPECT_EQ(drops, 1);
  EXPECT_FALSE(producer->complete(1));
  EXPECT_EQ(receiver.calls, 0);
  producer.reset();
  EXPECT_EQ(Manual::alive, 0);
}

TEST(Operation, DroppedUnstartedItIsNotCancelled) {
  std::atomic<int> drops{0};
  { auto operation = make_operation<Manual>(&drops); }
  EXPECT_EQ(drops, 0);
  EXPECT_EQ(Manual::alive, 0);
}

TEST(Operation, ReadyCompletesAtOnce) {
  Receiver receiver;
  auto started = start(Operation<Result<int>>::ready(9), receiver.callback());
  EXPECT_EQ(receiver.value, 9);
}

TEST(Operation, ArrivesOnThePollerWhereItWasStarted) {
  Rig rig;
  Receiver receiver;
  auto* state = new Manual();
  Ref<Manual> producer(state);
  Started started;
  {
    const Poller::Scope scope(rig.poller);
    started = start(Operation<Result<int>>(state), receiver.callback());
  }
  std::thread other([&] {
    EXPECT_TRUE(producer->complete(5));
    EXPECT_FALSE(producer->complete(6));
    producer.reset();
  });
  other.join();
  EXPECT_EQ(receiver.calls, 0);
  rig.turn();
  EXPECT_EQ(receiver.value, 5);
  EXPECT_EQ(receiver.thread, std::this_thread::get_id());
  started.drop();
  EXPECT_EQ(Manual::alive, 0);
}

TEST(Operation, DroppedOnItsWayHome) {
  Rig rig;
  Receiver receiver;
  std::atomic<int> drops{0};
  auto* state = new Manual(&drops);
  Ref<Manual> producer(state);
  {
    const Poller::Scope scope(rig.poller);
    auto started = start(Operation<Result<int>>(state), receiver.callback());
    std::thread other([&] {
      EXPECT_TRUE(producer->complete(5));
      producer.reset();
    });
    other.join();
  }
  rig.turn();
  EXPECT_EQ(receiver.calls, 0);
  EXPECT_EQ(drops, 0);  // it had completed
  EXPECT_EQ(Manual::alive, 0);
}

TEST(OperationThreads, CompleteRacesDropOnAPoller) {
  constexpr int kRounds = 3'000;
  int delivered = 0;
  for (int i = 0; i < kRounds; ++i) {
    Receiver receiver;
    std::atomic<int> drops{0};
    std::atomic<bool> go{false};
    bool accepted = false;
    auto* state = new Manual(&drops);
    Ref<Manual> producer(state);
    std::thread other;
    {
      // The poller goes away right after the drop.
      Rig rig;
      const Poller::Scope scope(rig.poller);
      auto started = start(Operation<Result<int>>(state), receiver.callback());
      other = std::thread([&] {
        go.wait(false);
        accepted = producer->complete(5);
        producer.reset();
      });
      go = true;
      go.notify_all();
      for (int k = 0; k < i % 50; ++k) rig.poller.run_once();
      started.drop();
      delivered += receiver.calls;
    }
    other.join();
    EXPECT_LE(receiver.calls, 1);
    EXPECT_EQ(drops, accepted ? 0 : 1);
  }
  EXPECT_EQ(Manual::alive, 0);
  RecordProperty("delivered", delivered);
}

TEST(OperationThreads, CompleteRacesDropWithoutAPoller) {
  constexpr int kRounds = 3'000;
  for (int i = 0; i < kRounds; ++i) {
    auto receiver = std::make_unique<Receiver>();
    std::atomic<bool> go{false};
    auto* state = new Manual();
    Ref<Manual> producer(state);
    auto started = start(Operation<Result<int>>(state), receiver->callback());
    std::thread other([&] {
      go.wait(false);
      producer->complete(5);
      producer.reset();
    });
    go = true;
    go.notify_all();
    for (int k = 0; k < i % 20; ++k) std::this_thread::yield();
    started.drop();
    receiver.reset();  // after drop() the callback does not run, nor is it running
    other.join();
  }
  EXPECT_EQ(Manual::alive, 0);
}

TEST(Operation, DroppedInsideItsCallbackWithoutAPoller) {
  struct Owner {
    Started started;
    int calls = 0;
  } owner;
  auto* state = new Manual();
  Ref<Manual> producer(state);
  owner.started = start(Operation<Result<int>>(state),
                        Callback<Result<int>>{[](void* context, Result<int>) {
                                                auto* self = static_cast<Owner*>(context);
                                                ++self->calls;
                                                self->started.drop();
                                              },
                                              &owner});
  producer->complete(1);
  EXPECT_EQ(owner.calls, 1);
  producer.reset();
  EXPECT_EQ(Manual::alive, 0);
}

TEST(OperationThreads, AForeignCoroutineWithoutAPollerIsResumedWhereItCompletes) {
  struct Shared {
    std::atomic<int> got{0};
    std::thread::id thread;
  } shared;
  for (int i = 0; i < 500; ++i) {
    shared.got = 0;
    auto* state = new Manual();
    Ref<Manual> producer(state);
    auto body = [](Operation<Result<int>> op, Shared& out) -> test::ForeignJob {
      auto result = co_await std::move(op);
      out.thread = std::this_thread::get_id();
      out.got = *result;
      out.got.notify_all();
    };
    auto job = body(Operation<Result<int>>(state), shared);
    std::atomic<bool> go{false};
    std::thread other([&] {
      go.wait(false);
      while (!producer->complete(7)) std::this_thread::yield();
      producer.reset();
    });
    go = true;
    go.notify_all();
    job.start();
    while (shared.got == 0) shared.got.wait(0);
    other.join();
  }
  EXPECT_EQ(Manual::alive, 0);
}

TEST(OperationThreads, TasksSeeCompletionsOfOtherThreadsOnTheirPoller) {
  SteadyClock clock;
  PollerOptions options = Rig::options(clock);
  options.spin = Duration(0);
  Poller poller(options);
  const auto here = std::this_thread::get_id();
  auto body = [](std::thread::id home) -> Task<Result<int>> {
    int sum = 0;
    for (int i = 0; i < 300; ++i) {
      auto* state = new Manual();
      std::thread other([producer = Ref<Manual>(state)] {
        while (!producer->complete(1)) std::this_thread::yield();
      });
      Operation<Result<int>> operation(state);
      sum += co_await ok(std::move(operation));
      EXPECT_EQ(std::this_thread::get_id(), home);
      other.join();
    }
    co_return sum;
  };
  EXPECT_EQ(*run_until(poller, body(here)), 300);
  EXPECT_EQ(Manual::alive, 0);
}

// ---- Blocking

TEST(OperationThreads, BlockWaitsForAnotherThread) {
  for (int i = 0; i < 300; ++i) {
    auto* state = new Manual();
    std::thread other([producer = Ref<Manual>(state)] {
      while (!producer->complete(7)) std::this_thread::yield();
    });
    EXPECT_EQ(*block(Operation<Result<int>>(state)), 7);
    other.join();
  }
  EXPECT_EQ(Manual::alive, 0);
}

TEST(Operation, BlockIsRefusedOnAPoller) {
  Rig rig;
  const Poller::Scope scope(rig.poller);
  auto result = block(make_operation<Manual>());
  EXPECT_EQ(result.status().code(), Code::failed_precondition);
  EXPECT_EQ(block(Operation<Status>::ready(Status())).code(), Code::failed_precondition);
  auto task = []() -> Task<Status> { co_return Status(); };
  EXPECT_EQ(block_on(rig.poller, task()).code(), Code::failed_precondition);
}

TEST(OperationThreads, BlockOnRunsATaskOnAnotherThreadsPoller) {
  SteadyClock clock;
  Poller poller(Rig::options(clock));
  std::thread thread([&] { poller.run(); });
  const auto id = thread.get_id();
  auto body = [](std::thread::id home) -> Task<Result<int>> {
    EXPECT_EQ(std::this_thread::get_id(), home);
    co_await sleep_for(100us);
    co_return 3;
  };
  for (int i = 0; i < 50; ++i) EXPECT_EQ(*block_on(poller, body(id)), 3);
  EXPECT_EQ(block_on(poller, sleep_for(Duration(1))), Unit());
  poller.stop();
  thread.join();
}

// ---- Memory

TEST(Frames, AreRecycled) {
  void* first = detail::frame_allocate(200);
  detail::frame_free(first, 200);
#if !defined(__SANITIZE_ADDRESS__)
  void* second = detail::frame_allocate(240);  // of the same class
  EXPECT_EQ(first, second);
  detail::frame_free(second, 240);
#endif
}

TEST(Frames, OfAllSizesAreWritableAndAligned) {
  std::vector<std::pair<unsigned char*, std::size_t>> frames;
  for (std::size_t bytes = 1; bytes < 40'000; bytes = bytes * 5 / 4 + 1) {
    auto* frame = static_cast<unsigned char*>(detail::frame_allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame) % alignof(std::max_align_t), 0U);
    std::fill_n(frame, bytes, static_cast<unsigned char>(bytes));
    frames.emplace_back(frame, bytes);
  }
  for (auto [frame, bytes] : frames) {
    EXPECT_EQ(frame[0], static_cast<unsigned char>(bytes));
    EXPECT_EQ(frame[bytes - 1], static_cast<unsigned char>(bytes));
    detail::frame_free(frame, bytes);
  }
}

TEST(FramesThreads, FreedOnAnotherThread) {
  // One thread only allocates, the other only frees.
  constexpr int kFrames = 200'000;
  constexpr std::size_t kBytes = 192;
  std::vector<std::atomic<void*>> slots(1024);
  std::thread consumer([&] {
    for (int i = 0; i < kFrames; ++i) {
      auto& slot = slots[static_cast<std::size_t>(i) % slots.size()];
      void* frame = nullptr;
      while ((frame = slot.exchange(nullptr)) == nullptr) std::this_thread::yield();
      EXPECT_EQ(*static_cast<int*>(frame), i);
      detail::frame_free(frame, kBytes);
    }
  });
  for (int i = 0; i < kFrames; ++i) {
    auto& slot = slots[static_cast<std::size_t>(i) % slots.size()];
    while (slot.load() != nullptr) std::this_thread::yield();
    void* frame = detail::frame_allocate(kBytes);
    *static_cast<int*>(frame) = i;
    slot = frame;
  }
  consumer.join();
}

}  // namespace
}  // namespace pawl
