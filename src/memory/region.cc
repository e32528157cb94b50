// SPDX-License-Identifier: Apache-2.0
#include "pawl/region.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "memory/region_core.h"
#include "pawl/detail/ref.h"

namespace pawl::memory {

RegionCore::RegionCore(detail::PoolCore& core, std::span<std::byte> memory,
                       std::shared_ptr<void> keep_alive, MemoryKind& kind, std::size_t block_bytes)
    : core_(core.shared_from_this()),
      keep_alive_(std::move(keep_alive)),
      piece_(memory, kind, MemoryUse::bulk),
      block_bytes_(block_bytes),
      readable_((memory.size() / block_bytes + 63) / 64),
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

void RegionCore::set_readable(std::span<const std::byte> range, bool readable) {
  const std::size_t last = block_of(range.data() + range.size() - 1);
  for (std::size_t i = block_of(range.data()); i <= last; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << (i % 64);
    readable_[i / 64] = readable ? readable_[i / 64] | bit : readable_[i / 64] & ~bit;
  }
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

Status RegionCore::admit(std::span<const std::byte> range) const {
  if (closed_) return Status(Code::failed_precondition, "the region is closed");
  if (landing_in(range)) {
    return Status(Code::failed_precondition,
                  "a READ lands in these bytes: lend them when the call that pulls them is over");
  }
  const std::size_t last = block_of(range.data() + range.size() - 1);
  for (std::size_t i = block_of(range.data()); i <= last; ++i) {
    if (!readable(i)) {
      return Status(Code::failed_precondition,
                    "these bytes were taken back by Region::reuse: call Region::block again when "
                    "they are written, and lend what it returns");
    }
  }
  return {};
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
  set_readable(range, true);
  extent_.retain();
  return BufferAccess::block(detail::ExtentRef(&extent_), range.data(), range.size());
}

// Withdrawn from every lease first, and only then the writer's. In between a new lease may come:
// then the blocks are withdrawn again; after they are the writer's nothing lends them.
Result<std::span<std::byte>> RegionCore::reuse(std::size_t first, std::size_t count) {
  if (Status bad = in_range(first, count); !bad.ok()) return bad;
  const std::span<std::byte> range = range_of(first, count);
  {
    std::lock_guard lock(extent_.mutex());
    if (landing_in(range)) {
      return Status(
          Code::failed_precondition,
          "a READ lands in these blocks: reuse them when the call that pulls them is over");
    }
    set_readable(range, false);  // nothing lends them from here on
  }
  extent_.withdraw(range, LeaseEnd::withdrawn);
  std::lock_guard lock(extent_.mutex());
  if (held(range) == Held::unsettled) {
    return Status(Code::unavailable,
                  "the leases of these blocks are ended, but a window over them is not yet proven "
                  "revoked: try again in a moment");
  }
  if (readable(first) || landing_in(range)) {
    return Status(Code::failed_precondition,
                  "another thread used Region::block or a READ on these blocks at the same time");
  }
  return range;
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
  set_readable(range, false);
  return {};
}

void RegionCore::end_landing(std::span<const std::byte> range, bool landed) {
  bool due = false;
  {
    std::lock_guard lock(extent_.mutex());
    const auto at = std::find_if(landings_.begin(), landings_.end(),
                                 [&](const Range& r) { return r.begin == range.data(); });
    PAWL_CHECK(at != landings_.end(), "a landing ends that did not begin");
    landings_.erase(at);
    if (landed) set_readable(range, true);
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
  close.unlink();
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
      close->keep();
      told.push_back(*close);
    }
  }
  while (RegionClose* close = told.pop_front()) close->closed();
  extent_.release();
}

void RegionCore::last_reference() {
  core_->run_aside([this] {
    core_->devices().remove(piece_);
    delete this;
  });
}

namespace {

class Close final : public OperationState<Status>, public RegionClose {
 public:
  explicit Close(detail::ExtentRef extent) : extent_(std::move(extent)) {}
  void keep() noexcept override { retain(); }
  void closed() override {
    complete(Status());
    release();
  }

 private:
  void on_begin() override {
    const Ref<Close> self(this);
    extent_->region()->close(*this);
  }
  void on_drop() noexcept override { extent_->region()->forget(*this); }

  const detail::ExtentRef extent_;
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
