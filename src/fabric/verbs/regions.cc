// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/regions.h"

#include <cerrno>
#include <string>

#include "fabric/verbs/call_error.h"

namespace pawl::fabric::verbs {
namespace {

unsigned rights_of(MemoryUse use, bool windows) {
  const unsigned relaxed = IBV_ACCESS_RELAXED_ORDERING;
  const unsigned bind = windows ? unsigned{IBV_ACCESS_MW_BIND} : 0U;
  switch (use) {
    case MemoryUse::bulk:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | bind | relaxed;
    case MemoryUse::bulk_window_only:
      return IBV_ACCESS_LOCAL_WRITE | bind | relaxed;
    case MemoryUse::messages:
      return IBV_ACCESS_LOCAL_WRITE;
    case MemoryUse::generation_words:  // their order is what the guards rest on
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  }
  return 0;
}

}  // namespace

Regions::~Regions() {
  for (const auto& [handle, region] : regions_) {
    static_cast<void>(device_.calls().dereg_mr(region.mr));
  }
}

Result<MemoryHandle> Regions::add(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use) {
  const bool windows = device_.capabilities().windows != WindowSupport::none;
  if (use == MemoryUse::bulk_window_only && !windows) {
    return Status::with_detail(Code::unimplemented,
                               device_.name() +
                                   " has no memory windows, by which alone this "
                                   "memory would be readable");
  }
  const std::string object = std::to_string(memory.size()) + " bytes of kind " +
                             std::string(kind.name()) + " at " + device_.name();
  const unsigned rights = rights_of(use, windows);
  const int fd = kind.dma_buf_fd(memory);
  ibv_mr* mr = nullptr;
  if (fd >= 0) {
    const auto address = reinterpret_cast<std::uint64_t>(memory.data());
    mr = device_.calls().reg_dmabuf_mr(device_.pd(), 0, memory.size(), address, fd,
                                       static_cast<int>(rights));
    if (mr == nullptr) return call_error(Call::reg_dmabuf_mr, errno, object);
  } else if (kind.cpu_readable()) {
    mr = device_.calls().reg_mr(device_.pd(), memory.data(), memory.size(), rights);
    if (mr == nullptr) return call_error(Call::reg_mr, errno, object);
  } else {
    return Status::with_detail(
        Code::unimplemented,
        object + ": the CPU cannot read it and it has no dma-buf, so no device can reach it");
  }
  const std::lock_guard lock(mutex_);
  const MemoryHandle handle{(next_++ << 32) | mr->lkey};
  regions_.emplace(handle.value, Region{.mr = mr, .memory = memory, .use = use});
  return handle;
}

// The device may take milliseconds for a large region: nobody waits for the table meanwhile.
Status Regions::remove(MemoryHandle handle) {
  std::unique_lock lock(mutex_);
  const auto found = regions_.find(handle.value);
  if (found == regions_.end()) return Status(Code::not_found, "no such registration");
  const Region region = found->second;
  regions_.erase(found);
  lock.unlock();
  const int error = device_.calls().dereg_mr(region.mr);
  if (error == 0) return {};
  lock.lock();
  regions_.emplace(handle.value, region);
  // Devices say EBUSY or EINVAL while a window is bound; nothing was ended in either case.
  return call_error(Call::dereg_mr, error == EINVAL ? EBUSY : error,
                    std::to_string(region.memory.size()) + " bytes at " + device_.name());
}

Result<RemoteAddress> Regions::expose(MemoryHandle handle, const std::byte* base,
                                      std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle.value);
  if (found == regions_.end()) return Status(Code::not_found, "expose: no such registration");
  Region& region = found->second;
  if (region.use != MemoryUse::bulk && region.use != MemoryUse::generation_words) {
    return Status(Code::permission_denied, "expose: this memory was not registered to be READ");
  }
  if (length == 0 || !region.holds(base, length)) {
    return Status(Code::invalid_argument, "expose: the bytes are not all in the registration");
  }
  region.exposed = true;
  return RemoteAddress{.key = region.mr->rkey, .address = reinterpret_cast<std::uint64_t>(base)};
}

Result<ibv_mr*> Regions::to_bind(const LocalSegment& target) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(target.memory.value);
  if (found == regions_.end() || !found->second.holds(target.address, target.length)) {
    return Status(Code::failed_precondition, "bind: the bytes are not all in their registration");
  }
  const Region& region = found->second;
  if (region.use != MemoryUse::bulk && region.use != MemoryUse::bulk_window_only) {
    return Status(Code::failed_precondition, "bind: this memory was not registered to be lent");
  }
  return region.mr;
}

bool Regions::Region::holds(const std::byte* base, std::uint64_t length) const {
  const std::byte* const begin = memory.data();
  return base >= begin && length <= memory.size() &&
         static_cast<std::uint64_t>(base - begin) <= memory.size() - length;
}

Regions::Counts Regions::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts{.registrations = regions_.size()};
  for (const auto& [handle, region] : regions_) counts.keys += region.exposed ? 1 : 0;
  return counts;
}

}  // namespace pawl::fabric::verbs
