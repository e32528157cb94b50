// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "pawl/result.h"

namespace pawl {

class Block;
class MemoryKind;
class Pool;
class Region;

namespace detail {
class Extent;  // a run of registered bytes with its leases; src/memory/extent.h

/// A counted reference to an Extent. The last one gives the memory back to its pool or region.
class ExtentRef {
 public:
  ExtentRef() = default;
  explicit ExtentRef(Extent* adopted) noexcept : extent_(adopted) {}
  ExtentRef(const ExtentRef& other) noexcept;
  ExtentRef(ExtentRef&& other) noexcept : extent_(std::exchange(other.extent_, nullptr)) {}
  ExtentRef& operator=(ExtentRef other) noexcept {
    std::swap(extent_, other.extent_);
    return *this;
  }
  ~ExtentRef();

  [[nodiscard]] Extent* get() const noexcept { return extent_; }
  Extent* operator->() const noexcept { return extent_; }
  explicit operator bool() const noexcept { return extent_ != nullptr; }

 private:
  Extent* extent_ = nullptr;
};
}  // namespace detail

/// Registered memory that exactly one holder may write. It comes from a Pool (or from a pull that
/// was checked), goes back to it when dropped, from any thread, and cannot be lent: freeze it
/// first. Moved-from and default-constructed buffers are empty.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : extent_(std::move(other.extent_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    std::swap(extent_, taken.extent_);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~Buffer() = default;

  /// The bytes, writable. For memory without CPU access use copy_in (`host_accessible` tells).
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data_, size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  explicit operator bool() const noexcept { return static_cast<bool>(extent_); }

  /// Sets how many bytes from the start will be lent after freeze; at most `capacity()`, else
  /// invalid_argument and nothing changes. Bytes that the holder never wrote must not be lent:
  /// they may hold what an earlier use left there.
  Status resize(std::size_t bytes);

  /// Copies through the memory kind, for any kind of memory. Refused beyond `size()`.
  Status copy_in(std::size_t offset, std::span<const std::byte> from);
  Status copy_out(std::size_t offset, std::span<std::byte> to) const;
  [[nodiscard]] bool host_accessible() const noexcept;

  /// Gives up the right to write and makes the bytes lendable. No copy.
  [[nodiscard]] Block freeze() &&;
  Block freeze() & = delete;  // it takes the buffer: std::move(buffer).freeze()

 private:
  friend class Block;
  friend struct BufferAccess;
  Buffer(detail::ExtentRef extent, std::byte* data, std::size_t size)
      : extent_(std::move(extent)), data_(data), size_(size) {}

  detail::ExtentRef extent_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Registered memory that nobody may write: shared, cheap to copy and slice (a counted reference),
/// usable from any thread, lendable to any number of peers while it is read, cached, written to
/// disk or lent onwards. The memory goes back when the last Block and the last lease are gone.
class Block {
 public:
  Block() = default;
  Block(const Block&) noexcept = default;
  Block(Block&& other) noexcept
      : extent_(std::move(other.extent_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        use_(other.use_) {}
  Block& operator=(Block other) noexcept {
    std::swap(extent_, other.extent_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(use_, other.use_);
    return *this;
  }
  ~Block() = default;

  /// The bytes. Of a Region they cannot be checked here: after `Region::reuse`, or a pull into
  /// them, this is the memory of another use, perhaps being written. `copy_out` checks.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  explicit operator bool() const noexcept { return static_cast<bool>(extent_); }

  /// A part that keeps the whole memory alive. Out of range is a programming error and ends the
  /// process; check untrusted numbers against size() first.
  [[nodiscard]] Block slice(std::size_t offset, std::size_t bytes) const;
  /// Copies out through the memory kind, for any kind of memory. `stale` if they are a Region's
  /// bytes and `Region::reuse` or a pull took them before the copy was complete; `to` then has
  /// undefined content.
  Status copy_out(std::size_t offset, std::span<std::byte> to) const;
  [[nodiscard]] bool host_accessible() const noexcept;

  /// The writable Buffer back. failed_precondition if other Blocks or live leases still refer to
  /// the memory, if this is a slice from further in or part of a Region; then *this is unchanged.
  Result<Buffer> unique() &&;
  Result<Buffer> unique() & = delete;  // it takes the block: std::move(block).unique()

  /// Cuts the readers off: ends every lease of this memory (each reader's check says stale) and
  /// drops this reference. Other Blocks keep the memory. Dropping a Block without retire lets the
  /// readers finish.
  void retire() &&;
  void retire() & = delete;  // it takes the block: std::move(block).retire()

  /// Leases of this memory that are live now: a hint, it may change at once.
  [[nodiscard]] std::size_t live_leases() const noexcept;

 private:
  friend class Buffer;
  friend struct BufferAccess;
  Block(detail::ExtentRef extent, std::byte* data, std::size_t size, std::uint64_t use)
      : extent_(std::move(extent)), data_(data), size_(size), use_(use) {}

  detail::ExtentRef extent_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t use_ = 0;  // of a Region's bytes, the one that they were in when this was made
};

}  // namespace pawl
