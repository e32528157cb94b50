// SPDX-License-Identifier: Apache-2.0
#include "demo_reuse.h"

namespace pawl::tools {

namespace {
constexpr std::size_t kKeysMax = 8;  // of the connections before, READs are over
}

void ReuseBook::step(Memory& memory, const std::byte* base) {
  for (const fabric::RemoteAddress& key : memory.keys) table_.on_expose({}, key, base);
}

void ReuseBook::use_begins(const std::byte* base, std::size_t bytes) {
  Memory& memory = memory_[base];
  memory.bytes = bytes;
  for (const fabric::RemoteAddress& key : memory.keys) table_.set_content_bytes(key.key, bytes);
  if (memory.in_use) step(memory, base);
  memory.in_use = true;
  step(memory, base);
}

void ReuseBook::use_ends(const std::byte* base) {
  Memory& memory = memory_[base];
  memory.in_use = false;
  step(memory, base);
}

void ReuseBook::on_expose(fabric::PeerGroup group, fabric::RemoteAddress remote,
                          const std::byte* base) {
  if (table_.exposes(remote.key) != 0) return;
  table_.on_expose(group, remote, base);  // from now on it has a number
  Memory& memory = memory_[base];
  table_.set_content_bytes(remote.key, memory.bytes);
  if (memory.keys.size() == kKeysMax) memory.keys.erase(memory.keys.begin());
  memory.keys.push_back(remote);
}

std::uint64_t ReuseBook::on_read_posted(fabric::RemoteAddress remote) {
  return table_.exposes(remote.key);
}

fabric::ReadVerdict ReuseBook::on_read_executed(fabric::RemoteAddress remote,
                                                std::uint64_t posted) {
  const std::uint64_t now = table_.exposes(remote.key);
  if (now == 0 || posted == 0) return fabric::ReadVerdict::unknown;
  if (now == posted) return fabric::ReadVerdict::same;
  add(board_.late_reads);
  if (now - posted < 2) return fabric::ReadVerdict::same;
  add(board_.late_reads_reused);
  return fabric::ReadVerdict::reused;
}

}  // namespace pawl::tools
