// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

#include "base/list.h"
#include "memory/registrar.h"
#include "pawl/memory_kind.h"
#include "pawl/result.h"

namespace pawl::memory {

/// Devices (fabric objects) that one pool serves at the same time.
inline constexpr std::size_t kDevicesMax = 32;

/// Memory that is registered as a whole with every device: a slab, a region of the user's, message
/// slots, the generation words. Knows the registrations, does not own the memory.
class Piece : private ListNode<> {
 public:
  Piece(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use)
      : memory_(memory), kind_(kind), use_(use) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  [[nodiscard]] MemoryKind& kind() const { return kind_; }
  /// 0 if the device does not exist or refused this memory. Any thread.
  [[nodiscard]] MemoryHandle handle(std::size_t device) const {
    if (device >= kDevicesMax) return {};
    return MemoryHandle{handles_[device].load(std::memory_order_acquire)};
  }
  /// Its holder is gone and it will be removed: other memory may take its place. Any thread.
  void leave() { leaving_.store(true, std::memory_order_release); }

 private:
  friend class Devices;
  template <class T, class Tag>
  friend class pawl::List;

  std::span<std::byte> memory_;
  MemoryKind& kind_;
  MemoryUse use_;
  std::array<std::atomic<std::uint64_t>, kDevicesMax> handles_{};
  std::atomic<bool> leaving_{false};
};

/// The devices of a pool, and every piece with each of them. Any thread; calls may take as long as
/// registrations do and exclude each other, so that no piece misses a device.
class Devices {
 public:
  Devices() = default;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  ~Devices();

  /// Registers what exists now and what comes later. `bulk_use` is bulk or bulk_window_only. A
  /// piece that the device refuses has handle 0 there. resource_exhausted beyond kDevicesMax.
  Result<std::size_t> attach(Registrar& registrar, MemoryUse bulk_use);
  void detach(std::size_t device);

  /// Registers a piece with all devices. Errors, and then nothing is registered: the last device's
  /// if there are devices and none of them took it; failed_precondition if it has a byte in common
  /// with another piece that is not leaving.
  Status add(Piece& piece);
  void remove(Piece& piece);

  /// Why the last registration with this device failed; ok if none has.
  [[nodiscard]] Status last_error(std::size_t device) const;
  [[nodiscard]] std::size_t pieces() const;

 private:
  struct Device {
    Registrar* registrar = nullptr;
    MemoryUse bulk_use = MemoryUse::bulk;
    Status last_error;
  };
  [[nodiscard]] bool overlaps(const Piece& piece);
  bool register_with(std::size_t device, Piece& piece);
  void deregister_from(std::size_t device, Piece& piece);

  mutable std::mutex mutex_;
  std::array<Device, kDevicesMax> devices_;
  List<Piece> pieces_;
};

}  // namespace pawl::memory
