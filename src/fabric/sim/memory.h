// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "fabric/random_delay.h"
#include "fabric/work.h"
#include "memory/registrar.h"
#include "pawl/memory_kind.h"
#include "pawl/result.h"

namespace pawl::fabric {

/// The memory side of one simulated device: registrations, region keys, windows, and the only
/// place where payload bytes are touched (through MemoryKind). Any thread.
class SimMemory {
 public:
  /// Keys and handles start at places drawn from `seed`, so that those of a restarted node or of
  /// another node open nothing by chance.
  /// Without `exact_keys` a key opens its whole registration to anybody, as on verbs.
  SimMemory(std::uint64_t seed, bool exact_keys);

  Result<MemoryHandle> add(std::span<std::byte> memory, MemoryKind& kind, MemoryUse use);
  /// Fails while a window is bound there, as ibv_dereg_mr does.
  Status remove(MemoryHandle handle);

  Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                               std::uint64_t length);
  void close_group(PeerGroup group);

  WindowId add_window();
  Status remove_window(WindowId window);
  [[nodiscard]] bool window_exists(WindowId window) const;
  [[nodiscard]] std::uint64_t next_window_key(WindowId window) const;
  /// The key for a bind that was just posted; each post takes one, in order.
  std::uint64_t take_window_key(WindowId window);
  /// A bind or invalidate that names the window was posted; until as many were done, or flushed,
  /// the window cannot be removed.
  void window_work_posted(WindowId window);
  void window_work_done(WindowId window);
  CompletionStatus bind(WindowId window, std::uint64_t key, EndpointId endpoint,
                        const LocalSegment& target);
  CompletionStatus invalidate(WindowId window, EndpointId endpoint);

  /// True if every segment lies in its registration.
  [[nodiscard]] bool covers(std::span<const LocalSegment> segments) const;
  /// Copies out of, or into, the segments from `offset` on; false if a segment is not covered.
  bool gather(std::span<const LocalSegment> segments, std::span<std::byte> to) const;
  bool scatter(std::span<const LocalSegment> segments, std::uint64_t offset,
               std::span<const std::byte> from);

  /// Where a READ comes from: keys open nothing to others.
  struct Reader {
    PeerGroup group;
    EndpointId endpoint;
  };
  /// True if `reader` may READ these bytes now.
  [[nodiscard]] bool readable(const Reader& reader, RemoteAddress from, std::uint64_t bytes) const;
  /// Copies them if so.
  bool read(const Reader& reader, RemoteAddress from, std::span<std::byte> to) const;
  /// True for keys of windows, living or not.
  [[nodiscard]] static bool is_window_key(std::uint64_t key);

  struct Counts {
    std::uint64_t keys = 0, windows = 0, registrations = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Registration {
    std::span<std::byte> memory;
    MemoryKind* kind = nullptr;
    MemoryUse use = MemoryUse::bulk;
    std::uint32_t windows_bound = 0;
  };
  struct Key {
    PeerGroup group;
    std::uint64_t registration = 0;
    std::byte* base = nullptr;
    std::uint64_t length = 0;
    std::uint64_t address = 0;  // what the reader is told; neither 0 nor a pointer on purpose
  };
  struct Window {
    std::uint8_t binds = 0;  // wraps, as the 8 key bits of a device do: retire after 255
    bool bound = false;
    std::uint32_t work_posted = 0;
    std::uint64_t key = 0;
    EndpointId endpoint;
    LocalSegment target;
  };
  struct Place {
    const Registration* registration = nullptr;
    std::byte* address = nullptr;
  };

  // All with mutex_ held.
  const Registration* covering(const LocalSegment& segment) const;
  Place find(const Reader& reader, RemoteAddress from, std::uint64_t bytes) const;
  void unbind(Window& window);
  std::uint64_t window_key(WindowId id, std::uint8_t binds) const;

  const bool exact_keys_;
  mutable std::mutex mutex_;
  Random random_;
  std::uint64_t next_handle_;
  std::uint64_t next_key_index_;
  std::map<std::uint64_t, Registration> registrations_;
  std::map<std::uint64_t, Key> keys_;
  std::map<std::pair<std::uint64_t, std::byte*>, std::uint64_t> key_of_buffer_;  // group, base
  std::map<std::uint64_t, Window> windows_;
};

}  // namespace pawl::fabric
