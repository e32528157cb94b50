// SPDX-License-Identifier: Apache-2.0
#include "demo_cache.h"

#include <algorithm>
#include <utility>

#include "demo_hold.h"

namespace pawl::tools {

namespace {

/// Of a class: large ones, which come more rarely, are evicted as fast as small ones, and all
/// together leave the pool room for what is under way.
std::size_t entries_max(std::size_t size_class) {
  const std::size_t bytes = Corpus::class_bytes(size_class);
  if (bytes <= kLargeFileBytes) return 16;
  return bytes <= std::size_t{16} << 20 ? 2 : 1;
}

}  // namespace

Cache::Cache(const Corpus& corpus, bool cut_off) : corpus_(corpus), cut_off_(cut_off) {
  std::array<std::size_t, Corpus::kSizeClasses> files{};
  for (std::uint32_t i = 0; i < corpus.size(); ++i) ++files[class_of(i)];
  for (std::size_t c = 0; c < files.size(); ++c) {
    // Of a few files not all, so that there are evictions.
    classes_[c].entries_max = std::clamp<std::size_t>(files[c], 2, entries_max(c) + 1) - 1;
  }
}

std::size_t Cache::class_of(std::uint32_t file) const {
  return Corpus::size_class(corpus_.file(file).size());
}

Block Cache::find(std::uint32_t file) const {
  for (const Entry& entry : classes_[class_of(file)].oldest_first) {
    if (entry.file == file) return entry.block;
  }
  return {};
}

void Cache::make_room(std::uint32_t file) {
  Class& c = classes_[class_of(file)];
  const auto same = std::find_if(c.oldest_first.begin(), c.oldest_first.end(),
                                 [file](const Entry& entry) { return entry.file == file; });
  if (same != c.oldest_first.end()) evict(c, same);
  while (c.oldest_first.size() >= c.entries_max) evict(c, c.oldest_first.begin());
}

void Cache::insert(std::uint32_t file, Block block, BufferUse use) {
  make_room(file);
  classes_[class_of(file)].oldest_first.push_back({file, std::move(block), std::move(use)});
}

void Cache::evict(Class& c, std::list<Entry>::iterator entry) const {
  if (cut_off_) {
    entry->use = BufferUse();
    std::move(entry->block).retire();
  } else {
    entry->use.leave_to_readers();
  }
  c.oldest_first.erase(entry);
}

}  // namespace pawl::tools
