// SPDX-License-Identifier: Apache-2.0
// A cache of shared blocks: any number of readers at once without a copy; eviction cuts them off.
// Prints:
//   ok: a was evicted
//   ok: two readers had the same block at the same time
#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/node.h"
#include "pawl/when.h"

using namespace std::chrono_literals;

constexpr std::size_t kBlocksMax = 2;

class Cache final : public demo::BlocksService {
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest& request,
                                               pawl::Download& out) override {
    const auto found = std::ranges::find(blocks_, request.key(), &Entry::first);
    if (found == blocks_.end()) co_return pawl::Status(pawl::Code::not_found, "not in the cache");
    out.add(found->second);  // a reference: the readers share the memory with the cache
    co_return demo::GetReply();
  }
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call& call, const demo::PutRequest& request,
                                               pawl::Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));
    if (blocks_.size() == kBlocksMax) {
      // Who still reads the evicted block is refused by its check, so the memory is free at once.
      // A plain pop_back would let the readers finish first.
      std::move(blocks_.back().second).retire();
      blocks_.pop_back();
    }
    blocks_.emplace_front(request.key(), std::move(buffer).freeze());
    co_return demo::PutReply();
  }

  using Entry = std::pair<std::string, pawl::Block>;
  std::deque<Entry> blocks_;  // the newest first
};

pawl::Task<pawl::Status> use(demo::BlocksClient blocks, pawl::Pool& pool) {
  for (const char name : {'a', 'b', 'c'}) {
    auto buffer = co_await ok(pool.acquire(1 << 20));
    examples::fill(buffer.bytes(), name);
    demo::PutRequest put;
    put.set_key(std::string(1, name));
    co_await ok(blocks.put(put, lend(std::move(buffer).freeze())));
  }
  demo::GetRequest get;
  get.set_key("a");
  auto evicted = co_await blocks.get(get, into(pool));
  co_await ok(examples::check(evicted.status().code() == pawl::Code::not_found, "a was evicted"));

  get.set_key("c");
  auto [first, second] = co_await when_all(blocks.get(get, into(pool), {.deadline = 5s}),
                                           blocks.get(get, into(pool), {.deadline = 5s}));
  auto one = co_await ok(std::move(first));
  auto two = co_await ok(std::move(second));
  auto one_block = co_await ok(one.part());
  auto two_block = co_await ok(two.part());
  co_return examples::check(
      examples::is_full_of(one_block.bytes(), 'c') && examples::is_full_of(two_block.bytes(), 'c'),
      "two readers had the same block at the same time");
}

int main() {
  Cache cache;
  pawl::Node keeper;
  pawl::Node reader;
  auto server = keeper.serve("127.0.0.1:0", cache);
  if (!server.ok()) return examples::exit_code(server.status());
  keeper.run_background();
  reader.run_background();
  demo::BlocksClient client(reader.channel(server->address()));
  return examples::exit_code(reader.block_on(use(client, reader.pool())));
}
