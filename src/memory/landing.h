// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/quarantine.h"
#include "memory/registrar.h"
#include "pawl/buffer.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/region.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::memory {

/// The landing memory of one segment of a transfer. The record of the transfer's READs owns it
/// from before the first post until the last completion; no API gives access to the bytes before
/// `accept`. Memory is landing or lent, never both. Move-only; dropping one that is not accepted
/// gives the memory back as if `discard` had been called, so it may only be dropped when no READ
/// into it is outstanding. Any thread.
class Landing {
 public:
  Landing() = default;
  Landing(Landing&& other) noexcept;
  Landing& operator=(Landing&& other) noexcept;
  ~Landing() { give_back(); }

  /// A whole buffer; `bytes` of it (at most its capacity, else invalid_argument and the buffer goes
  /// back) will be landed into. Who calls has asked `PoolCore::admit_transfer` while the buffer
  /// could still be returned.
  static Result<Landing> into_buffer(Buffer buffer, std::size_t bytes);
  /// [offset, offset + bytes) of a region; ends no lease: failed_precondition if a live lease or
  /// another landing touches the range (reuse it first).
  static Result<Landing> into_region(const Region& region, std::size_t offset, std::size_t bytes);

  explicit operator bool() const { return static_cast<bool>(extent_); }
  [[nodiscard]] std::byte* address() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// For bytes that came inside a message instead of by READ.
  void copy_in(std::size_t offset, std::span<const std::byte> from);
  /// The registration for the device with this index; 0 if it is not registered there.
  [[nodiscard]] MemoryHandle handle(std::size_t device) const;
  /// Bytes that are held for it: the buffer's capacity, or the range's size.
  [[nodiscard]] std::size_t held_bytes() const;
  /// Memory of a pool (a Buffer can be had), not a range of a region.
  [[nodiscard]] bool from_pool() const;

  /// The check said valid: `bytes` of the landed bytes (all, or those of a partial range) as
  /// read-only memory.
  [[nodiscard]] Block accept(std::size_t bytes) &&;
  /// The same as a writable Buffer; only for memory that came from a pool (else the Block's rules).
  [[nodiscard]] Result<Buffer> accept_buffer(std::size_t bytes) &&;
  /// The attempt failed and no READ is outstanding: the buffer, empty (size 0), to its holder; for
  /// a region an empty Buffer object and the range is free again.
  [[nodiscard]] Buffer discard() &&;

  /// Shows the memory as held for a reason, in stats and bounds; `none` ends it, as do accept and
  /// discard. `PoolCore::quarantine_full` says when a bound is reached.
  void set_quarantine(QuarantineReason reason, TimePoint now);

 private:
  Landing(detail::ExtentRef extent, std::byte* data, std::size_t size);
  void give_back();

  detail::ExtentRef extent_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Quarantined quarantine_;
};

using Landings = detail::FrameVector<Landing>;

}  // namespace pawl::memory
