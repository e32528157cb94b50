// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "demo_corpus.h"
#include "pawl/buffer.h"
#include "pawl/result.h"
#include "pawl/task.h"
#include "pawl/workers.h"

namespace pawl::tools {

/// Fills buffers with files and compares them, away from the poller where that takes long. What is
/// worked on belongs to the work, so dropping a task is safe.
class Files {
 public:
  explicit Files(const Corpus& corpus);

  [[nodiscard]] const Corpus& corpus() const { return corpus_; }
  /// The buffer, which has the size of the file, with its content.
  Task<Result<Block>> fill(std::uint32_t file, Buffer buffer);
  /// How many bytes of the block are not the file's.
  Task<Result<std::uint64_t>> wrong_bytes(std::uint32_t file, Block block);

  /// From now on everything is done where it is asked for.
  void stop_workers() { workers_.reset(); }

 private:
  [[nodiscard]] bool aside(std::size_t bytes) const;

  const Corpus& corpus_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace pawl::tools
