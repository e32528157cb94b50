// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "memory/registrar.h"
#include "pawl/buffer.h"
#include "pawl/region.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::memory {

/// Why memory is out of the pool's hands.
enum class QuarantineReason : std::uint8_t {
  none,
  read_in_flight,   ///< a READ into it has not completed
  endpoint_drain,   ///< its endpoint is in ERR and not yet destroyed
  revoke,           ///< a window over it is not yet proven dead
  cancel_unacked,   ///< hold_until_ack: the peer has not acknowledged the cancel
};
std::string_view quarantine_reason_name(QuarantineReason reason);

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
  ~Landing();

  /// A whole buffer; `bytes` of it (at most its capacity) will be landed into.
  static Result<Landing> into_buffer(Buffer buffer, std::size_t bytes);
  /// [offset, offset + bytes) of a region; ends no lease: failed_precondition if a live lease or
  /// another landing touches the range (reuse it first).
  static Result<Landing> into_region(const Region& region, std::size_t offset, std::size_t bytes);

  explicit operator bool() const { return static_cast<bool>(extent_); }
  [[nodiscard]] std::byte* address() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The registration for the device with this index; 0 if it is not registered there.
  [[nodiscard]] MemoryHandle handle(std::size_t device) const;

  /// The check said valid: `bytes` of the landed bytes (all, or those of a partial range) as
  /// read-only memory.
  [[nodiscard]] Block accept(std::size_t bytes) &&;
  /// The same as a writable Buffer; only for memory that came from a pool (else the Block's rules).
  [[nodiscard]] Result<Buffer> accept_buffer(std::size_t bytes) &&;
  /// The attempt failed and no READ is outstanding: the buffer, empty (size 0), to its holder; for
  /// a region an empty Buffer object and the range is free again.
  [[nodiscard]] Buffer discard() &&;

  /// Marks the memory as held for a reason, for stats and bounds; `none` ends it.
  void set_quarantine(QuarantineReason reason, TimePoint now);

 private:
  detail::ExtentRef extent_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  QuarantineReason reason_ = QuarantineReason::none;
};

}  // namespace pawl::memory
