// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "demo_corpus.h"
#include "demo_reuse.h"
#include "pawl/buffer.h"

namespace pawl::tools {

/// Files in lent memory, a few for each size class of the pool, so that what is evicted is handed
/// out again at once. On one poller.
class Cache {
 public:
  /// `cut_off`: what is evicted is taken from its readers (Block::retire); else they may finish,
  /// and the memory is free later.
  Cache(const Corpus& corpus, bool cut_off);

  /// Empty if the file is not here.
  [[nodiscard]] Block find(std::uint32_t file) const;
  /// Evicts the oldest of this file's class until one more fits; the file itself, if it is here.
  void make_room(std::uint32_t file);
  void insert(std::uint32_t file, Block block, BufferUse use);

 private:
  struct Entry {
    std::uint32_t file;
    Block block;
    BufferUse use;
  };
  struct Class {
    std::size_t entries_max = 0;
    std::list<Entry> oldest_first;
  };
  [[nodiscard]] std::size_t class_of(std::uint32_t file) const;
  void evict(Class& c, std::list<Entry>::iterator entry) const;

  const Corpus& corpus_;
  const bool cut_off_;
  std::array<Class, Corpus::kSizeClasses> classes_;
};

}  // namespace pawl::tools
