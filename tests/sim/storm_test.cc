// SPDX-License-Identifier: Apache-2.0
// The whole stack under everything at once, by seed: late READs, stalls, losses, time-outs,
// cancels, evictions, crashes. A failing seed is run again with PAWL_TEST_SEED=<seed>.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/random.h"
#include "pawl/task_group.h"
#include "pawl/testing.h"
#include "pawl/when.h"
#include "support/function_service.h"
#include "support/host_kind.h"

namespace pawl {
namespace {

using testing::FunctionService;
using testing::Storm;
using testing::StormOptions;

constexpr Method kGet = make_method("test.Storm/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Storm/Put", BulkDirection::upload);
constexpr std::uint64_t kCallsMin = 4, kCallsMax = 40;  // of a client
constexpr std::size_t kCached = 4;

// Every eight bytes of a use of a buffer say whose they are and where they belong.
std::uint64_t word(std::uint64_t tag, std::size_t i) { return tag * 0x9e3779b97f4a7c15ULL + i; }
void fill(std::span<std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t value = word(tag, i);
    std::memcpy(bytes.data() + i, &value, 8);
  }
}
bool holds(std::span<const std::byte> bytes, std::uint64_t tag, std::uint64_t first_word = 0) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + i, 8);
    if (value != word(tag, first_word * 8 + i)) return false;
  }
  return true;
}

/// Memory that goes from seed to seed with its bytes, which costs less than new pages do.
class RecycledMemory final : public testing::HostKind {
 public:
  [[nodiscard]] std::string_view name() const override { return "recycled"; }
  Result<std::span<std::byte>> allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::span<std::byte>>& free = free_[bytes];
    if (free.empty()) return HostKind::allocate(bytes);
    const std::span<std::byte> memory = free.back();
    free.pop_back();
    return memory;
  }
  void free(std::span<std::byte> memory) noexcept override {
    const std::lock_guard lock(mutex_);
    free_[memory.size()].push_back(memory);
  }
  ~RecycledMemory() override {
    for (const auto& [bytes, free] : free_) {
      for (const std::span<std::byte> memory : free) HostKind::free(memory);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::span<std::byte>>> free_;
};

MemoryKind& memory() {
  static RecycledMemory memory;
  // Nor do the tables of nodes that come and go: a third of a seed's time was the system's.
  static const bool kept =
      ::mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && ::mallopt(M_TRIM_THRESHOLD, 256 << 20) == 1;
  (void)kept;
  return memory;
}

/// What one seed did.
struct Tally {
  std::uint64_t ended = 0, ok = 0, stale = 0, deadline = 0, wrong = 0, late = 0;
};

/// A block that the server keeps, and whose it is.
struct Cached {
  Block block;
  std::uint64_t tag = 0;
};

/// One run: two clients and a server that caches a few blocks and evicts them while they are read.
class CacheInAStorm {
 public:
  CacheInAStorm(std::uint64_t seed, Guard guard)
      : seed_(seed),
        random_(seed ^ 0x10ad),
        guard_(guard),
        storm_(seed, handled_service(), options()) {
    storm_.before_crash([this] { forget_cache(); });
  }

  Tally run() {
    const Status status =
        storm_.run([this](Node& client, Channel channel) { return load(client, channel); });
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_quiet();
    return tally_;
  }

 private:
  [[nodiscard]] StormOptions options() const {
    NodeOptions node;
    node.pool.bytes_max = 4 << 20;
    node.pool.slab_bytes = 1 << 20;
    node.pool.leases_max = 256;
    node.pool.kind = &memory();
    node.receive_bytes = seed_ % 16 == 0 ? 8192 : seed_ % 4 == 0 ? 1024 : 2048;
    node.receive_messages = seed_ % 5 == 0 ? 1 : 32;
    node.allow_baselines = true;
    node.guard = guard_;
    node.memory_windows = guard_ == Guard::window || guard_ == Guard::window_verify;
    node.read_timeout = 500ms;
    node.lease_grace = 5ms;
    StormOptions options;
    options.server = options.client = node;
    options.channel.guard = guard_;
    options.channel.liveness = 200ms;
    options.channel.hold_until_ack = guard_ == Guard::verify && seed_ % 3 == 0;
    return options;
  }

  Service& handled_service() {
    service_.add(kGet, [this](Call& call, std::span<const std::byte> request, Upload&,
                              Download& out) { return get(call, request, out); });
    service_.add(kPut, [this](Call& call, std::span<const std::byte> request, Upload& in,
                              Download&) { return put(call, request, in); });
    return service_;
  }

  void forget_cache() {
    for (Cached& each : cache_) each = {};
  }

  // --- the service --------------------------------------------------------------------------

  // Blocks of the cache beside a new one, each with its own tag in the reply.
  Task<Result<Payload>> get(Call& call, std::span<const std::byte> request, Download& out) {
    std::uint64_t tag = 0, bytes = 0;
    std::memcpy(&tag, request.data(), 8);
    std::memcpy(&bytes, request.data() + 8, 8);
    auto buffer = co_await ok(call.pool().acquire(bytes, 20ms));
    fill(buffer.bytes(), tag);
    const Block block = std::move(buffer).freeze();
    std::vector<std::uint64_t> tags{tag};
    out.add(block);
    for (std::size_t i = random_.below(3); i > 0; --i) {
      const std::size_t at = random_.below(kCached);
      if (cache_[at].block) out.add(cache_[at].block);
      if (cache_[at].block) tags.push_back(cache_[at].tag);
    }
    // The cache makes room while the callers still read.
    Cached& evicted = cache_[random_.below(kCached)];
    std::move(evicted.block).retire();
    evicted = {block, tag};
    co_return Payload(std::as_bytes(std::span(tags)));
  }

  Task<Result<Payload>> put(Call& call, std::span<const std::byte> request, Upload& in) {
    std::uint64_t tag = 0;
    std::memcpy(&tag, request.data(), 8);
    const std::uint64_t half = in.size() / 16 * 8;
    const std::uint64_t way = half > 0 ? random_.below(3) : 0;
    if (way == 0) {
      co_return judge(co_await in.pull(call.pool()), tag, 0);
    }
    if (way == 1) {  // two pulls of one lease at once
      auto [first, second] = co_await when_all(in.pull(call.pool(), {0, half}),
                                               in.pull(call.pool(), {half, in.size()}));
      const Result<Payload> one = judge(std::move(first), tag, 0);
      Result<Payload> two = judge(std::move(second), tag, half);
      co_return one.ok() ? std::move(two) : one.status();
    }
    auto first = co_await ok(in.pull_unconfirmed(call.pool(), {0, half}));
    auto second = co_await ok(in.pull_unconfirmed(call.pool(), {half, in.size()}));
    (void)first;
    (void)second;
    auto both = co_await in.confirm();
    if (!both.ok()) co_return judge(both.status(), tag, 0);
    const Result<Payload> one = judge(std::move((*both)[0]), tag, 0);
    Result<Payload> two = judge(std::move((*both)[1]), tag, half);
    co_return one.ok() ? std::move(two) : one.status();
  }
  Result<Payload> judge(Result<Buffer> pulled, std::uint64_t tag, std::uint64_t offset) {
    if (!pulled.ok()) {
      if (pulled.status().code() == Code::stale) ++tally_.stale;
      return pulled.status();
    }
    if (!holds(std::as_const(*pulled).bytes(), tag, offset / 8)) ++tally_.wrong;
    return Payload();
  }

  // --- the load -----------------------------------------------------------------------------

  Task<void> load(Node& client, Channel channel) {
    TaskGroup group;
    const std::uint64_t calls = random_.between(kCallsMin, kCallsMax);
    for (std::uint64_t i = 0; i < calls; ++i) {
      const bool cancel = random_.chance(0.1);
      if (cancel) {
        auto dropped =
            with_deadline(one(client, channel), Duration(random_.between(1, 20'000'000)));
        (void)group.spawn(std::move(dropped));
      } else {
        (void)group.spawn(one(client, channel));
      }
      co_await sleep_for(Duration(random_.between(0, 2'000'000)));
    }
    (void)co_await group.join();
  }

  Task<Status> one(Node& client, Channel channel) {
    const std::uint64_t tag = ++next_tag_;
    // Small ones travel inside the messages; some requests are longer than a message.
    const std::uint64_t bytes =
        random_.chance(0.2) ? 8 + random_.below(4000) : 5000 + random_.below(150'000);
    CallOptions options;
    options.deadline = Duration(random_.between(1'000'000, 60'000'000));
    options.wait_for_connection = random_.chance(0.8);
    std::vector<std::uint64_t> request{tag, bytes};
    if (random_.chance(0.1)) request.resize(random_.between(2, 15'000));
    const TimePoint begin = storm_.world().now();
    Status status;
    if (random_.chance(0.5)) {
      auto operation = channel.call(kGet, Payload(std::as_bytes(std::span(request))),
                                    into(client.pool()), options);
      auto outcome = co_await std::move(operation);
      status = outcome.ok() ? Status() : outcome.status();
      if (outcome.ok()) {
        EXPECT_EQ(outcome.ran(), Ran::yes);
        check_parts(*outcome);
      }
    } else {
      auto buffer = co_await client.pool().acquire(bytes, 20ms);
      if (!buffer.ok()) co_return buffer.status();
      fill(buffer->bytes(), tag);
      const TimePoint called = storm_.world().now();
      const Block block = (*std::move(buffer)).freeze();
      auto operation =
          channel.call(kPut, Payload(std::as_bytes(std::span(request))), lend(block), options);
      auto outcome = co_await std::move(operation);
      status = outcome.ok() ? Status() : outcome.status();
      if (storm_.world().now() - called > options.deadline) ++tally_.late;
      co_return count(std::move(status));
    }
    if (storm_.world().now() - begin > options.deadline) ++tally_.late;
    co_return count(std::move(status));
  }
  // The reply tells whose each part is.
  void check_parts(const Pulled<Payload>& pulled) {
    const std::span<const std::byte> tags = pulled.reply().bytes();
    ASSERT_EQ(tags.size(), pulled.parts().size() * 8);
    for (std::size_t i = 0; i < pulled.parts().size(); ++i) {
      std::uint64_t tag = 0;
      std::memcpy(&tag, tags.data() + i * 8, 8);
      const Result<Block>& part = pulled.parts()[i];
      if (part.ok() && !holds(part->bytes(), tag)) ++tally_.wrong;
      if (!part.ok() && part.status().code() == Code::stale) ++tally_.stale;
    }
  }
  Status count(Status status) {
    ++tally_.ended;
    if (status.ok()) ++tally_.ok;
    if (status.code() == Code::stale) ++tally_.stale;
    if (status.code() == Code::deadline) ++tally_.deadline;
    return status;
  }

  // Beyond what Storm::run looks at: every call ended once.
  void expect_quiet() {
    for (Node* node : {&storm_.server(), &storm_.client(0), &storm_.client(1)}) {
      const NodeStats stats = node->stats();
      EXPECT_EQ(stats.calls_started,
                stats.calls_ok + stats.calls_failed + stats.calls_deadline + stats.calls_cancelled);
    }
  }

  const std::uint64_t seed_;
  Random random_;
  const Guard guard_;
  Tally tally_;
  FunctionService service_;
  std::vector<Cached> cache_ = std::vector<Cached>(kCached);
  Storm storm_;
  std::uint64_t next_tag_ = 0;
};

std::uint64_t first_seed() {
  const char* seed = std::getenv("PAWL_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
}
#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t kSeeds = 20;  // a second each, and one thread has no races
#else
constexpr std::uint64_t kSeeds = 160;
#endif
constexpr std::uint64_t kSoakSeeds = 1'000'000;
constexpr std::uint64_t kSoakSeedsOfOthers = 100'000;  // for each other guard
constexpr std::uint64_t kShards = 4;  // tests that share the seeds, to run at the same time
std::uint64_t seeds(Guard guard) {
  if (const char* count = std::getenv("PAWL_TEST_SEEDS")) {
    return std::strtoull(count, nullptr, 10);
  }
  if (std::getenv("PAWL_TEST_SOAK") == nullptr) return kSeeds;
  return guard == Guard::verify ? kSoakSeeds : kSoakSeedsOfOthers;
}

void add(Tally& sum, const Tally& part) {
  sum.ended += part.ended;
  sum.ok += part.ok;
  sum.stale += part.stale;
  sum.deadline += part.deadline;
  sum.wrong += part.wrong;
  sum.late += part.late;
}

class StormTest : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Shard, StormTest, ::testing::Range(std::uint64_t{0}, kShards));

/// One shard's seeds, until one fails.
void run_seeds(std::uint64_t shard, Guard guard, Tally& sum) {
  const std::uint64_t mine = seeds(guard) / kShards;
  for (std::uint64_t i = 0; i < mine; ++i) {
    const std::uint64_t seed = first_seed() + shard * mine + i;
    SCOPED_TRACE("PAWL_TEST_SEED=" + std::to_string(seed));
    const Tally tally = CacheInAStorm(seed, guard).run();
    ASSERT_EQ(tally.wrong, 0u);
    ASSERT_EQ(tally.late, 0u) << "a call ended after its deadline";
    add(sum, tally);
    if (::testing::Test::HasFailure()) break;
  }
  std::printf("%llu seeds: %llu calls ended, %llu ok, %llu stale, %llu deadline\n",
              static_cast<unsigned long long>(mine), static_cast<unsigned long long>(sum.ended),
              static_cast<unsigned long long>(sum.ok), static_cast<unsigned long long>(sum.stale),
              static_cast<unsigned long long>(sum.deadline));
  EXPECT_GT(sum.ok, sum.ended / 10);
}

TEST_P(StormTest, VerifyNeverAcceptsAWrongByte) {
  Tally sum;
  run_seeds(GetParam(), Guard::verify, sum);
  // The run proves something only if stale reads happened, too.
  EXPECT_GT(sum.stale, 0u);
}

TEST_P(StormTest, WindowNeverAcceptsAWrongByte) {
  Tally sum;
  run_seeds(GetParam(), Guard::window, sum);
}

TEST_P(StormTest, WindowVerifyNeverAcceptsAWrongByte) {
  Tally sum;
  run_seeds(GetParam(), Guard::window_verify, sum);
}

// A service that keeps a Block which it should have dropped.
TEST(StormNames, MemoryThatDidNotComeBackIsNamed) {
  for (const bool forgets : {false, true}) {
    std::vector<Block> kept;
    FunctionService service;
    service.add(kGet,
                [&kept](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                  auto buffer = co_await ok(call.pool().acquire(5000));
                  fill(buffer.bytes(), 1);
                  kept.push_back(std::move(buffer).freeze());
                  out.add(kept.back());
                  co_return Payload();
                });
    StormOptions options;
    options.restarts_max = 0;
    Storm storm(7, service, options);
    if (forgets) storm.before_crash([&kept] { kept.clear(); });
    const Status status = storm.run([](Node& client, Channel channel) -> Task<void> {
      for (int i = 0; i < 5; ++i) {
        auto operation = channel.call(kGet, Payload(), into(client.pool()));
        auto outcome = co_await std::move(operation);
        (void)outcome;
      }
    });
    if (forgets) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      continue;
    }
    EXPECT_EQ(status.code(), Code::internal);
    EXPECT_NE(status.what().find("bytes_in_use"), std::string_view::npos) << status.what();
    kept.clear();
  }
}

TEST(StormWithoutAGuard, TheSameSeedsAcceptWrongBytes) {
  Tally sum;
  for (std::uint64_t i = 0; i < seeds(Guard::none) / 5; ++i) {
    add(sum, CacheInAStorm(first_seed() + i, Guard::none).run());
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(sum.wrong, 0u);
}

}  // namespace
}  // namespace pawl
