// SPDX-License-Identifier: Apache-2.0
#include "hammer.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "memory/lease_table.h"
#include "memory/pool_core.h"
#include "pawl/pool.h"
#include "reader.h"
#include "shared.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pawl::memory_order_test {

namespace {

using memory::LeaseEnd;
using memory::LeaseHandle;
using memory::LeaseTable;

constexpr std::uint64_t kRoundsFactorMax = 50;

/// Memory that the forked reader sees too.
class SharedMemory final : public MemoryKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "shared"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    return std::span(map_shared(nullptr, bytes), bytes);
  }
  void free(std::span<std::byte> memory) noexcept override {
    ::munmap(memory.data(), memory.size());
  }
  [[nodiscard]] int dma_buf_fd(std::span<const std::byte>) const override { return -1; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::byte> to, const std::byte* from) const override {
    std::memcpy(to.data(), from, to.size());
  }
  [[nodiscard]] bool cpu_readable() const override { return true; }
  [[nodiscard]] bool host() const override { return true; }
};

PoolOptions pool_options(MemoryKind& kind, std::uint64_t seed) {
  PoolOptions options;
  options.bytes_max = 64 * 1024;
  options.slab_bytes = 64 * 1024;
  options.landing_reserve_bytes = 0;
  options.leases_max = 64;
  options.generation_seed = seed;
  options.kind = &kind;
  options.grow_inline = true;
  return options;
}

class Owner {
 public:
  explicit Owner(const Options& options)
      : options_(options),
        random_(options.seed),
        pool_(pool_options(kind_, options.seed)),
        shared_(*new (map_shared(nullptr, sizeof(Shared))) Shared) {
    // The words of the table lie in memory of this process: shared pages take their place before
    // the first lease. Both are zero.
    const std::span<const std::byte> words = table().words();
    map_shared(const_cast<std::byte*>(words.data()), words.size());
    Result<Buffer> buffer = pool_.try_acquire(kBytes);
    PAWL_CHECK(buffer.ok(), "the pool has a buffer");
    memory_ = buffer->bytes().data();
    lend(std::move(*buffer));
    // The pattern is made from the generation, which is known only now.
    end();
    Buffer again = take_back();
    overwrite(again);
    lend(std::move(again));
    shared_.lent.store(generation_, std::memory_order_release);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { ::munmap(&shared_, sizeof(Shared)); }

  Report run() {
    const auto started = std::chrono::steady_clock::now();
    const pid_t owner = ::getpid();
    const pid_t reader = ::fork();
    PAWL_CHECK(reader >= 0, "the system refused to fork");
    if (reader == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != owner) ::_exit(1);
      read_until_stopped(shared_, *lease_, memory_, options_.seed + 1);
      ::_exit(0);
    }
    while (shared_.samples.load(std::memory_order_relaxed) == 0 && alive(reader)) ::sched_yield();
    while (!enough() && ((rounds_ % 1024) != 0 || alive(reader))) round();
    shared_.stop.store(true, std::memory_order_relaxed);
    while (alive(reader)) ::sched_yield();

    Report report;
    report.rounds = rounds_;
    report.samples = shared_.samples.load();
    report.valid = shared_.valid.load();
    report.refused = shared_.refused.load();
    report.overlapped = shared_.overlapped.load();
    report.wrong = shared_.wrong.load();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
    report.seconds = taken.count();
    report.reader_left_well = WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
    return report;
  }

 private:
  LeaseTable& table() { return pool_.core().leases(); }

  // Once it left, its status is in status_.
  bool alive(pid_t reader) {
    if (!left_) left_ = ::waitpid(reader, &status_, WNOHANG) == reader;
    return !left_;
  }

  bool enough() const {
    if (options_.order == Order::overwrite_then_end) {
      return rounds_ >= options_.rounds || shared_.wrong.load(std::memory_order_relaxed) > 0;
    }
    if (rounds_ >= options_.rounds * kRoundsFactorMax) return true;
    return rounds_ >= options_.rounds &&
           shared_.samples.load(std::memory_order_relaxed) >= options_.rounds &&
           shared_.overlapped.load(std::memory_order_relaxed) > 0 &&
           shared_.valid.load(std::memory_order_relaxed) > 0;
  }

  void round() {
    pause(random_.below(4096));
    Buffer buffer;
    if (options_.order == Order::end_then_overwrite) {
      end();
      buffer = take_back();
      overwrite(buffer);
    } else {
      overwrite_lent();
      end();
      buffer = take_back();
    }
    lend(std::move(buffer));
    shared_.lent.store(generation_, std::memory_order_release);
    ++rounds_;
  }

  void lend(Buffer buffer) {
    block_ = std::move(buffer).freeze();
    Result<LeaseHandle> lease = table().lend({&block_, 1}, Guard::verify, false, nullptr, {});
    PAWL_CHECK(lease.ok(), "a block is lent");
    lease_ = *std::move(lease);
    PAWL_CHECK(generation_ == 0 || lease_->generation() == generation_ + 2, "the slot is the same");
    PAWL_CHECK(block_.bytes().data() == memory_, "the memory is the same");
    generation_ = lease_->generation();
  }

  // The ways in which the product ends a lease.
  void end() {
    switch (random_.below(3)) {
      case 0:
        PAWL_CHECK(lease_->end(LeaseEnd::timeout), "nobody else ends it");
        break;
      case 1: {
        Block copy = block_;
        std::move(copy).retire();
        break;
      }
      default:
        break;  // by dropping the handle
    }
    lease_.reset();
  }

  Buffer take_back() {
    Result<Buffer> buffer = std::move(block_).unique();
    PAWL_CHECK(buffer.ok(), "an ended lease holds no memory");
    return *std::move(buffer);
  }

  // For the next use, whose generation is known beforehand.
  void overwrite(Buffer& buffer) {
    const std::uint64_t next = generation_ + 2;
    auto* const words = reinterpret_cast<std::uint64_t*>(buffer.bytes().data());
    switch (random_.below(4)) {
      case 0:
        for (std::size_t i = 0; i < kWords; ++i) words[i] = pattern(next, i);
        break;
      case 1:
        for (std::size_t i = kWords; i-- > 0;) words[i] = pattern(next, i);
        break;
      case 2:
        for (std::size_t i = 0; i < kWords; ++i) prepared_[i] = pattern(next, i);
        PAWL_CHECK(buffer.copy_in(0, std::as_bytes(std::span(prepared_))).ok(), "it fits");
        break;
      default:
        stream(words, next);
        break;
    }
  }

  // Stores past the cache, which x86 orders less than others; memcpy of much uses them.
  static void stream(std::uint64_t* words, std::uint64_t next) {
#ifdef __SSE2__
    for (std::size_t i = 0; i < kWords; ++i) {
      _mm_stream_si64(reinterpret_cast<long long*>(words + i),
                      static_cast<long long>(pattern(next, i)));
    }
    _mm_sfence();
#else
    for (std::size_t i = 0; i < kWords; ++i) words[i] = pattern(next, i);
#endif
  }

  // The mistake: no handle of the product would write here.
  void overwrite_lent() {
    const std::uint64_t next = generation_ + 2;
    auto* const words = reinterpret_cast<std::uint64_t*>(memory_);
    for (std::size_t i = 0; i < kWords; ++i) words[i] = pattern(next, i);
  }

  const Options options_;
  SmallRandom random_;
  SharedMemory kind_;
  Pool pool_;
  Shared& shared_;
  Block block_;
  LeaseHandle lease_;
  std::byte* memory_ = nullptr;
  std::uint64_t generation_ = 0;
  std::uint64_t rounds_ = 0;
  std::array<std::uint64_t, kWords> prepared_{};
  bool left_ = false;
  int status_ = 0;
};

}  // namespace

std::byte* map_shared(std::byte* at, std::size_t bytes) {
  const int flags = MAP_SHARED | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0);
  void* const mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  PAWL_CHECK(mapped != MAP_FAILED, "the system refused shared memory");
  return static_cast<std::byte*>(mapped);
}

std::string Report::to_string() const {
  std::ostringstream out;
  out << rounds << " rounds (" << overlapped << " sampled while being overwritten), " << samples
      << " samples (" << valid << " valid, " << refused << " refused, " << wrong << " wrong), "
      << seconds << " s";
  return out.str();
}

Report hammer(const Options& options) {
  Owner owner(options);
  return owner.run();
}

}  // namespace pawl::memory_order_test
