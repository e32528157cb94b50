// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "demo_folder.h"
#include "demo_memory.h"
#include "pawl/pool.h"
#include "pawl/result.h"

namespace pawl::tools {

/// The files that the demo stores and fetches, in memory that all its processes share: made or read
/// once, only read afterwards. Any thread.
class Corpus {
 public:
  static constexpr std::size_t kFileBytesMax = Folder::kFileBytesMax;
  static constexpr std::size_t kSizeClasses = 15;

  /// 54 files of 1 byte to 64 MiB, log-uniform in size, about 200 MB; the same for a seed.
  static Result<Corpus> make(std::uint64_t seed);
  /// These files. not_found if one cannot be read any more, or if no two of a size class differ:
  /// whatever a late READ brought would be right.
  static Result<Corpus> read(const Folder& folder);
  /// What the parent process made.
  static Result<Corpus> attach(int fd);

  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] std::size_t size() const { return files_.size(); }
  [[nodiscard]] std::span<const std::byte> file(std::size_t i) const { return files_[i]; }
  [[nodiscard]] std::uint64_t total_bytes() const;

  /// Files of a class use the same buffers of a pool.
  static std::size_t size_class(std::size_t bytes);
  /// The size of the buffers of a class.
  static constexpr std::size_t class_bytes(std::size_t size_class) {
    return Pool::kBufferBytesMin << size_class;
  }
  /// Whether a buffer of a file, of those up to `bytes_max`, can come to hold something else.
  [[nodiscard]] bool tells_files_apart(std::size_t bytes_max = kFileBytesMax) const;

  /// How many of `bytes` differ from file i at the same offset.
  [[nodiscard]] std::uint64_t wrong_bytes(std::size_t i, std::span<const std::byte> bytes) const;

 private:
  explicit Corpus(SharedMemory memory);
  static Result<Corpus> lay_out(const std::vector<std::uint64_t>& sizes);
  [[nodiscard]] std::span<std::byte> writable(std::size_t i);

  SharedMemory memory_;
  std::vector<std::span<const std::byte>> files_;
};

}  // namespace pawl::tools
