// SPDX-License-Identifier: Apache-2.0
#include "pawl/detail/frame.h"

#include <pthread.h>

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define PAWL_PLAIN_FRAMES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PAWL_PLAIN_FRAMES 1
#endif
#endif

namespace pawl::detail {
namespace {

void* allocate_plain(std::size_t bytes) {
  void* memory = ::operator new(bytes, std::nothrow);
  PAWL_CHECK(memory != nullptr, "no memory for a coroutine frame or an operation");
  return memory;
}

void free_plain(void* memory, std::size_t bytes) noexcept { ::operator delete(memory, bytes); }

#ifndef PAWL_PLAIN_FRAMES

// Sixteen classes of 64 to 1024 bytes, then 2, 4, 8 and 16 KiB.
constexpr std::size_t kStepBytes = 64;
constexpr std::size_t kSteps = 16;
constexpr std::size_t kClasses = kSteps + 4;
constexpr std::size_t kLargestBytes = 16384;
constexpr std::size_t kNoClass = kClasses;
constexpr std::size_t kCacheBytesMax = std::size_t{128} << 10;  // per thread and class
constexpr std::size_t kDepotBytesMax = std::size_t{64} << 20;   // per class, all threads

constexpr std::size_t class_of(std::size_t bytes) {
  if (bytes <= kStepBytes * kSteps) return bytes == 0 ? 0 : (bytes - 1) / kStepBytes;
  if (bytes > kLargestBytes) return kNoClass;
  return kSteps + static_cast<std::size_t>(std::bit_width((bytes - 1) / 1024)) - 1;
}
constexpr std::size_t bytes_of(std::size_t size_class) {
  if (size_class < kSteps) return (size_class + 1) * kStepBytes;
  return std::size_t{2048} << (size_class - kSteps);
}
static_assert(bytes_of(class_of(1)) == 64 && bytes_of(class_of(64)) == 64);
static_assert(bytes_of(class_of(65)) == 128 && bytes_of(class_of(1024)) == 1024);
static_assert(bytes_of(class_of(1025)) == 2048 && bytes_of(class_of(2049)) == 4096);
static_assert(bytes_of(class_of(kLargestBytes)) == kLargestBytes);

constexpr std::size_t cache_max(std::size_t size_class) {
  return kCacheBytesMax / bytes_of(size_class);
}
constexpr std::size_t batch_size(std::size_t size_class) { return cache_max(size_class) / 2; }

struct Block {
  Block* next;        // in its chain
  Block* next_batch;  // only of the first of a chain, in the depot
};

/// Chains of batch_size blocks, for threads that free more than they allocate and the other way
/// round. What it does not keep goes back to the system.
class Depot {
 public:
  Block* take(std::size_t size_class) noexcept {
    Shelf& shelf = shelves_[size_class];
    const std::lock_guard lock(shelf.mutex);
    Block* batch = shelf.first;
    if (batch == nullptr) return nullptr;
    shelf.first = batch->next_batch;
    --shelf.batches;
    return batch;
  }
  /// False: full.
  bool put(std::size_t size_class, Block* batch) noexcept {
    Shelf& shelf = shelves_[size_class];
    const std::lock_guard lock(shelf.mutex);
    if (shelf.batches * batch_size(size_class) * bytes_of(size_class) >= kDepotBytesMax) {
      return false;
    }
    batch->next_batch = shelf.first;
    shelf.first = batch;
    ++shelf.batches;
    return true;
  }

  /// Around a fork, so that no other thread is in here when the child is made.
  void hold() noexcept {
    for (Shelf& shelf : shelves_) shelf.mutex.lock();
  }
  void let_go() noexcept {
    for (Shelf& shelf : shelves_) shelf.mutex.unlock();
  }

 private:
  struct Shelf {
    std::mutex mutex;
    Block* first = nullptr;
    std::size_t batches = 0;
  };
  std::array<Shelf, kClasses> shelves_;
};

struct Cache {
  struct Chain {
    Block* first = nullptr;
    std::size_t blocks = 0;
  };
  std::array<Chain, kClasses> chains;
  bool watched = false;  // the end of the thread empties it
  bool closed = false;   // the thread has ended; frees after that go to the system
};

// An allocator's state, not the program's: constant-initialised and never destroyed.
constinit Depot depot;
constinit thread_local Cache cache;

void free_chain(Block* first, std::size_t size_class) noexcept {
  while (first != nullptr) {
    Block* next = first->next;
    free_plain(first, bytes_of(size_class));
    first = next;
  }
}

struct EndOfThread {
  ~EndOfThread() {
    cache.closed = true;
    for (std::size_t i = 0; i < kClasses; ++i) {
      free_chain(cache.chains[i].first, i);
      cache.chains[i] = {};
    }
  }
};

void watch_end_of_thread() {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork([] { depot.hold(); }, [] { depot.let_go(); }, [] { depot.let_go(); });
  static thread_local EndOfThread end;
  static_cast<void>(&end);
  cache.watched = true;
}

/// Gives the half that was freed last to the depot.
void spill(Cache::Chain& chain, std::size_t size_class) noexcept {
  Block* batch = chain.first;
  Block* last = batch;
  for (std::size_t i = 1; i < batch_size(size_class); ++i) last = last->next;
  chain.first = last->next;
  chain.blocks -= batch_size(size_class);
  last->next = nullptr;
  if (!depot.put(size_class, batch)) free_chain(batch, size_class);
}

void* allocate_slow(Cache::Chain& chain, std::size_t size_class) {
  Block* batch = depot.take(size_class);
  if (batch == nullptr) return allocate_plain(bytes_of(size_class));
  if (!cache.watched) watch_end_of_thread();
  chain.first = batch->next;
  chain.blocks = batch_size(size_class) - 1;
  return batch;
}

#endif

}  // namespace

#ifdef PAWL_PLAIN_FRAMES

void* frame_allocate(std::size_t bytes) { return allocate_plain(bytes); }
void frame_free(void* memory, std::size_t bytes) noexcept { free_plain(memory, bytes); }

#else

void* frame_allocate(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  if (size_class == kNoClass) return allocate_plain(bytes);
  Cache::Chain& chain = cache.chains[size_class];
  Block* block = chain.first;
  if (block == nullptr) {
    return cache.closed ? allocate_plain(bytes_of(size_class)) : allocate_slow(chain, size_class);
  }
  chain.first = block->next;
  --chain.blocks;
  return block;
}

void frame_free(void* memory, std::size_t bytes) noexcept {
  const std::size_t size_class = class_of(bytes);
  if (size_class == kNoClass) return free_plain(memory, bytes);
  if (cache.closed) return free_plain(memory, bytes_of(size_class));
  if (!cache.watched) watch_end_of_thread();
  Cache::Chain& chain = cache.chains[size_class];
  auto* block = static_cast<Block*>(memory);
  block->next = chain.first;
  chain.first = block;
  if (++chain.blocks >= cache_max(size_class)) spill(chain, size_class);
}

#endif

}  // namespace pawl::detail
