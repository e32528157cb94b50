// SPDX-License-Identifier: Apache-2.0
// The handler pulls bulk bytes out of the caller's memory; afterwards the memory is the caller's.
// Prints:
//   ok: the handler pulled 1 MiB
//   ok: each block is what was lent when it was put; two segments were joined
#include <map>
#include <string>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

constexpr std::size_t kBlockBytesMax = std::size_t{16} << 20;

class Blocks final : public demo::BlocksService {
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call& call, const demo::PutRequest& request,
                                               pawl::Upload& in) override {
    if (in.size() > kBlockBytesMax) {
      co_return pawl::Status(pawl::Code::too_large, "a block has at most 16 MiB");
    }
    auto buffer = co_await ok(in.pull(call.pool()));  // READ and check: from here on it is ours
    blocks_[request.key()] = std::move(buffer).freeze();
    demo::PutReply reply;
    reply.set_copies(1);
    co_return reply;
  }
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest& request,
                                               pawl::Download& out) override {
    const auto found = blocks_.find(request.key());
    if (found == blocks_.end()) co_return pawl::Status(pawl::Code::not_found, "no such block");
    out.add(found->second);
    co_return demo::GetReply();
  }

  std::map<std::string, pawl::Block> blocks_;  // one poller: no lock
};

pawl::Task<pawl::Status> store(demo::BlocksClient blocks, pawl::Pool& pool) {
  auto buffer = co_await ok(pool.acquire(1 << 20));
  examples::fill(buffer.bytes(), 'a');
  auto block = std::move(buffer).freeze();  // only what nobody can write can be lent

  demo::PutRequest put;
  put.set_key("one");
  auto stored = co_await ok(blocks.put(put, lend(block), {.deadline = 5s}));
  co_await ok(examples::check(stored.copies() == 1, "the handler pulled 1 MiB"));

  // The call is over, so nobody reads any more: the memory can be written again, at once.
  auto again = co_await ok(std::move(block).unique());
  examples::fill(again.bytes(), 'b');
  auto changed = std::move(again).freeze();
  put.set_key("two");
  co_await ok(blocks.put(put, lend(changed.slice(0, 4096), changed.slice(8192, 4096))));

  demo::GetRequest get;
  get.set_key("one");
  auto one = co_await ok(blocks.get(get, into(pool)));
  get.set_key("two");
  auto two = co_await ok(blocks.get(get, into(pool)));
  auto first = co_await ok(one.part());
  auto second = co_await ok(two.part());
  co_return examples::check(
      first.size() == 1 << 20 && examples::is_full_of(first.bytes(), 'a') &&
          second.size() == 8192 && examples::is_full_of(second.bytes(), 'b'),
      "each block is what was lent when it was put; two segments were joined");
}

int main() {
  Blocks blocks;
  pawl::Node keeper;
  pawl::Node writer;
  auto server = keeper.serve("127.0.0.1:0", blocks);
  if (!server.ok()) return examples::exit_code(server.status());
  keeper.run_background();
  writer.run_background();
  demo::BlocksClient client(writer.channel(server->address()));
  return examples::exit_code(writer.block_on(store(client, writer.pool())));
}
