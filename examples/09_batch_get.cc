// SPDX-License-Identifier: Apache-2.0
// Many blocks in one call: one lease, one check, and a status for each part.
// Prints:
//   ok: 15 blocks arrived in order, and one says why it did not
#include <map>
#include <string>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/blocking.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

constexpr int kKeys = 16;
constexpr int kMissing = 5;

class Batch final : public demo::BatchService {
 public:
  void keep(std::string key, pawl::Block block) { blocks_[std::move(key)] = std::move(block); }

 private:
  pawl::Task<pawl::Result<demo::BatchReply>> get(pawl::Call&, const demo::BatchRequest& request,
                                                 pawl::Download& out) override {
    demo::BatchReply reply;
    for (const std::string& key : request.keys()) {
      const auto found = blocks_.find(key);
      if (found == blocks_.end()) {
        out.add(pawl::Status(pawl::Code::not_found, "no such block"));  // the others are served
        continue;
      }
      out.add(found->second);
      reply.set_found(reply.found() + 1);
    }
    co_return reply;
  }

  std::map<std::string, pawl::Block> blocks_;
};

std::string key_of(int i) { return "block " + std::to_string(i); }

pawl::Status fill_batch(Batch& batch, pawl::Pool& pool) {
  for (int i = 0; i < kKeys; ++i) {
    if (i == kMissing) continue;
    auto buffer = block(pool.acquire(64 * 1024));
    if (!buffer.ok()) return buffer.status();
    examples::fill(buffer->bytes(), static_cast<char>('a' + i));
    batch.keep(key_of(i), std::move(*buffer).freeze());
  }
  return pawl::Status();
}

pawl::Task<pawl::Status> fetch(demo::BatchClient batch, pawl::Pool& pool) {
  demo::BatchRequest request;
  for (int i = 0; i < kKeys; ++i) request.add_keys(key_of(i));
  auto got = co_await ok(batch.get(request, into(pool), {.deadline = 5s}));

  int good = 0;
  for (int i = 0; i < kKeys; ++i) {
    const auto& part = got.parts()[static_cast<std::size_t>(i)];
    if (part.ok() && examples::is_full_of(part->bytes(), static_cast<char>('a' + i))) ++good;
  }
  co_return examples::check(got->found() == kKeys - 1 && good == kKeys - 1 &&
                                got.parts()[kMissing].status().code() == pawl::Code::not_found,
                            "15 blocks arrived in order, and one says why it did not");
}

int main() {
  Batch batch;
  pawl::Node owner;
  pawl::Node reader;
  const auto filled = fill_batch(batch, owner.pool());
  if (!filled.ok()) return examples::exit_code(filled);
  auto server = owner.serve("127.0.0.1:0", batch);
  if (!server.ok()) return examples::exit_code(server.status());
  owner.run_background();
  demo::BatchClient client(reader.channel(server->address()));
  return examples::exit_code(reader.block_on(fetch(client, reader.pool())));
}
