// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/list.h"
#include "memory/block_uses.h"
#include "memory/extent.h"
#include "memory/lease.h"
#include "memory/piece.h"
#include "pawl/operation.h"
#include "pawl/region.h"

namespace pawl::memory {

class RegionClose;

/// What is behind a Region: one extent over memory of the user's, and for each of its blocks the
/// use that it is in. `reuse` and a landing begin a new one: Blocks of earlier uses are neither
/// lent nor copied any more. Lives as long as references to the extent; keeps the pool. Guarded by
/// the extent's mutex.
class RegionCore {
 public:
  static Result<detail::ExtentRef> create(detail::PoolCore& core, std::span<std::byte> memory,
                                          std::shared_ptr<void> keep_alive,
                                          const RegionOptions& options);
  RegionCore(const RegionCore&) = delete;
  RegionCore& operator=(const RegionCore&) = delete;
  ~RegionCore();

  [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::size_t bytes() const { return piece_.memory().size(); }
  [[nodiscard]] std::size_t blocks() const { return bytes() / block_bytes_; }

  /// The blocks that `range` lies in.
  [[nodiscard]] std::span<std::byte> blocks_of(std::span<const std::byte> range) const {
    const std::size_t first = block_of(range.data());
    return range_of(first, block_of(range.data() + range.size() - 1) - first + 1);
  }

  Result<Block> block(std::size_t first, std::size_t count);
  Result<std::span<std::byte>> reuse(std::size_t first, std::size_t count);

  /// [data, …) starts to be landed into: no live lease, no unsettled one, no other landing may
  /// touch it. A new use of its blocks begins.
  Status begin_landing(std::span<const std::byte> range);
  void end_landing(std::span<const std::byte> range);

  /// What a Block that is made now carries; for one of bytes that a landing still holds.
  [[nodiscard]] std::uint64_t use() const { return uses_.now(); }
  /// Is a Block of these bytes, made at `use`, of their present use? Else `stale`. Any thread,
  /// without the mutex.
  [[nodiscard]] Status present(std::span<const std::byte> range, std::uint64_t use) const;
  /// Copies bytes of that use, or answers `stale`: then `to` has undefined content. Any thread.
  Status copy_out(std::span<std::byte> to, const std::byte* from, std::uint64_t use) const;

  /// Ends all leases, refuses what is new; `close` is completed when nothing is in flight.
  void close(RegionClose& close);
  void forget(RegionClose& close);

  // --- for Extent ---------------------------------------------------------------------------

  /// May a Block of these bytes, made at `use`, be lent? With the mutex held.
  Status admit(std::span<const std::byte> range, std::uint64_t use) const;
  /// The list for a segment: one of many for segments in one block, so that reusing a block walks
  /// few of the region's leases; the extent's own for wider ones.
  List<LeaseSegment>& list_of(std::span<const std::byte> range);
  template <class Fn>
  void for_each_list(std::span<const std::byte> range, Fn&& fn) {
    fn(wide_);
    const std::size_t first = block_of(range.data());
    const std::size_t last = block_of(range.data() + range.size() - 1);
    if (last - first >= kLists) {
      for (std::size_t i = 0; i < kLists; ++i) fn(narrow_[i]);
    } else {
      for (std::size_t i = first; i <= last; ++i) fn(narrow_[i % kLists]);
    }
  }
  /// Closed, and nothing in flight. With the mutex held.
  [[nodiscard]] bool quiet() const;
  /// After it became quiet, with no lock held; the caller holds a reference.
  void idle();
  void last_reference();

 private:
  static constexpr std::size_t kLists = 256;
  struct Range {
    const std::byte* begin;
    const std::byte* end;
  };

  RegionCore(detail::PoolCore& core, std::span<std::byte> memory, std::shared_ptr<void> keep_alive,
             MemoryKind& kind, std::size_t block_bytes);

  [[nodiscard]] std::size_t block_of(const std::byte* at) const {
    return static_cast<std::size_t>(at - piece_.memory().data()) / block_bytes_;
  }
  [[nodiscard]] std::span<std::byte> range_of(std::size_t first, std::size_t count) const {
    return piece_.memory().subspan(first * block_bytes_, count * block_bytes_);
  }
  [[nodiscard]] Status in_range(std::size_t first, std::size_t count) const;
  void begin_use(std::span<const std::byte> range) {
    uses_.advance(block_of(range.data()), block_of(range.data() + range.size() - 1));
  }
  [[nodiscard]] bool landing_in(std::span<const std::byte> range) const;
  enum class Held : std::uint8_t { no, live, unsettled };
  Held held(std::span<const std::byte> range);
  void deregister();

  const std::shared_ptr<detail::PoolCore> core_;
  std::shared_ptr<void> keep_alive_;
  Piece piece_;
  const std::size_t block_bytes_;
  BlockUses uses_;
  std::vector<Range> landings_;  // by address; they do not overlap
  List<LeaseSegment> wide_;
  std::unique_ptr<List<LeaseSegment>[]> narrow_;
  bool closed_ = false;
  bool deregistering_ = false;
  bool deregistered_ = false;
  List<RegionClose> closes_;
  detail::Extent extent_;  // last: it is what others hold
};

/// A Region::close that waits. Guarded by the extent's mutex while queued; whoever unlinks it owes
/// it `closed`.
class RegionClose : public ListNode<> {
 public:
  virtual void keep() noexcept = 0;  // it was unlinked and will be told
  virtual void closed() = 0;         // with no lock held

  bool queued = false;  // in the region's list; the extent's mutex

 protected:
  ~RegionClose() = default;
};

}  // namespace pawl::memory
