// SPDX-License-Identifier: Apache-2.0
#include "bench_node.h"

#include <algorithm>
#include <utility>

#include "bench_pattern.h"

namespace pawl::tools {

namespace {

constexpr std::size_t kPoolBytesMin = std::size_t{256} << 20;

}  // namespace

NodeOptions bench_node_options(const SampleSettings& settings, const char* name, LogSink& log,
                               const char* fabric) {
  NodeOptions options;
  options.name = name;
  options.fabric = fabric;
  options.log = &log;
  options.spin = settings.spin ? Duration(std::chrono::hours(24)) : Duration{0};
  options.guard = settings.guard;
  options.allow_baselines = is_baseline(settings.guard);
  options.memory_windows =
      settings.guard == Guard::window || settings.guard == Guard::window_verify;
  if (settings.inline_off) options.inline_bytes_max = 0;
  if (settings.shape != Shape::echo) {
    // Twice what is lent and what lands: sizes are rounded up to powers of two.
    const std::size_t bytes = (kBenchBlocks + settings.outstanding) * settings.size * 2;
    options.pool.bytes_max = std::max(kPoolBytesMin, bytes * 4 / 3);
  }
  return options;
}

Result<std::vector<Block>> make_blocks(Node& node, std::uint64_t size) {
  std::vector<Block> blocks;
  for (std::uint32_t i = 0; i < kBenchBlocks; ++i) {
    Result<Buffer> buffer = node.block_on(node.pool().acquire(size));
    if (!buffer.ok()) return buffer.status();
    fill_pattern(i, buffer->bytes());
    blocks.push_back((*std::move(buffer)).freeze());
  }
  return blocks;
}

}  // namespace pawl::tools
