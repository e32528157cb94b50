// SPDX-License-Identifier: Apache-2.0
#include "memory/extent.h"

#include <mutex>
#include <utility>

#include "base/check.h"
#include "memory/lease.h"
#include "memory/pool_core.h"
#include "memory/region_core.h"
#include "pawl/buffer.h"

namespace pawl::detail {

using memory::Lease;
using memory::LeaseEnd;
using memory::LeaseSegment;

ExtentRef::ExtentRef(const ExtentRef& other) noexcept : extent_(other.extent_) {
  if (extent_ != nullptr) extent_->retain();
}

ExtentRef::~ExtentRef() {
  if (extent_ != nullptr) extent_->release();
}

std::span<std::byte> Extent::whole(std::span<const std::byte> range) const {
  if (region_ != nullptr) return region_->blocks_of(range);
  return {base_, bytes_};
}

Extent::~Extent() { PAWL_CHECK(segments_.empty(), "memory is destroyed while it is lent"); }

void Extent::go_home() noexcept {
  switch (home_) {
    case Home::pool:
      core_.give_back(*this);
      return;
    case Home::region:
      region_->last_reference();
      return;
    case Home::messages:
      core_.free_messages(*this);
      return;
  }
}

Status Extent::admit(std::span<const std::byte> range, std::uint64_t use) {
  if (region_ != nullptr) return region_->admit(range, use);
  if (home_ == Home::messages) {
    return Status(Code::failed_precondition, "message slots cannot be lent: copy into a Buffer");
  }
  if (!charged_) {
    if (Status refused = core_.charge(bytes_); !refused.ok()) return refused;
    charged_ = true;
  }
  return {};
}

void Extent::list(LeaseSegment& segment) {
  segment.place.store(LeaseSegment::Place::listed, std::memory_order_relaxed);
  List<LeaseSegment>& list = region_ != nullptr ? region_->list_of(segment.bytes) : segments_;
  list.push_back(segment);
  lent_.store(lent_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

bool Extent::unlist(LeaseSegment& segment) {
  segment.unlink();
  lent_.store(lent_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return region_ != nullptr && region_->quiet();
}

void Extent::region_idle() { region_->idle(); }

// Two phases. With the mutex held only words change, and segments leave this extent's lists; a
// lease that somebody else is ending has its word changed already, or this thread's
// compare-and-swap comes first. What takes other locks or calls out (finishing a lease, dropping
// references) follows after the mutex; until then the won compare-and-swap or a hold keeps each
// lease in its slot.
void Extent::withdraw(std::span<const std::byte> range, LeaseEnd reason) {
  LeaseSegment* withdrawn = nullptr;
  {
    std::lock_guard lock(mutex_);
    auto take = [&](List<LeaseSegment>& list) {
      for (LeaseSegment* s = list.front(); s != nullptr;) {
        LeaseSegment* next = list.next(*s);
        if (memory::overlap(s->bytes, range) && s->lease->withdraw(*s)) {
          s->next_withdrawn = std::exchange(withdrawn, s);
        }
        s = next;
      }
    };
    if (region_ != nullptr) {
      region_->for_each_list(range, take);
    } else {
      take(segments_);
    }
  }
  while (withdrawn != nullptr) {
    LeaseSegment& s = *std::exchange(withdrawn, withdrawn->next_withdrawn);
    s.lease->withdrawn(s, reason);
  }
}

}  // namespace pawl::detail
