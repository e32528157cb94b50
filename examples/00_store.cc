// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "pawl/node.h"
#include "store.pawl.h"

class Store final : public store::StoreService {
  pawl::Task<pawl::Result<store::Done>> put(pawl::Call& call, const store::Key& key,
                                            pawl::Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));   // READ and check
    blocks_[key.name()] = std::move(buffer).freeze();  // from here on the bytes are ours
    co_return store::Done();
  }
  pawl::Task<pawl::Result<store::Done>> get(pawl::Call&, const store::Key& key,
                                            pawl::Download& out) override {
    const auto found = blocks_.find(key.name());
    if (found == blocks_.end()) co_return pawl::Status(pawl::Code::not_found, "no such block");
    out.add(found->second);  // lent, not copied
    co_return store::Done();
  }
  std::map<std::string, pawl::Block> blocks_;
};

pawl::Task<pawl::Status> use(store::StoreClient client, pawl::Pool& pool) {
  store::Key key;
  key.set_name("greeting");
  auto buffer = co_await ok(pool.acquire(1 << 20));
  std::memset(buffer.bytes().data(), '.', buffer.size());  // only what was written may be lent
  std::strcpy(reinterpret_cast<char*>(buffer.bytes().data()), "hello, pulled world");
  co_await ok(client.put(key, lend(std::move(buffer).freeze())));
  auto got = co_await ok(client.get(key, into(pool)));
  auto block = co_await ok(got.part());
  std::printf("%s (%zu bytes)\n", reinterpret_cast<const char*>(block.bytes().data()),
              block.size());
  co_return pawl::Status();
}

int main() {
  Store service;
  pawl::Node node;
  auto server = node.serve("127.0.0.1:0", service);
  if (!server.ok()) return std::fprintf(stderr, "%s\n", server.status().to_string().c_str()), 1;
  store::StoreClient client(node.channel(server->address()));
  const pawl::Status status = node.block_on(use(std::move(client), node.pool()));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
