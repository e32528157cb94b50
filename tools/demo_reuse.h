// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "demo_board.h"
#include "fabric/faulty/reuse_oracle.h"
#include "fabric/faulty/shared_reuse_table.h"

namespace pawl::tools {

/// Knows of each READ that the fabric held whether it is late when it is executed, and whether its
/// buffer was given other content by then. The owner's process says when a use of a buffer begins
/// (before it is filled) and ends (its request is over, it is evicted); each is one step of the
/// buffer's number in a table that both processes share. So a READ that finds the number of its
/// posting is in time, one step further it is late, two or more steps further it reads the bytes of
/// another use. The table also says how long the file in a buffer is. On the poller of its node.
class ReuseBook final : public fabric::ReuseOracle {
 public:
  ReuseBook(fabric::SharedReuseTable& table, ProcessBoard& board) : table_(table), board_(board) {}

  /// For a file of so many bytes.
  void use_begins(const std::byte* base, std::size_t bytes);
  void use_ends(const std::byte* base);
  /// Reader: the bytes of the file that this READ is a part of; 0 if nothing is known.
  [[nodiscard]] std::size_t file_bytes(fabric::RemoteAddress remote) const {
    return table_.content_bytes(remote.key);
  }

  void on_expose(fabric::PeerGroup group, fabric::RemoteAddress remote,
                 const std::byte* base) override;
  std::uint64_t on_read_posted(fabric::RemoteAddress remote) override;
  fabric::ReadVerdict on_read_executed(fabric::RemoteAddress remote, std::uint64_t posted) override;

 private:
  struct Memory {
    bool in_use = false;
    std::size_t bytes = 0;                    // of the last use
    std::vector<fabric::RemoteAddress> keys;  // one for each connection it was lent over
  };
  void step(Memory& memory, const std::byte* base);

  fabric::SharedReuseTable& table_;
  ProcessBoard& board_;
  std::unordered_map<const std::byte*, Memory> memory_;
};

/// One use of a buffer, from before it is filled until this goes.
class BufferUse {
 public:
  BufferUse() = default;
  BufferUse(ReuseBook& book, std::span<const std::byte> buffer)
      : book_(&book), base_(buffer.data()) {
    book.use_begins(base_, buffer.size());
  }
  BufferUse(BufferUse&& other) noexcept
      : book_(std::exchange(other.book_, nullptr)), base_(other.base_) {}
  BufferUse& operator=(BufferUse&& other) noexcept {
    std::swap(book_, other.book_);
    std::swap(base_, other.base_);
    return *this;
  }
  ~BufferUse() {
    if (book_ != nullptr) book_->use_ends(base_);
  }
  /// It lasts until the next use begins: the readers may finish.
  void leave_to_readers() { book_ = nullptr; }

 private:
  ReuseBook* book_ = nullptr;
  const std::byte* base_ = nullptr;
};

}  // namespace pawl::tools
