// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/socket/slot_table.h"
#include "fabric/tcp/key_index.h"
#include "fabric/work.h"
#include "memory/registrar.h"

namespace pawl::fabric::tcp {

/// The memory of a software NIC: registrations, remote keys, windows. Any thread, but Sampling,
/// which is the poller's. Whoever ends a key (deregistration, group, window) waits for at most the
/// one system call that is copying from lent memory at that moment; no socket is ever waited for.
class MemoryTable {
 public:
  /// Memory as the poller may touch it: through `kind` if that is set, else directly.
  struct Readable {
    const std::byte* address = nullptr;
    const MemoryKind* kind = nullptr;
  };

  // --- registrations -----------------------------------------------------------------------

  Result<MemoryHandle> add(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use);
  Status remove(MemoryHandle handle);
  /// True if the segment lies in its registration; then `kind` says how to touch it.
  bool covers(const LocalSegment& segment, MemoryKind*& kind) const;

  // --- keys --------------------------------------------------------------------------------

  Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                               std::uint64_t length);
  void close_group(PeerGroup group);

  // --- windows -----------------------------------------------------------------------------

  WindowId allocate_window();
  [[nodiscard]] std::uint64_t next_window_key(WindowId window) const;
  Status free_window(WindowId window);
  /// An accepted bind takes the next key; the window gets a new one for the bind after it. Until
  /// `bind` or `release` the window cannot be freed.
  bool take_window_key(WindowId window, std::uint64_t& key);
  /// An accepted invalidate: until `invalidate` or `release` the window cannot be freed.
  bool hold(WindowId window);
  /// An accepted bind or invalidate was flushed.
  void release(WindowId window);
  /// Executes an accepted bind: success or bind_error (bound already, or memory that may not be).
  CompletionStatus bind(WindowId window, std::uint64_t key, EndpointId endpoint,
                        const LocalSegment& target);
  /// Executes an invalidate: success or local_error (not bound through this endpoint).
  CompletionStatus invalidate(WindowId window, EndpointId endpoint);

  // --- READ service ------------------------------------------------------------------------

  /// While one exists, memory that it resolved stays registered: whoever ends a key waits for its
  /// end. It lives for one sendmsg. Poller only, one at a time.
  class Sampling {
   public:
    explicit Sampling(MemoryTable& table);
    ~Sampling();
    Sampling(const Sampling&) = delete;
    Sampling& operator=(const Sampling&) = delete;

    /// The memory behind [address, address + length) of a key, if the key is alive and opens all
    /// of it to this endpoint.
    bool resolve(EndpointId endpoint, PeerGroup group, std::uint64_t key, std::uint64_t address,
                 std::uint64_t length, Readable& out) const;

   private:
    MemoryTable& table_;
  };

  struct Counts {
    std::uint64_t registrations = 0, keys = 0, windows = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  static constexpr std::uint32_t kNone = KeyIndex::kNone;

  struct Registration {
    std::span<std::byte> memory;
    MemoryKind* kind = nullptr;
    MemoryUse use = MemoryUse::bulk;
    std::uint32_t first_key = kNone;  // of the list of its keys
  };
  struct Key {
    std::uint64_t key = 0;
    bool window = false;
    PeerGroup group;      // a region key's
    EndpointId endpoint;  // a window key's
    std::byte* base = nullptr;
    std::uint64_t length = 0;
    MemoryHandle memory;
    const MemoryKind* kind = nullptr;
    std::uint32_t next = kNone, previous = kNone;  // keys of the same registration
  };
  struct Window {
    std::uint64_t next_key = 0;
    std::uint64_t bound_key = 0;  // 0: not bound; it may have died with its registration
    EndpointId endpoint;
    std::uint32_t pending = 0;  // binds and invalidates accepted and not executed
  };
  using BufferName = std::pair<std::uint64_t, std::byte*>;  // group, base

  // All of these under mutex_.
  const Registration* registration_of(MemoryHandle memory, const std::byte* base,
                                      std::uint64_t length) const;
  std::uint64_t random_key();
  void insert_key(const Key& key);
  void erase_key(std::uint32_t place);
  void wait_for_sampling(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable sampled_;
  bool sampling_ = false;
  std::uint64_t samplings_ = 0;  // ended
  std::uint32_t waiting_ = 0;    // threads in wait_for_sampling

  SlotTable<Registration> registrations_;
  SlotTable<Window> windows_;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> free_keys_;
  KeyIndex index_;
  std::map<BufferName, std::uint64_t> region_keys_;  // ordered: a group's are neighbours
  std::array<std::uint64_t, 32> random_{};
  std::size_t random_left_ = 0;
};

}  // namespace pawl::fabric::tcp
