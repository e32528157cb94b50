// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "demo_memory.h"
#include "pawl/result.h"

namespace pawl::tools {

/// The files that the demo stores and fetches, in memory that all its processes share: made or read
/// once, only read afterwards. Any thread.
class Corpus {
 public:
  static constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;
  static constexpr std::size_t kTotalBytesMax = std::size_t{1} << 30;

  /// 54 files of 1 byte to 64 MiB, log-uniform in size, about 200 MB; the same for a seed.
  static Result<Corpus> make(std::uint64_t seed);
  /// The regular files below `dir`, in the order of their names, without empty ones; of files above
  /// kFileBytesMax the beginning, and no more than kTotalBytesMax in all. not_found if that leaves
  /// fewer than two.
  static Result<Corpus> read(const std::string& dir);
  /// What the parent process made.
  static Result<Corpus> attach(int fd);

  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] std::size_t size() const { return files_.size(); }
  [[nodiscard]] std::span<const std::byte> file(std::size_t i) const { return files_[i]; }
  [[nodiscard]] std::uint64_t total_bytes() const;

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
