// SPDX-License-Identifier: Apache-2.0
#include "demo_corpus.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/random.h"

namespace pawl::tools {

namespace {

constexpr std::size_t kFiles = 54;
static_assert(Corpus::class_bytes(Corpus::kSizeClasses - 1) == Corpus::kFileBytesMax);
constexpr std::size_t kCompareBytes = 4096;

// The memory begins with the number of files and their sizes; each file starts at a multiple of 64.
std::size_t header_bytes(std::size_t files) { return (1 + files) * sizeof(std::uint64_t); }
std::size_t aligned(std::size_t at) { return (at + 63) / 64 * 64; }

void fill(std::span<std::byte> out, Random& random) {
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const std::uint64_t value = random.next();
    std::memcpy(out.data() + at, &value, 8);
  }
  const std::uint64_t value = random.next();
  std::memcpy(out.data() + at, &value, out.size() - at);
}

}  // namespace

Corpus::Corpus(SharedMemory memory) : memory_(std::move(memory)) {
  const std::byte* const base = memory_.bytes().data();
  std::uint64_t count = 0;
  std::memcpy(&count, base, sizeof count);
  std::size_t at = header_bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, base + header_bytes(i), sizeof bytes);
    at = aligned(at);
    files_.emplace_back(base + at, bytes);
    at += bytes;
  }
}

Result<Corpus> Corpus::lay_out(const std::vector<std::uint64_t>& sizes) {
  std::size_t bytes = header_bytes(sizes.size());
  for (const std::uint64_t size : sizes) bytes = aligned(bytes) + size;
  Result<SharedMemory> memory = SharedMemory::create("pawl-corpus", bytes);
  if (!memory.ok()) return memory.status();
  const std::uint64_t count = sizes.size();
  std::byte* const base = memory->bytes().data();
  std::memcpy(base, &count, sizeof count);
  std::memcpy(base + header_bytes(0), sizes.data(), count * sizeof(std::uint64_t));
  return Corpus(*std::move(memory));
}

std::span<std::byte> Corpus::writable(std::size_t i) {
  const std::size_t at = static_cast<std::size_t>(files_[i].data() - memory_.bytes().data());
  return memory_.bytes().subspan(at, files_[i].size());
}

Result<Corpus> Corpus::make(std::uint64_t seed) {
  Random random(seed);
  // One size from each of as many equal steps of the logarithm: the total hardly depends on the
  // seed.
  const double span = std::log(static_cast<double>(kFileBytesMax));
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < kFiles; ++i) {
    const double step = (static_cast<double>(i) + random.unit()) / static_cast<double>(kFiles);
    sizes.push_back(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::exp(step * span)), 1,
                                              kFileBytesMax));
  }
  Result<Corpus> corpus = lay_out(sizes);
  if (!corpus.ok()) return corpus;
  for (std::size_t i = 0; i < kFiles; ++i) fill(corpus->writable(i), random);
  return corpus;
}

Result<Corpus> Corpus::read(const Folder& folder) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(folder.files.size());
  for (const Folder::File& file : folder.files) sizes.push_back(file.bytes);
  Result<Corpus> corpus = lay_out(sizes);
  if (!corpus.ok()) return corpus;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::ifstream in(folder.files[i].path, std::ios::binary);
    const std::span<std::byte> to = corpus->writable(i);
    if (!in.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()))) {
      return Status::with_detail(Code::not_found, "cannot read " + folder.files[i].path +
                                                      " any more: leave the folder as it is");
    }
  }
  if (!corpus->tells_files_apart()) {
    return Status::with_detail(
        Code::not_found,
        "in " + folder.dir +
            " no two files that differ have a similar size (up to 4 KiB, 8 KiB, 16 KiB, ...), so "
            "that no wrong byte could be told from a right one: add files of similar size");
  }
  return corpus;
}

Result<Corpus> Corpus::attach(int fd) {
  Result<SharedMemory> memory = SharedMemory::attach(fd);
  if (!memory.ok()) return memory.status();
  return Corpus(*std::move(memory));
}

std::uint64_t Corpus::total_bytes() const {
  std::uint64_t total = 0;
  for (const std::span<const std::byte> file : files_) total += file.size();
  return total;
}

std::size_t Corpus::size_class(std::size_t bytes) {
  const std::size_t units = (std::max<std::size_t>(bytes, 1) - 1) / Pool::kBufferBytesMin;
  return static_cast<std::size_t>(std::bit_width(units));
}

bool Corpus::tells_files_apart(std::size_t bytes_max) const {
  std::array<std::span<const std::byte>, kSizeClasses> first;
  for (const std::span<const std::byte> file : files_) {
    if (file.size() > bytes_max) continue;
    std::span<const std::byte>& other = first[size_class(file.size())];
    const std::size_t common = std::min(file.size(), other.size());
    if (common > 0 && std::memcmp(file.data(), other.data(), common) != 0) return true;
    if (other.empty()) other = file;
  }
  return false;
}

std::uint64_t Corpus::wrong_bytes(std::size_t i, std::span<const std::byte> bytes) const {
  const std::span<const std::byte> right = files_[i];
  const std::size_t common = std::min(right.size(), bytes.size());
  std::uint64_t wrong = std::max(right.size(), bytes.size()) - common;
  for (std::size_t at = 0; at < common; at += kCompareBytes) {
    const std::size_t part = std::min(kCompareBytes, common - at);
    if (std::memcmp(right.data() + at, bytes.data() + at, part) == 0) continue;
    for (std::size_t k = at; k < at + part; ++k) wrong += right[k] != bytes[k] ? 1 : 0;
  }
  return wrong;
}

}  // namespace pawl::tools
