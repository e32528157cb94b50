// SPDX-License-Identifier: Apache-2.0
// Memory of the application's own, a KV cache say: lent, pulled into, and reused block by block.
// Prints:
//   ok: two blocks went away and came back to another place, without a copy at this end
//   ok: then the pages were unmapped
#include <sys/mman.h>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/node.h"
#include "pawl/region.h"

using namespace std::chrono_literals;

constexpr std::size_t kBlockBytes = 64 * 1024;
constexpr std::size_t kRegionBytes = 16 * kBlockBytes;

/// Keeps one block: what was put last.
class Keeper final : public demo::BlocksService {
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call& call, const demo::PutRequest&,
                                               pawl::Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));
    block_ = std::move(buffer).freeze();
    co_return demo::PutReply();
  }
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest&,
                                               pawl::Download& out) override {
    out.add(block_);
    co_return demo::GetReply();
  }

  pawl::Block block_;
};

pawl::Task<pawl::Status> use(demo::BlocksClient blocks, pawl::Region region) {
  // reuse() first ends the leases of these blocks: the one way to write to a region.
  examples::fill(co_await ok(region.reuse(0)), 'a');
  examples::fill(co_await ok(region.reuse(1)), 'b');
  auto two = co_await ok(region.block(0, 2));
  co_await ok(blocks.put(demo::PutRequest(), lend(two.slice(1024, 2 * kBlockBytes - 2048)),
                         {.deadline = 5s}));
  examples::fill(co_await ok(region.reuse(0, 2)), '-');  // at once: nobody reads it any more

  // And back, to another place: at the offset of block 8.
  const pawl::ByteRange where{8 * kBlockBytes, 2 * kBlockBytes};
  auto got = co_await ok(blocks.get(demo::GetRequest(), into(region, where), {.deadline = 5s}));
  auto part = co_await ok(got.part());
  const auto landed = co_await ok(region.block(8, 2));
  co_await ok(examples::check(
      part.size() == 2 * kBlockBytes - 2048 && part.bytes().data() == landed.bytes().data() &&
          examples::is_full_of(landed.bytes().first(kBlockBytes - 1024), 'a') &&
          examples::is_full_of(part.bytes().last(kBlockBytes - 1024), 'b'),
      "two blocks went away and came back to another place, without a copy at this end"));

  co_return co_await region.close();  // completes when nothing can touch the memory any more
}

int main() {
  Keeper keeper;
  pawl::Node keeper_node;
  pawl::Node node;
  auto server = keeper_node.serve("127.0.0.1:0", keeper);
  if (!server.ok()) return examples::exit_code(server.status());
  keeper_node.run_background();
  node.run_background();

  void* pages =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return 1;
  const std::span memory(static_cast<std::byte*>(pages), kRegionBytes);
  auto region = pawl::Region::create(node.pool(), memory, nullptr, {.block_bytes = kBlockBytes});
  if (!region.ok()) return examples::exit_code(region.status());
  demo::BlocksClient client(node.channel(server->address()));
  const auto status = node.block_on(use(client, *std::move(region)));
  if (!status.ok()) return examples::exit_code(status);
  return examples::exit_code(
      examples::check(munmap(pages, kRegionBytes) == 0, "then the pages were unmapped"));
}
