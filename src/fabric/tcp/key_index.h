// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pawl::fabric::tcp {

/// From remote keys to the places of their records: open addressing, so that binding a window
/// allocates nothing once the table has grown to its size. Keys are random, hence their own hash.
/// Key 0 is not a key.
class KeyIndex {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  [[nodiscard]] std::uint32_t find(std::uint64_t key) const {
    if (key == 0 || entries_.empty()) return kNone;
    for (std::size_t at = key & mask();; at = (at + 1) & mask()) {
      if (entries_[at].key == key) return entries_[at].place;
      if (entries_[at].key == 0) return kNone;
    }
  }

  /// `key` is not 0 and not in the table.
  void insert(std::uint64_t key, std::uint32_t place) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    put({key, place});
    ++size_;
  }

  void erase(std::uint64_t key) {
    if (find(key) == kNone) return;
    std::size_t hole = key & mask();
    while (entries_[hole].key != key) hole = (hole + 1) & mask();
    // Moves back what would no longer be found behind the hole.
    for (std::size_t at = (hole + 1) & mask(); entries_[at].key != 0; at = (at + 1) & mask()) {
      const std::size_t home = entries_[at].key & mask();
      if (((at - home) & mask()) < ((at - hole) & mask())) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = {};
    --size_;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t place = 0;
  };

  [[nodiscard]] std::size_t mask() const { return entries_.size() - 1; }
  void put(Entry entry) {
    std::size_t at = entry.key & mask();
    while (entries_[at].key != 0) at = (at + 1) & mask();
    entries_[at] = entry;
  }
  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.key != 0) put(entry);
    }
  }

  std::vector<Entry> entries_;  // a power of two of them, at most half in use
  std::size_t size_ = 0;
};

}  // namespace pawl::fabric::tcp
