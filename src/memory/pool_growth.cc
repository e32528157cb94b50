// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"

namespace pawl::detail {

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
  while (arena_.bytes_total() < options_.bytes_at_start) {
    growth_error_ = add_slab(growth_bytes_locked(options_.slab_bytes));
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

// The slab that would be made for `bytes`: the usual size, or what that buffer needs, or what is
// left; 0 if there is no room.
std::size_t PoolCore::growth_bytes_locked(std::size_t bytes) const {
  const std::size_t needed = std::max(kSlabBytesMin, std::bit_ceil(std::min(bytes, kSlabBytesMax)));
  const std::size_t left = options_.bytes_max - arena_.bytes_total();
  const std::size_t usual = std::max(needed, options_.slab_bytes);
  if (usual <= left) return usual;
  const std::size_t rest = left == 0 ? 0 : std::bit_floor(left);
  return rest >= needed ? rest : 0;
}

bool PoolCore::request_growth(std::size_t bytes) {
  std::size_t slab_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    if (growing_ || closing_ || clock_->now() < growth_retry_at_) return false;
    slab_bytes = growth_bytes_locked(bytes);
    if (slab_bytes == 0) return false;
    growing_ = true;
  }
  if (options_.grow_inline) {
    grow(slab_bytes);
    return true;
  }
  helper_.run([this, slab_bytes] { grow(slab_bytes); });
  return false;
}

void PoolCore::grow(std::size_t slab_bytes) {
  Status done = add_slab(slab_bytes);
  const std::shared_ptr<PoolCore> alive = weak_from_this().lock();
  if (alive == nullptr) return;  // being destroyed: nobody waits
  bool hopeless = false;
  Status why;
  {
    const std::size_t cached = cached_bytes();
    std::lock_guard lock(mutex_);
    growing_ = false;
    if (!done.ok()) growth_retry_at_ = clock_->now() + kGrowthRetry;
    growth_error_ = std::move(done);
    hopeless = !growth_error_.ok() && arena_.bytes_out() <= cached;
    why = growth_error_;
  }
  serve();
  // Nothing is in use that could come back: those who wait are told why, instead of when.
  if (hopeless) fail_waiters(why);
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
  if (options_.grow_inline) {
    job();
  } else {
    helper_.run(std::move(job));
  }
}

// --- message slots --------------------------------------------------------------------------

namespace {

struct MessagePiece {
  MessagePiece(std::span<std::byte> memory, MemoryKind& kind, std::shared_ptr<PoolCore> pool)
      : core(std::move(pool)), piece(memory, kind, MemoryUse::messages) {}
  MessagePiece(const MessagePiece&) = delete;
  MessagePiece& operator=(const MessagePiece&) = delete;
  ~MessagePiece() {
    core->devices().remove(piece);
    piece.kind().free(piece.memory());
  }

  const std::shared_ptr<PoolCore> core;
  memory::Piece piece;
};

/// Memory of its own for message slots. Keeps the pool.
struct Messages final : MessagePiece, Extent {
  Messages(std::span<std::byte> memory, MemoryKind& kind, std::shared_ptr<PoolCore> pool)
      : MessagePiece(memory, kind, std::move(pool)),
        Extent(MessagePiece::piece, *MessagePiece::core, nullptr) {}
};

}  // namespace

Result<Buffer> PoolCore::allocate_messages(std::size_t bytes) {
  if (!misuse_.ok()) return misuse_;
  if (bytes == 0) return Status(Code::invalid_argument, "message slots of 0 bytes");
  const std::size_t rounded = (bytes + memory::kFrameBytes - 1) & ~(memory::kFrameBytes - 1);
  Result<std::span<std::byte>> memory = host_.allocate(rounded);
  if (!memory.ok()) return memory.status();
  auto messages = std::make_unique<Messages>(memory->first(rounded), host_, shared_from_this());
  if (Status registered = devices_.add(messages->piece); !registered.ok()) return registered;
  Extent& extent = *messages.release();
  extent.hand_out();
  return BufferAccess::buffer(ExtentRef(&extent), extent.base(), bytes);
}

void PoolCore::free_messages(Extent& extent) {
  run_aside([messages = static_cast<Messages*>(&extent)] { delete messages; });
}

// --- the end --------------------------------------------------------------------------------

void PoolCore::close() {
  self_ = shared_from_this();
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  fail_waiters(Status(Code::cancelled, "the pool was destroyed while its memory was waited for"));
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
  stats.bytes_landing = landing_bytes_.load(std::memory_order_relaxed);
  stats.leases_live = leases_->live();
  stats.leases_ended_for_room = ended_for_room_.load(std::memory_order_relaxed);
  const PageCounts pages = kind_->page_counts();
  stats.bytes_huge_pages = pages.huge;
  stats.bytes_transparent_huge_pages = pages.transparent;
  return stats;
}

}  // namespace pawl::detail
