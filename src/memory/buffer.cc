// SPDX-License-Identifier: Apache-2.0
#include "pawl/buffer.h"

#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/extent.h"
#include "memory/lease.h"
#include "memory/region_core.h"
#include "pawl/memory_kind.h"

namespace pawl {

namespace {

bool inside(std::size_t offset, std::size_t bytes, std::size_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace

// --- Buffer ---------------------------------------------------------------------------------

std::size_t Buffer::capacity() const noexcept { return extent_ ? extent_->bytes() : 0; }

Status Buffer::resize(std::size_t bytes) {
  if (bytes > capacity()) {
    return Status(Code::invalid_argument,
                  "a Buffer is resized beyond its capacity: acquire a larger one and copy");
  }
  size_ = bytes;
  return {};
}

Status Buffer::copy_in(std::size_t offset, std::span<const std::byte> from) {
  if (!inside(offset, from.size(), size_)) {
    return Status(Code::invalid_argument, "copy_in beyond the Buffer's size: resize it first");
  }
  if (!from.empty()) extent_->kind().copy_in(data_ + offset, from);
  return {};
}

Status Buffer::copy_out(std::size_t offset, std::span<std::byte> to) const {
  if (!inside(offset, to.size(), size_)) {
    return Status(Code::invalid_argument, "copy_out beyond the Buffer's size");
  }
  if (!to.empty()) extent_->kind().copy_out(to, data_ + offset);
  return {};
}

bool Buffer::host_accessible() const noexcept { return !extent_ || extent_->kind().cpu_readable(); }

Block Buffer::freeze() && {
  Block block(std::move(extent_), std::exchange(data_, nullptr), std::exchange(size_, 0), 0);
  return block;
}

// --- Block ----------------------------------------------------------------------------------

Block Block::slice(std::size_t offset, std::size_t bytes) const {
  PAWL_CHECK(
      inside(offset, bytes, size_),
      "a slice is outside of its Block: check numbers that come from elsewhere against size()");
  return Block(extent_, data_ + offset, bytes, use_);
}

Status Block::copy_out(std::size_t offset, std::span<std::byte> to) const {
  if (!inside(offset, to.size(), size_)) {
    return Status(Code::invalid_argument, "copy_out beyond the Block's size");
  }
  if (to.empty()) return {};
  if (const memory::RegionCore* region = extent_->region()) {
    return region->copy_out(to, data_ + offset, use_);
  }
  extent_->kind().copy_out(to, data_ + offset);
  return {};
}

bool Block::host_accessible() const noexcept { return !extent_ || extent_->kind().cpu_readable(); }

Result<Buffer> Block::unique() && {
  if (!extent_) return Status(Code::failed_precondition, "an empty Block holds no memory");
  if (!extent_->from_pool()) {
    return Status(Code::failed_precondition,
                  "a Block of a Region is written through Region::reuse, not as a Buffer");
  }
  if (data_ != extent_->base()) {
    return Status(Code::failed_precondition,
                  "a slice does not own the whole memory: take the Buffer from the Block it is of");
  }
  if (!extent_->sole()) {
    return Status(Code::failed_precondition,
                  "other Blocks or leases refer to the memory: drop the Blocks, and wait for the "
                  "leases or cut them off with retire, before it is written again");
  }
  return Buffer(std::move(extent_), std::exchange(data_, nullptr), std::exchange(size_, 0));
}

void Block::retire() && {
  if (extent_) extent_->withdraw_all(memory::LeaseEnd::withdrawn);
  *this = Block();
}

Status BufferAccess::present(const Block& block) {
  const memory::RegionCore* region = block.extent_ ? block.extent_->region() : nullptr;
  return region != nullptr ? region->present(block.bytes(), block.use_) : Status();
}

std::size_t Block::live_leases() const noexcept { return extent_ ? extent_->lent() : 0; }

}  // namespace pawl
