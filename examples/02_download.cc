// SPDX-License-Identifier: Apache-2.0
// The caller pulls bulk bytes out of the handler's memory: into its pool, or into its own buffer.
// Prints:
//   ok: 4 MiB arrived in a buffer of the pool
//   ok: the same into a buffer of our own
//   ok: or an error
#include <cstdio>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/blocking.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

constexpr std::size_t kBytes = std::size_t{4} << 20;

class Blocks final : public demo::BlocksService {
 public:
  void keep(pawl::Block block) { block_ = std::move(block); }

 private:
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest& request,
                                               pawl::Download& out) override {
    if (request.key() != "weights") co_return pawl::Status(pawl::Code::not_found, "no such block");
    out.add(block_);  // lent, not copied: the caller READs the bytes and confirms
    demo::GetReply reply;
    reply.set_bytes(block_.size());
    co_return reply;
  }
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call&, const demo::PutRequest&,
                                               pawl::Upload&) override {
    co_return pawl::Status(pawl::Code::permission_denied, "read only; see 03_upload");
  }

  pawl::Block block_;
};

pawl::Task<pawl::Status> fetch(demo::BlocksClient blocks, pawl::Pool& pool) {
  demo::GetRequest request;
  request.set_key("weights");
  auto got = co_await ok(blocks.get(request, into(pool), {.deadline = 5s}));
  auto block = co_await ok(got.part());  // confirmed: the bytes are ours
  co_await ok(examples::check(
      block.size() == kBytes && got->bytes() == kBytes && examples::is_full_of(block.bytes(), 'w'),
      "4 MiB arrived in a buffer of the pool"));

  auto buffer = co_await ok(pool.acquire(kBytes));
  auto outcome = co_await blocks.get(request, into(std::move(buffer)), {.deadline = 5s});
  std::printf("%s\n", outcome.to_string().c_str());
  co_await ok(examples::check(outcome.ok(), "the same into a buffer of our own"));

  request.set_key("nothing");
  auto missing = co_await blocks.get(request, into(pool));
  co_return examples::check(missing.status().code() == pawl::Code::not_found, "or an error");
}

int main() {
  Blocks blocks;
  pawl::Node owner;
  pawl::Node reader;
  auto buffer = block(owner.pool().acquire(kBytes));
  if (!buffer.ok()) return examples::exit_code(buffer.status());
  examples::fill(buffer->bytes(), 'w');
  blocks.keep(std::move(*buffer).freeze());  // from here on nobody can write to it

  auto server = owner.serve("127.0.0.1:0", blocks);
  if (!server.ok()) return examples::exit_code(server.status());
  owner.run_background();
  reader.run_background();
  demo::BlocksClient client(reader.channel(server->address()));
  return examples::exit_code(reader.block_on(fetch(client, reader.pool())));
}
