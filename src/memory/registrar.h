// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pawl/memory_kind.h"
#include "pawl/result.h"

namespace pawl {

/// A local name of memory that one device has registered. Local only: it never travels and it is
/// not a remote key. 0 = not registered there.
struct MemoryHandle {
  std::uint64_t value = 0;

  explicit operator bool() const { return value != 0; }
  friend bool operator==(MemoryHandle, MemoryHandle) = default;
};

/// What a registration is for; a fabric gives exactly the rights that follow from it, and never
/// remote write or remote atomic.
enum class MemoryUse : std::uint8_t {
  bulk,              ///< lent and landed bytes: local write, remote read; relaxed ordering allowed
  bulk_window_only,  ///< the same without remote read: readable through memory windows only
  messages,          ///< send and receive slots: local write only
  generation_words,  ///< remote read, strict ordering
};

/// The side of a device that registers memory. The pool calls it for every slab and every device,
/// from the thread that grows the pool, never from a poller's turn.
class Registrar {
 public:
  virtual ~Registrar() = default;

  /// For messages and stats: "tcp", "verbs:mlx5_0".
  [[nodiscard]] virtual std::string_view registrar_name() const = 0;

  /// Registers `memory` as a whole. The memory stays the caller's and must outlive the
  /// registration. Any thread. Errors name the limit that was hit (locked memory, device) and the
  /// remedy; after an error nothing is registered. The same bytes registered at two devices, or
  /// twice at one, count twice against the limit of locked memory.
  virtual Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                               MemoryUse use) = 0;

  /// Ends a registration, and every remote key made from it. The caller has seen to it that no
  /// lease, landing or quarantine lies in the memory. failed_precondition, and nothing is ended,
  /// while a window is bound to it. Any thread.
  virtual Status deregister_memory(MemoryHandle handle) = 0;
};

}  // namespace pawl
