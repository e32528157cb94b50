// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/work.h"
#include "pawl/buffer.h"

namespace pawl::rpc {

/// Registered memory in which outgoing messages are built: one per poller, shared by its sessions.
/// A slot belongs to the fabric from a successful post to the send's completion, and when that
/// comes is the peer's to say: so no session may have many of few. Of the upper half of the slots
/// each takes up to a quarter of what is free there; the lower half goes in portions of kShareMin,
/// the last quarter of all for messages only. Poller thread.
class MessageSlots {
 public:
  MessageSlots(Buffer memory, MemoryHandle handle, std::size_t slot_bytes)
      : memory_(std::move(memory)), handle_(handle), slot_bytes_(slot_bytes) {
    free_.reserve(count());
    for (std::size_t i = count(); i-- > 0;) free_.push_back(static_cast<std::uint32_t>(i));
  }

  [[nodiscard]] std::optional<std::uint32_t> take() {
    if (free_.empty()) return std::nullopt;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  /// For what the peer may keep for long: a quarter of the slots stay for messages.
  [[nodiscard]] std::optional<std::uint32_t> take_spare() {
    return free_.size() > count() / 4 ? take() : std::nullopt;
  }
  /// How many one session may have now.
  [[nodiscard]] std::size_t share() const {
    const std::size_t lower = count() / 2;
    return std::max(kShareMin, free_.size() > lower ? (free_.size() - lower) / 4 : 0);
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

  [[nodiscard]] std::span<std::byte> bytes(std::uint32_t slot) {
    return memory_.bytes().subspan(slot * slot_bytes_, slot_bytes_);
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::uint32_t slot) const {
    return memory_.bytes().subspan(slot * slot_bytes_, slot_bytes_);
  }
  [[nodiscard]] MemoryHandle handle() const { return handle_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] bool empty() const { return free_.empty(); }

  static constexpr std::size_t kShareMin = 2;

 private:
  [[nodiscard]] std::size_t count() const { return memory_.size() / slot_bytes_; }

  Buffer memory_;
  MemoryHandle handle_;
  std::size_t slot_bytes_;
  std::vector<std::uint32_t> free_;
};

}  // namespace pawl::rpc
