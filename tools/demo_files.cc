// SPDX-License-Identifier: Apache-2.0
#include "demo_files.h"

#include <algorithm>
#include <utility>

#include "demo_hold.h"

namespace pawl::tools {

Files::Files(const Corpus& corpus)
    : corpus_(corpus), workers_(std::make_unique<Workers>(WorkersOptions{.threads = 1})) {}

bool Files::aside(std::size_t bytes) const { return bytes > kLargeFileBytes && workers_; }

Task<Result<Block>> Files::fill(std::uint32_t file, Buffer buffer) {
  auto work = [from = corpus_.file(file), buffer = std::move(buffer)]() mutable -> Result<Block> {
    std::copy(from.begin(), from.end(), buffer.bytes().begin());
    return std::move(buffer).freeze();
  };
  if (!aside(corpus_.file(file).size())) co_return work();
  co_return co_await run_on(*workers_, std::move(work));
}

Task<Result<std::uint64_t>> Files::wrong_bytes(std::uint32_t file, Block block) {
  auto work = [this, file, block = std::move(block)]() -> Result<std::uint64_t> {
    return corpus_.wrong_bytes(file, block.bytes());
  };
  if (!aside(corpus_.file(file).size())) co_return work();
  co_return co_await run_on(*workers_, std::move(work));
}

}  // namespace pawl::tools
