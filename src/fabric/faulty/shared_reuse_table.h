// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/faulty/reuse_oracle.h"
#include "pawl/result.h"

namespace pawl::fabric {

/// A ReuseOracle in memory that two processes share: a table of atomics, by remote key, of how
/// often the buffer of that key was exposed, and how many bytes it holds. Needs a fabric whose keys
/// are one per buffer (tcp, sim). Any thread.
class SharedReuseTable final : public ReuseOracle {
 public:
  static constexpr std::size_t kSlots = 65536;  ///< keys; more are "unknown"

  /// Anonymous memory behind a descriptor that a child process inherits.
  static Result<SharedReuseTable> create();
  /// The table behind a descriptor from `create`, which stays the caller's.
  static Result<SharedReuseTable> attach(int fd);

  SharedReuseTable(SharedReuseTable&& other) noexcept;
  SharedReuseTable& operator=(SharedReuseTable&&) = delete;
  ~SharedReuseTable() override;

  /// For a child process; closed with this object, and not on exec.
  [[nodiscard]] int fd() const { return fd_; }

  void on_expose(PeerGroup group, RemoteAddress remote, const std::byte* base) override;
  std::uint64_t on_read_posted(RemoteAddress remote) override;
  ReadVerdict on_read_executed(RemoteAddress remote, std::uint64_t posted) override;

  /// How often the buffer of this key was exposed; 0 = never, or the table is full.
  [[nodiscard]] std::uint64_t exposes(std::uint64_t key) const;

  /// Owner: what the buffer of a key that was exposed holds from now on.
  void set_content_bytes(std::uint64_t key, std::uint64_t bytes);
  /// 0 = it was never said.
  [[nodiscard]] std::uint64_t content_bytes(std::uint64_t key) const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> key;  // 0 = free
    std::atomic<std::uint64_t> exposes;
    std::atomic<std::uint64_t> content_bytes;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  SharedReuseTable(int fd, Slot* slots) : fd_(fd), slots_(slots) {}
  static Result<SharedReuseTable> map(int fd);
  /// The key's slot; with `make`, takes a free one if it has none.
  Slot* find(std::uint64_t key, bool make) const;

  int fd_ = -1;
  Slot* slots_ = nullptr;
};

}  // namespace pawl::fabric
