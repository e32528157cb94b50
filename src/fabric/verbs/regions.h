// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

#include "fabric/verbs/device.h"
#include "fabric/work.h"
#include "memory/registrar.h"

namespace pawl::fabric::verbs {

/// Memory that the device knows. No registration ever gives a right to write from outside. Any
/// thread.
class Regions {
 public:
  explicit Regions(const Device& device) : device_(device) {}
  ~Regions();
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  Result<MemoryHandle> add(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use);
  Status remove(MemoryHandle handle);
  Result<RemoteAddress> expose(MemoryHandle handle, const std::byte* base, std::uint64_t length);

  /// What the device wants to see of local memory. A handle carries it, so that posting work looks
  /// nothing up; the device itself checks rights and bounds.
  static std::uint32_t local_key(MemoryHandle handle) {
    return static_cast<std::uint32_t>(handle.value);
  }
  /// The registration to bind a window in. failed_precondition if the bytes are not all in it, or
  /// it was not made for bulk: soft-RoCE takes a zero-based window beyond the end for good.
  [[nodiscard]] Result<ibv_mr*> to_bind(const LocalSegment& target) const;

  struct Counts {
    std::uint64_t registrations = 0, keys = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Region {
    ibv_mr* mr = nullptr;
    std::span<std::byte> memory;
    MemoryUse use = MemoryUse::bulk;
    bool exposed = false;

    [[nodiscard]] bool holds(const std::byte* base, std::uint64_t length) const;
  };

  const Device& device_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_ = 1;  // upper half of the next handle, never used again
};

}  // namespace pawl::fabric::verbs
