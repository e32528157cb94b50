// SPDX-License-Identifier: Apache-2.0
#include "pawl/region.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/mapped.h"
#include "memory/pool_core.h"
#include "memory/region_core.h"
#include "pawl/detail/ref.h"
#include "pawl/poller.h"

namespace pawl::memory {

RegionCore::RegionCore(detail::PoolCore& core, std::span<std::byte> memory,
                       std::shared_ptr<void> keep_alive, MemoryKind& kind, std::size_t block_bytes)
    : core_(core.shared_from_this()),
      keep_alive_(std::move(keep_alive)),
      piece_(memory, kind, MemoryUse::bulk),
      block_bytes_(block_bytes),
      uses_(memory.size() / block_bytes),
      narrow_(std::make_unique<List<LeaseSegment>[]>(kLists)),
      extent_(piece_, core, this) {}

RegionCore::~RegionCore() {
  PAWL_CHECK(landings_.empty(), "a region is destroyed while READs land");
}

Result<detail::ExtentRef> RegionCore::create(detail::PoolCore& core, std::span<std::byte> memory,
                                             std::shared_ptr<void> keep_alive,
                                             const RegionOptions& options) {
  if (memory.empty() || options.block_bytes == 0 || memory.size() % options.block_bytes != 0) {
    return Status::with_detail(
        Code::invalid_argument,
        "a region of " + std::to_string(memory.size()) + " bytes is not a number of blocks of " +
            std::to_string(options.block_bytes) +
            " bytes: choose RegionOptions::block_bytes so that it divides the size");
  }
  MemoryKind& kind = options.kind != nullptr ? *options.kind : core.host_kind();
  if (kind.host()) {
    if (Status bad = check_mapped(memory, read_maps()); !bad.ok()) return bad;
  }
  std::unique_ptr<RegionCore> region(
      new RegionCore(core, memory, std::move(keep_alive), kind, options.block_bytes));
  if (Status registered = core.devices().add(region->piece_); !registered.ok()) return registered;
  detail::Extent& extent = region.release()->extent_;
  extent.hand_out();
  return detail::ExtentRef(&extent);
}

// --- who may touch a block ------------------------------------------------------------------

Status RegionCore::in_range(std::size_t first, std::size_t count) const {
  if (count != 0 && first < blocks() && count <= blocks() - first) return {};
  return Status::with_detail(Code::invalid_argument,
                             "blocks " + std::to_string(first) + " + " + std::to_string(count) +
                                 " are not in a region of " + std::to_string(blocks()) + " blocks");
}

bool RegionCore::landing_in(std::span<const std::byte> range) const {
  const auto after =
      std::upper_bound(landings_.begin(), landings_.end(), range.data(),
                       [](const std::byte* at, const Range& r) { return at < r.end; });
  return after != landings_.end() && after->begin < range.data() + range.size();
}

RegionCore::Held RegionCore::held(std::span<const std::byte> range) {
  Held held = Held::no;
  for_each_list(range, [&](List<LeaseSegment>& list) {
    for (LeaseSegment& s : list) {
      if (held == Held::live || !overlap(s.bytes, range)) continue;
      if (s.lease->live() && s.lease->segment_valid(s.lease->generation(), s.index)) {
        held = Held::live;
      } else if (s.lease->settles_later()) {
        held = Held::unsettled;
      }
    }
  });
  return held;
}

namespace {

Status stale() {
  return Status(Code::stale,
                "this Block's bytes were taken by Region::reuse, or by a pull into them, after it "
                "was made: take it again with Region::block after writing");
}

}  // namespace

Status RegionCore::present(std::span<const std::byte> range, std::uint64_t use) const {
  if (range.empty()) return {};
  const std::size_t last = block_of(range.data() + range.size() - 1);
  return uses_.same(block_of(range.data()), last, use) ? Status() : stale();
}

// Another thread may call reuse while the bytes are copied; what it writes then may be in the copy.
Status RegionCore::copy_out(std::span<std::byte> to, const std::byte* from,
                            std::uint64_t use) const {
  if (to.empty()) return {};
  const std::size_t first = block_of(from);
  const std::size_t last = block_of(from + to.size() - 1);
  if (!uses_.same(first, last, use)) return stale();
  piece_.kind().copy_out(to, from);
  return uses_.same_after_copy(first, last, use) ? Status() : stale();
}

// Where a READ lands a new use began with it, so no Block of those bytes is of the present one.
Status RegionCore::admit(std::span<const std::byte> range, std::uint64_t use) const {
  if (closed_) return Status(Code::failed_precondition, "the region is closed");
  return present(range, use);
}

Result<Block> RegionCore::block(std::size_t first, std::size_t count) {
  if (Status bad = in_range(first, count); !bad.ok()) return bad;
  const std::span<std::byte> range = range_of(first, count);
  std::lock_guard lock(extent_.mutex());
  if (closed_) return Status(Code::failed_precondition, "the region is closed");
  if (landing_in(range)) {
    return Status(Code::failed_precondition,
                  "a READ lands in these blocks: ask again when the call that pulls them is over");
  }
  extent_.retain();
  return BufferAccess::block(detail::ExtentRef(&extent_), range.data(), range.size(), uses_.now());
}

// They are the writer's from the moment, in one critical section, in which nothing lends any of
// them and a new use begins: Blocks made before are stale from then on. While they are withdrawn,
// which is outside of it, another thread may make a Block and lend it: then once more.
Result<std::span<std::byte>> RegionCore::reuse(std::size_t first, std::size_t count) {
  if (Status bad = in_range(first, count); !bad.ok()) return bad;
  const std::span<std::byte> range = range_of(first, count);
  for (;;) {
    {
      std::lock_guard lock(extent_.mutex());
      if (landing_in(range)) {
        return Status(
            Code::failed_precondition,
            "a READ lands in these blocks: reuse them when the call that pulls them is over");
      }
      const Held held = this->held(range);
      begin_use(range);
      if (held == Held::no) return range;
      if (held == Held::unsettled) {
        return Status(
            Code::unavailable,
            "the leases of these blocks are ended, but a peer may still read them: it has "
            "not acknowledged that it reads no more (ChannelOptions::hold_until_ack), or "
            "the call that lends them under a window guard is not over: try again then");
      }
    }
    extent_.withdraw(range, LeaseEnd::withdrawn);
  }
}

// --- landing --------------------------------------------------------------------------------

Status RegionCore::begin_landing(std::span<const std::byte> range) {
  std::lock_guard lock(extent_.mutex());
  if (closed_) return Status(Code::failed_precondition, "the region is closed");
  if (landing_in(range)) {
    return Status(Code::failed_precondition,
                  "another READ lands in these bytes: choose others, or wait for its call to end");
  }
  if (held(range) != Held::no) {
    return Status(
        Code::failed_precondition,
        "these bytes are lent: take them back with Region::reuse before pulling into them");
  }
  const auto at =
      std::upper_bound(landings_.begin(), landings_.end(), range.data(),
                       [](const std::byte* data, const Range& r) { return data < r.begin; });
  landings_.insert(at, Range{range.data(), range.data() + range.size()});
  begin_use(range);
  return {};
}

void RegionCore::end_landing(std::span<const std::byte> range) {
  bool due = false;
  {
    std::lock_guard lock(extent_.mutex());
    const auto at = std::find_if(landings_.begin(), landings_.end(),
                                 [&](const Range& r) { return r.begin == range.data(); });
    PAWL_CHECK(at != landings_.end(), "a landing ends that did not begin");
    landings_.erase(at);
    due = quiet();
  }
  if (due) idle();
}

// --- the lists ------------------------------------------------------------------------------

List<LeaseSegment>& RegionCore::list_of(std::span<const std::byte> range) {
  const std::size_t first = block_of(range.data());
  return first == block_of(range.data() + range.size() - 1) ? narrow_[first % kLists] : wide_;
}

// --- the end --------------------------------------------------------------------------------

bool RegionCore::quiet() const { return closed_ && extent_.lent() == 0 && landings_.empty(); }

void RegionCore::close(RegionClose& close) {
  bool due = false;
  {
    std::lock_guard lock(extent_.mutex());
    closed_ = true;
    closes_.push_back(close);
    close.queued = true;
  }
  extent_.withdraw_all(LeaseEnd::withdrawn);
  {
    std::lock_guard lock(extent_.mutex());
    due = quiet();
  }
  if (due) idle();
}

void RegionCore::forget(RegionClose& close) {
  std::lock_guard lock(extent_.mutex());
  if (!close.queued) return;  // it is being told, from a list of the teller's
  close.queued = false;
  closes_.remove(close);
}

// Deregistration may take as long as registration did: off the pollers.
void RegionCore::idle() {
  {
    std::lock_guard lock(extent_.mutex());
    if (deregistering_ && !deregistered_) return;  // the job tells all
    deregistering_ = true;
  }
  extent_.retain();
  core_->run_aside([this] { deregister(); });
}

void RegionCore::deregister() {
  core_->devices().remove(piece_);
  List<RegionClose> told;
  {
    std::lock_guard lock(extent_.mutex());
    deregistered_ = true;
    while (RegionClose* close = closes_.pop_front()) {
      close->queued = false;
      close->keep();
      told.push_back(*close);
    }
  }
  while (RegionClose* close = told.pop_front()) close->closed();
  extent_.release();
}

void RegionCore::last_reference() {
  piece_.leave();
  core_->run_aside([this] {
    core_->devices().remove(piece_);
    delete this;
  });
}

namespace {

/// Told from the ready queue where that is possible: never inside the end of a lease or a landing
/// on a poller.
class Close final : public OperationState<Status>, public RegionClose {
 public:
  explicit Close(detail::ExtentRef extent) : extent_(std::move(extent)), wake_(*this) {}
  void keep() noexcept override { retain(); }
  void closed() override {
    Poller* const here = Poller::current();
    if (here != nullptr && (home() == nullptr || home() == here)) {
      here->defer(wake_);
    } else {
      tell();
    }
  }

 private:
  struct Wake : pawl::Work {  // an operation is privately one
    explicit Wake(Close& owner)
        : pawl::Work([](pawl::Work* self) { static_cast<Wake*>(self)->close.tell(); },
                     "region close"),
          close(owner) {}
    Close& close;
  };

  void tell() {
    complete(Status());
    release();
  }
  void on_begin() override {
    const Ref<Close> self(this);
    extent_->region()->close(*this);
  }
  void on_drop() noexcept override { extent_->region()->forget(*this); }

  const detail::ExtentRef extent_;
  Wake wake_;
};

}  // namespace

}  // namespace pawl::memory

namespace pawl {

Result<Region> Region::create(Pool& pool, std::span<std::byte> memory,
                              std::shared_ptr<void> keep_alive, const RegionOptions& options) {
  Result<detail::ExtentRef> extent =
      memory::RegionCore::create(pool.core(), memory, std::move(keep_alive), options);
  if (!extent.ok()) return extent.status();
  return Region(std::move(*extent));
}

std::size_t Region::block_bytes() const { return extent_ ? extent_->region()->block_bytes() : 0; }
std::size_t Region::blocks() const { return extent_ ? extent_->region()->blocks() : 0; }
std::size_t Region::size() const { return extent_ ? extent_->bytes() : 0; }

namespace {

constexpr const char* kNoRegion =
    "a default-constructed Region refers to no memory: Region::create";

}  // namespace

Result<Block> Region::block(std::size_t first, std::size_t count) const {
  if (!extent_) return Status(Code::failed_precondition, kNoRegion);
  return extent_->region()->block(first, count);
}

Result<std::span<std::byte>> Region::reuse(std::size_t first, std::size_t count) const {
  if (!extent_) return Status(Code::failed_precondition, kNoRegion);
  return extent_->region()->reuse(first, count);
}

Operation<Status> Region::close() {
  if (!extent_) return Operation<Status>::ready(Status(Code::failed_precondition, kNoRegion));
  return make_operation<memory::Close>(extent_);
}

}  // namespace pawl
