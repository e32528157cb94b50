// SPDX-License-Identifier: Apache-2.0
#include "memory/landing.h"

#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "memory/region_core.h"

namespace pawl::memory {

Landing::Landing(detail::ExtentRef extent, std::byte* data, std::size_t size)
    : extent_(std::move(extent)), data_(data), size_(size) {
  extent_->core().landing_bytes().fetch_add(held_bytes(), std::memory_order_relaxed);
}

Landing::Landing(Landing&& other) noexcept
    : extent_(std::move(other.extent_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      quarantine_(std::move(other.quarantine_)) {}

Landing& Landing::operator=(Landing&& other) noexcept {
  if (this != &other) {
    give_back();
    extent_ = std::move(other.extent_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    quarantine_ = std::move(other.quarantine_);
  }
  return *this;
}

Result<Landing> Landing::into_buffer(Buffer buffer, std::size_t bytes) {
  if (bytes == 0 || bytes > buffer.capacity()) {
    return Status(Code::invalid_argument,
                  "the buffer to pull into is smaller than what was lent: acquire a larger one, or "
                  "pull a range");
  }
  // A Buffer has no Blocks and no leases; frozen memory cannot come here.
  detail::ExtentRef extent = BufferAccess::take(std::move(buffer));
  PAWL_CHECK(extent->sole() && extent->lent() == 0, "a Buffer's memory is held by somebody else");
  std::byte* const data = extent->base();
  return Landing(std::move(extent), data, bytes);
}

Result<Landing> Landing::into_region(const Region& region, std::size_t offset, std::size_t bytes) {
  const detail::ExtentRef& extent = RegionAccess::reference(region);
  if (!extent)
    return Status(Code::failed_precondition, "a default-constructed Region has no memory");
  if (bytes == 0 || offset > extent->bytes() || bytes > extent->bytes() - offset) {
    return Status(Code::invalid_argument, "the range to pull into is not inside the region");
  }
  std::byte* const data = extent->base() + offset;
  if (Status refused = extent->core().admit_transfer(); !refused.ok()) return refused;
  if (Status refused = extent->region()->begin_landing({data, bytes}); !refused.ok())
    return refused;
  return Landing(extent, data, bytes);
}

void Landing::copy_in(std::size_t offset, std::span<const std::byte> from) {
  PAWL_CHECK(offset <= size_ && from.size() <= size_ - offset, "bytes land inside their landing");
  extent_->kind().copy_in(data_ + offset, from);
}

MemoryHandle Landing::handle(std::size_t device) const {
  return extent_ ? extent_->handle(device) : MemoryHandle{};
}

std::size_t Landing::held_bytes() const {
  if (!extent_) return 0;
  return extent_->region() != nullptr ? size_ : extent_->bytes();
}

bool Landing::from_pool() const { return extent_ && extent_->from_pool(); }

void Landing::give_back() {
  if (!extent_) return;
  quarantine_.clear();
  extent_->core().landing_bytes().fetch_sub(held_bytes(), std::memory_order_relaxed);
  if (memory::RegionCore* region = extent_->region()) region->end_landing({data_, size_});
  extent_ = {};
  data_ = nullptr;
  size_ = 0;
}

Block Landing::accept(std::size_t bytes) && {
  PAWL_CHECK(extent_ && bytes <= size_, "more bytes are accepted than were landed into");
  const RegionCore* region = extent_->region();
  Block block = BufferAccess::block(extent_, data_, bytes, region != nullptr ? region->use() : 0);
  give_back();
  return block;
}

Result<Buffer> Landing::accept_buffer(std::size_t bytes) && {
  PAWL_CHECK(extent_ && bytes <= size_, "more bytes are accepted than were landed into");
  if (extent_->region() != nullptr) {
    give_back();
    return Status(Code::failed_precondition,
                  "a range of a Region is returned as a Block; write it through Region::reuse");
  }
  Buffer buffer = BufferAccess::buffer(extent_, data_, bytes);
  give_back();
  return buffer;
}

Buffer Landing::discard() && {
  Buffer buffer;
  if (extent_ && extent_->region() == nullptr) buffer = BufferAccess::buffer(extent_, data_, 0);
  give_back();
  return buffer;
}

void Landing::set_quarantine(QuarantineReason reason, TimePoint now) {
  PAWL_CHECK(static_cast<bool>(extent_), "an empty Landing is put into quarantine");
  quarantine_.set(extent_->core().quarantine(), reason, held_bytes(), false, now);
}

}  // namespace pawl::memory
