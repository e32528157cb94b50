// SPDX-License-Identifier: Apache-2.0
#include "memory/lease_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/extent.h"
#include "memory/pool_core.h"

namespace pawl::memory {

namespace {

constexpr std::int64_t kNotForRoom = INT64_MAX;

// slots_: who pops or pushes changes all of it in one compare-and-swap; the tag tells a list that
// looks the same from one that is.
constexpr unsigned kIndexBits = 18;
constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;  // slot + 1; 0: none
constexpr std::uint64_t kOneInUse = std::uint64_t{1} << kIndexBits;
constexpr std::uint64_t kInUseMask = kIndexMask << kIndexBits;
constexpr std::uint64_t kClosed = std::uint64_t{1} << (2 * kIndexBits);
constexpr std::uint64_t kOneTag = std::uint64_t{1} << (2 * kIndexBits + 1);
static_assert(LeaseTable::kLeasesMax < kIndexMask);

}  // namespace

LeaseTable::LeaseTable(detail::PoolCore& core, std::uint32_t leases_max, std::uint64_t seed)
    : core_(core), leases_max_(leases_max), random_(seed != 0 ? seed : random_u64()) {
  PAWL_CHECK(leases_max_ > 0, "the pool checked its options");
  Result<std::span<std::byte>> words = host_.allocate(leases_max_ * sizeof(GenerationWord));
  PAWL_CHECK(words.ok(),
             "the system refused the memory for the generation words of leases: lower "
             "PoolOptions::leases_max");
  words_ = *words;
  for (std::uint32_t i = 0; i < leases_max_; ++i) {
    new (words_.data() + i * sizeof(GenerationWord)) GenerationWord();
  }
  side_bytes_ = leases_max_ * (sizeof(Lease) + sizeof(std::atomic<std::int64_t>));
  // Zero pages that cost nothing until a slot is used.
  // NOLINTNEXTLINE(clang-analyzer-unix.StdCLibraryFunctions): leases_max_ is not 0
  void* side = ::mmap(nullptr, side_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PAWL_CHECK(side != MAP_FAILED,
             "the system refused address space for the book-keeping of leases: "
             "lower PoolOptions::leases_max");
  leases_ = static_cast<Lease*>(side);
  lent_at_ = reinterpret_cast<std::atomic<std::int64_t>*>(leases_ + leases_max_);
  piece_.emplace(words_, host_, MemoryUse::generation_words);
  const Status added = core_.devices().add(*piece_);
  PAWL_CHECK(added.ok(), "a pool has devices before it is made");
}

LeaseTable::~LeaseTable() {
  PAWL_CHECK((slots_.load(std::memory_order_acquire) & kInUseMask) == 0,
             "the table of leases is destroyed while leases exist");
  core_.devices().remove(*piece_);
  const std::uint32_t used = used_slots_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used; ++i) leases_[i].~Lease();
  ::munmap(static_cast<void*>(leases_), side_bytes_);
  host_.free(words_);
}

// --- slots ----------------------------------------------------------------------------------

Lease* LeaseTable::take_slot() {
  std::uint64_t slots = slots_.load(std::memory_order_acquire);
  for (;;) {
    if ((slots & kClosed) != 0) return nullptr;
    const std::uint64_t index = slots & kIndexMask;
    if (index == 0) return fresh_slot();
    Lease& lease = leases_[index - 1];
    const std::uint64_t next = lease.next_free_.load(std::memory_order_relaxed);
    const std::uint64_t popped = ((slots & ~kIndexMask) | next) + kOneInUse + kOneTag;
    if (slots_.compare_exchange_weak(slots, popped, std::memory_order_acquire,
                                     std::memory_order_acquire)) {
      return &lease;
    }
  }
}

Lease* LeaseTable::fresh_slot() {
  std::lock_guard lock(fresh_mutex_);
  const std::uint32_t slot = used_slots_.load(std::memory_order_relaxed);
  if (slot == leases_max_) return nullptr;
  std::uint64_t slots = slots_.load(std::memory_order_relaxed);
  do {
    if ((slots & kClosed) != 0) return nullptr;
  } while (!slots_.compare_exchange_weak(slots, slots + kOneInUse, std::memory_order_acquire,
                                         std::memory_order_relaxed));
  // An even start, far from the end of 64 bits: a generation is never used again.
  word(slot).start(random_.next() >> 2 << 1);
  new (&lent_at_[slot]) std::atomic<std::int64_t>(kNotForRoom);
  Lease* lease = new (&leases_[slot]) Lease(*this, slot, word(slot));
  used_slots_.store(slot + 1, std::memory_order_release);
  return lease;
}

// The lease left all lists, gave its memory back, and nobody holds it.
void LeaseTable::recycle(Lease& lease) {
  std::uint64_t slots = slots_.load(std::memory_order_relaxed);
  std::uint64_t pushed = 0;
  do {
    lease.next_free_.store(static_cast<std::uint32_t>(slots & kIndexMask),
                           std::memory_order_relaxed);
    pushed = ((slots & ~kIndexMask) | (lease.slot_ + 1)) - kOneInUse + kOneTag;
  } while (!slots_.compare_exchange_weak(slots, pushed, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if ((pushed & (kClosed | kInUseMask)) == kClosed) core_.part_is_over();  // `this` may be gone
}

bool LeaseTable::close() {
  return (slots_.fetch_or(kClosed, std::memory_order_acq_rel) & kInUseMask) == 0;
}

std::uint64_t LeaseTable::live() const {
  const std::uint32_t used = used_slots_.load(std::memory_order_acquire);
  std::uint64_t live = 0;
  for (std::uint32_t i = 0; i < used; ++i) live += word(i).load(std::memory_order_relaxed) & 1;
  return live;
}

// --- lend -----------------------------------------------------------------------------------

Status LeaseTable::check(std::span<const Block> segments, Guard guard) const {
  if (segments.empty()) {
    return Status(Code::invalid_argument, "nothing is lent: a lease has at least one segment");
  }
  if (segments.size() > kSegmentsMax) {
    return Status(
        Code::too_large,
        "a lease has at most 1024 segments (kSegmentsMax): gather them, or use more calls");
  }
  for (const Block& block : segments) {
    if (block.empty()) {
      return Status(Code::invalid_argument,
                    "an empty Block is lent: drop it from the list, or resize the Buffer to what "
                    "was written before freeze");
    }
    const detail::Extent& extent = *BufferAccess::reference(block).get();
    if (guard == Guard::verify_read && !extent.kind().host()) {
      return Status(Code::invalid_argument,
                    "verify_read is for host memory only (docs/guarantees.md): lend device memory "
                    "under verify or window");
    }
    if (&extent.core() != &core_) {
      return Status(Code::invalid_argument,
                    "the memory is of another pool, whose devices are not this node's: use the "
                    "node's pool, or copy");
    }
  }
  return {};
}

Result<LeaseHandle> LeaseTable::lend(std::span<const Block> segments, Guard guard,
                                     bool settles_later, LeaseListener* listener, TimePoint now) {
  constexpr int kRoomRoundsMax = 64;
  if (Status bad = check(segments, guard); !bad.ok()) return bad;
  const bool for_room =
      !settles_later && std::all_of(segments.begin(), segments.end(), [](const Block& block) {
        return BufferAccess::reference(block)->from_pool();
      });
  for (int round = 0;; ++round) {
    Lease* lease = take_slot();
    if (lease == nullptr) {
      return Status(
          Code::resource_exhausted,
          "all lease slots are in use: end calls sooner, or raise PoolOptions::leases_max");
    }
    lease->prepare(segments, guard, settles_later, listener, now);
    lent_at_[lease->slot_].store(for_room ? now.ns : kNotForRoom, std::memory_order_relaxed);
    Status refused = lease->list_segments();
    core_.serve_waiters();  // what was charged left more of the landing reserve
    if (refused.ok()) return LeaseHandle(lease);
    lease->refused();
    // What landed is lent within what may be lent: room is made for it as for a buffer.
    if (refused.code() != Code::resource_exhausted || round == kRoomRoundsMax ||
        !core_.make_room_to_lend()) {
      return refused;
    }
  }
}

// --- room -----------------------------------------------------------------------------------

std::size_t LeaseTable::end_oldest(std::size_t count, TimePoint before) {
  std::size_t ended = 0;
  Candidate candidate{};
  while (ended < count && next_candidate(before, candidate)) {
    if (gives_room(candidate, /*end=*/true)) ++ended;
  }
  return ended;
}

bool LeaseTable::next_candidate(TimePoint before, Candidate& out) {
  std::lock_guard lock(room_mutex_);
  if (candidates_.empty()) {
    const TimePoint now = core_.clock().now();
    if (now < search_again_) return false;
    find_candidates(before);
    if (candidates_.empty()) {
      // A search walks all leases: after one in vain not the next moment again.
      const Duration pause = std::chrono::microseconds(used_slots_.load(std::memory_order_relaxed));
      search_again_ = now + pause;
      return false;
    }
  }
  out = candidates_.back();
  candidates_.pop_back();
  return true;
}

// The oldest few leases whose end gives memory back.
void LeaseTable::find_candidates(TimePoint before) {
  constexpr std::size_t kCandidates = 64;
  const auto younger = [](const Candidate& a, const Candidate& b) { return a.lent_at > b.lent_at; };
  const std::uint32_t used = used_slots_.load(std::memory_order_acquire);
  std::vector<Candidate> all;
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint64_t generation = word(i).load(std::memory_order_acquire);
    const std::int64_t lent_at = lent_at_[i].load(std::memory_order_relaxed);
    if ((generation & 1) == 0 || lent_at > before.ns || lent_at == kNotForRoom) continue;
    all.push_back(Candidate{lent_at, i, generation});
  }
  std::make_heap(all.begin(), all.end(), younger);
  while (!all.empty() && candidates_.size() < kCandidates) {
    std::pop_heap(all.begin(), all.end(), younger);
    if (gives_room(all.back(), /*end=*/false)) candidates_.push_back(all.back());
    all.pop_back();
  }
  std::reverse(candidates_.begin(), candidates_.end());
}

// True if only leases hold the memory of this lease; with `end`, if this thread ended it. The hold
// keeps the lease in its slot while we look; what we see is of this lease if the word says so.
bool LeaseTable::gives_room(const Candidate& candidate, bool end) {
  Lease& lease = leases_[candidate.slot];
  if (!lease.try_hold()) return false;
  bool gives = lease.valid(candidate.generation);
  for (std::size_t i = 0; gives && i < lease.segment_count_; ++i) {
    // Pool memory (lent_at_ says so): the extent stays, whatever becomes of the lease.
    const detail::Extent& extent = *lease.segment(i).extent;
    gives = extent.references() <= extent.lent();
  }
  if (gives && end) gives = lease.end(LeaseEnd::room);
  lease.drop_hold();
  return gives;
}

}  // namespace pawl::memory
