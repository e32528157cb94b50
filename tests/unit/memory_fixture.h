// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/buffer_access.h"
#include "memory/extent.h"
#include "memory/landing.h"
#include "memory/lease_table.h"
#include "memory/pool_core.h"
#include "memory/registrar.h"
#include "pawl/pool.h"
#include "pawl/region.h"
#include "unit/runtime_support.h"

namespace pawl::memory_test {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

/// A pool that is small, grows on the calling thread and repeats: what most tests want.
inline PoolOptions small_pool(std::size_t bytes_max = kMiB) {
  PoolOptions options;
  options.bytes_max = bytes_max;
  options.landing_reserve_bytes = 0;
  options.slab_bytes = 64 * kKiB;
  options.leases_max = 64;
  options.generation_seed = 42;
  options.grow_inline = true;
  return options;
}

/// A device that writes down what it registered, and refuses when told.
class FakeDevice final : public Registrar {
 public:
  [[nodiscard]] std::string_view registrar_name() const override { return "fake:0"; }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind&,
                                       MemoryUse use) override {
    const std::lock_guard lock(mutex_);
    if (refuse || memory.size() > bytes_max) {
      return Status(Code::resource_exhausted, "locked memory limit reached: raise ulimit -l",
                    Ran::no, ENOMEM);
    }
    registered[++last_] = {memory.data(), memory.size(), use};
    return MemoryHandle{last_};
  }
  Status deregister_memory(MemoryHandle handle) override {
    const std::lock_guard lock(mutex_);
    if (registered.erase(handle.value) == 0) return Status(Code::internal, "not registered");
    return {};
  }

  struct Piece {
    std::byte* base;
    std::size_t bytes;
    MemoryUse use;
  };
  std::map<std::uint64_t, Piece> registered;
  std::atomic<bool> refuse{false};
  std::size_t bytes_max = SIZE_MAX;  // of one registration

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;
};

inline void fill(Buffer& buffer, int value) {
  std::memset(buffer.bytes().data(), value, buffer.size());
}

inline Buffer must(Result<Buffer> buffer) {
  EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
  return buffer.ok() ? std::move(*buffer) : Buffer();
}

/// A Block of the pool with all bytes set to `value`.
inline Block block_of(Pool& pool, std::size_t bytes, int value = 1) {
  Buffer buffer = must(pool.try_acquire(bytes));
  fill(buffer, value);
  return std::move(buffer).freeze();
}

inline Result<memory::LeaseHandle> lend(Pool& pool, std::span<const Block> blocks,
                                        TimePoint now = TimePoint{0},
                                        memory::LeaseListener* listener = nullptr,
                                        bool settles_later = false, Guard guard = Guard::verify) {
  return pool.core().leases().lend(blocks, guard, settles_later, listener, now);
}
inline Result<memory::LeaseHandle> lend(Pool& pool, const Block& block,
                                        TimePoint now = TimePoint{0}) {
  return lend(pool, std::span(&block, 1), now);
}

/// An operation that was started on the rig's poller, and its value once it is there.
template <class T>
struct Awaited {
  Awaited(test::Rig& rig, Operation<T> operation) {
    const Poller::Scope scope(rig.poller);
    started = pawl::start(std::move(operation),
                          Callback<T>{[](void* to, T got) {
                                        static_cast<std::optional<T>*>(to)->emplace(std::move(got));
                                      },
                                      &value});
    rig.turn();
  }
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  [[nodiscard]] bool done() const { return value.has_value(); }
  [[nodiscard]] bool ok() const { return value.has_value() && value->ok(); }
  [[nodiscard]] Status status() const { return value->status(); }

  std::optional<T> value;
  Started started;
};
using AwaitedBuffer = Awaited<Result<Buffer>>;
using AwaitedLanding = Awaited<Result<detail::FrameVector<Buffer>>>;

/// A pool in hand-moved time, and a poller to wait on. `give(x)` drops and lets the poller turn.
struct PoolRig : test::Rig {
  explicit PoolRig(const PoolOptions& options) : pool(options, &clock) {}

  Operation<Result<Buffer>> acquire(std::size_t bytes, Duration deadline = 10s) {
    return pool.acquire(bytes, deadline);
  }
  Operation<Result<detail::FrameVector<Buffer>>> land(std::vector<std::size_t> sizes,
                                                      Duration deadline = 10s) {
    return pool.core().acquire_landing(sizes, clock.now() + deadline);
  }
  template <class T>
  void give(T& held) {
    held = T();
    turn();
  }
  void give(AwaitedBuffer& held) {
    held.value.reset();
    turn();
  }

  Pool pool;
};

/// What a READ landed in, accepted: `bytes` as one Block.
inline Block landed(Buffer buffer) {
  const std::size_t bytes = buffer.size();
  memory::Landing landing = std::move(*memory::Landing::into_buffer(std::move(buffer), bytes));
  return std::move(landing).accept(bytes);
}
inline std::vector<Block> land_now(Pool& pool, std::vector<std::size_t> sizes) {
  std::vector<Block> blocks;
  Result<detail::FrameVector<Buffer>> buffers = pool.core().try_acquire_landing(sizes);
  EXPECT_TRUE(buffers.ok()) << buffers.status().to_string();
  if (buffers.ok()) {
    for (Buffer& buffer : *buffers) blocks.push_back(landed(std::move(buffer)));
  }
  return blocks;
}

}  // namespace pawl::memory_test
