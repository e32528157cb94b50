// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"

namespace pawl::detail {

using memory::order_bytes;

namespace {

constexpr std::size_t kSlabBytesMin = std::size_t{64} << 10;
constexpr std::size_t kSlabBytesMax = Pool::kBufferBytesMax;
constexpr Duration kGrowthRetry = 1s;  // after a failure

std::uint64_t next_pool_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

PoolOptions completed(PoolOptions options) {
  if (options.slab_bytes == 0) {
    options.slab_bytes =
        std::clamp(std::bit_floor(options.bytes_max), kSlabBytesMin, kSlabBytesMax);
  }
  if (options.landing_reserve_bytes == SIZE_MAX) {
    options.landing_reserve_bytes = options.bytes_max / 4;
  }
  return options;
}

Status misuse_of(const PoolOptions& o) {
  if (!std::has_single_bit(o.slab_bytes) || o.slab_bytes < kSlabBytesMin ||
      o.slab_bytes > kSlabBytesMax) {
    return Status(Code::invalid_argument,
                  "PoolOptions::slab_bytes must be a power of two from 64 KiB to 64 MiB, or 0");
  }
  if (o.bytes_max < o.slab_bytes) {
    return Status(Code::invalid_argument,
                  "PoolOptions::bytes_max is smaller than one slab: raise it, or lower slab_bytes "
                  "(at least 64 KiB)");
  }
  if (o.landing_reserve_bytes >= o.bytes_max) {
    return Status(Code::invalid_argument,
                  "PoolOptions::landing_reserve_bytes leaves nothing of bytes_max to lend: lower "
                  "it, or raise bytes_max");
  }
  if (o.bytes_at_start > o.bytes_max) {
    return Status(Code::invalid_argument, "PoolOptions::bytes_at_start is more than bytes_max");
  }
  if (o.leases_max == 0 || o.leases_max > memory::LeaseTable::kLeasesMax) {
    return Status(Code::invalid_argument, "PoolOptions::leases_max must be 1 to 262142");
  }
  return {};
}

}  // namespace

PoolCore::PoolCore(const PoolOptions& options, const Clock* clock)
    : options_(completed(options)),
      misuse_(misuse_of(options_)),
      id_(next_pool_id()),
      clock_(clock != nullptr ? clock : &steady_clock_),
      kind_(options_.kind != nullptr ? options_.kind : &host_),
      lendable_bytes_max_(options_.bytes_max -
                          std::min(options_.landing_reserve_bytes, options_.bytes_max)),
      quarantine_(options_.quarantine_bytes_max) {
  const std::uint32_t leases = misuse_.ok() ? options_.leases_max : 1;
  leases_.emplace(*this, leases, options_.generation_seed);
  helper_.set_timer(*clock_, [this] { look_after_all(); });
  if (!misuse_.ok()) return;
  const std::uint8_t least[] = {0};
  const Want start{least, memory::kFrameBytes, false};
  while (arena_.bytes_total() < options_.bytes_at_start) {
    const std::size_t slab_bytes = growth_bytes_locked(start);
    if (slab_bytes == 0) break;
    growth_error_ = add_slab(slab_bytes);
    if (!growth_error_.ok()) break;
  }
}

PoolCore::~PoolCore() {
  helper_.stop();
  PAWL_CHECK(arena_.bytes_out() == 0, "a pool is destroyed while its memory is in use");
  leases_.reset();
  for (auto& slab : arena_.slabs()) devices_.remove(slab->piece());
}

Result<std::size_t> PoolCore::attach(Registrar& registrar, MemoryUse bulk_use) {
  if (!misuse_.ok()) return misuse_;
  return devices_.attach(registrar, bulk_use);
}

// --- growth ---------------------------------------------------------------------------------

// The slab that would be made for this request: the usual size, or what all of it needs, or what
// is left or was not refused lately, as long as its largest buffer fits; 0 if there is no room.
std::size_t PoolCore::growth_bytes_locked(const Want& want) const {
  const std::size_t largest =
      order_bytes(*std::max_element(want.orders.begin(), want.orders.end()));
  const std::size_t whole = std::bit_ceil(std::min(want.bytes, kSlabBytesMax));
  std::size_t room = options_.bytes_max - arena_.bytes_total();
  if (growth_limit_ < room && clock_->now() < growth_retry_at_) room = growth_limit_;
  room = std::bit_floor(room);
  if (room < std::max(largest, kSlabBytesMin)) return 0;
  return std::min(std::max(whole, options_.slab_bytes), room);
}

// Could it be served if nothing else were in use? Buffers and slabs are powers of two, so it is
// enough that for each size the slabs that can hold it have room for all buffers from it upwards.
bool PoolCore::ever_locked(const Want& want) const {
  const std::size_t left = options_.bytes_max - arena_.bytes_total();
  for (const std::uint8_t order : want.orders) {
    const std::size_t size = order_bytes(order);
    const std::size_t unit = std::max(size, kSlabBytesMin);
    std::size_t room = left / unit * unit, needed = 0;
    for (const auto& slab : arena_.slabs()) room += slab->bytes() >= size ? slab->bytes() : 0;
    for (const std::uint8_t other : want.orders) needed += other >= order ? order_bytes(other) : 0;
    if (needed > room) return false;
  }
  return true;
}

// The slab to be made, which the caller then makes; 0: no room, or one is being made.
std::size_t PoolCore::claim_growth_locked(const Want& want) {
  if (growing_ || closing_) return 0;
  const std::size_t slab_bytes = growth_bytes_locked(want);
  growing_ = slab_bytes != 0;
  return slab_bytes;
}

// Makes the slab here (true), or has it made by the helper, which serves afterwards.
bool PoolCore::make_slab(std::size_t slab_bytes) {
  if (options_.grow_inline) {
    add_growth(slab_bytes);
    return true;
  }
  std::function<void()> grow = [pool = weak_from_this(), slab_bytes] {
    const std::shared_ptr<PoolCore> alive = pool.lock();
    if (alive == nullptr) return;
    alive->add_growth(slab_bytes);
    alive->serve();
  };
  helper_.run(grow);  // refused only after close(): nobody waits any more
  return false;
}

bool PoolCore::request_growth(const Want& want) {
  std::size_t slab_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    slab_bytes = claim_growth_locked(want);
  }
  if (slab_bytes == 0 || !make_slab(slab_bytes)) return false;
  serve_waiters();  // it may be of use to others
  return true;
}

// What the system or the devices refuse is tried again after a while, and at half the size at once.
void PoolCore::add_growth(std::size_t slab_bytes) {
  Status done = add_slab(slab_bytes);
  std::lock_guard lock(mutex_);
  growing_ = false;
  const TimePoint now = clock_->now();
  if (!done.ok()) {
    growth_limit_ = slab_bytes / 2;
    growth_retry_at_ = now + kGrowthRetry;
    growth_error_ = std::move(done);
  } else if (now >= growth_retry_at_) {
    growth_error_ = Status();
  }
}

Status PoolCore::add_slab(std::size_t bytes) {
  Result<std::span<std::byte>> memory = kind_->allocate(bytes);
  if (!memory.ok()) return memory.status();
  auto slab = std::make_unique<memory::Slab>(memory->first(bytes), *kind_, *this);
  if (!slab->usable()) {
    return Status(Code::resource_exhausted,
                  "no address space for a slab's book-keeping: raise the "
                  "limit on virtual memory (ulimit -v)");
  }
  if (Status registered = devices_.add(slab->piece()); !registered.ok()) return registered;
  std::lock_guard lock(mutex_);
  arena_.add(std::move(slab));
  return {};
}

void PoolCore::run_aside(std::function<void()> job) {
  if (options_.grow_inline || !helper_.run(job)) job();
}

// --- the end --------------------------------------------------------------------------------

void PoolCore::close() {
  self_ = shared_from_this();
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  fail_waiters(Status(Code::cancelled, "the pool was destroyed while its memory was waited for"));
  helper_.stop();  // its jobs hold the core too: not one that is late may be the last
  collect_caches(/*close=*/true);
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    over = buffers_over_locked();
  }
  if (over) part_is_over();
  if (leases_->close()) part_is_over();
}

bool PoolCore::buffers_over_locked() {
  return closing_ && arena_.bytes_out() == 0 && !std::exchange(buffers_over_, true);
}

void PoolCore::part_is_over() {
  if (parts_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<PoolCore> last = std::move(self_);
}

std::size_t PoolCore::cached_bytes() const {
  std::lock_guard lock(caches_mutex_);
  std::size_t bytes = 0;
  for (const auto& cache : caches_) bytes += cache->bytes();
  return bytes;
}

PoolStats PoolCore::stats() const {
  PoolStats stats;
  std::size_t cached = 0;
  {
    std::lock_guard lock(caches_mutex_);
    stats.acquires = retired_hits_;
    for (const auto& cache : caches_) {
      cached += cache->bytes();
      stats.acquires += cache->hits();
    }
  }
  {
    std::lock_guard lock(mutex_);
    stats.bytes_total = arena_.bytes_total();
    stats.bytes_in_use = arena_.bytes_out() - std::min(cached, arena_.bytes_out());
    stats.bytes_cached = cached;
    stats.acquires += shared_acquires_;
    stats.waits = waits_;
    stats.timeouts = timeouts_;
    stats.waiting = waiters_.load(std::memory_order_relaxed);
    stats.slabs = arena_.slabs().size();
  }
  const memory::QuarantineLedger::Totals quarantined = quarantine_.totals();
  stats.bytes_quarantined = quarantined.bytes;
  stats.buffers_quarantined = quarantined.count;
  stats.bytes_quarantined_by_reason = quarantined.bytes_by_reason;
  if (quarantined.count != 0) stats.quarantined_longest = clock_->now() - quarantined.oldest;
  stats.bytes_landing = landing_bytes_.load(std::memory_order_relaxed);
  stats.leases_live = leases_->live();
  stats.leases_ended_for_room = ended_for_room_.load(std::memory_order_relaxed);
  const PageCounts pages = kind_->page_counts();
  stats.bytes_huge_pages = pages.huge;
  stats.bytes_transparent_huge_pages = pages.transparent;
  return stats;
}

}  // namespace pawl::detail
