// SPDX-License-Identifier: Apache-2.0
// A chain of replicas: each pulls the block once, then lends the same memory to the next one while
// it is written to its own disk.
// Prints:
//   ok: three replicas have the chunk
#include <string>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/deadline.h"
#include "pawl/node.h"
#include "pawl/when.h"

using namespace std::chrono_literals;

/// Stands for a disk, which takes its time.
pawl::Task<pawl::Status> write_to_disk(std::string, pawl::Block) {
  co_await pawl::sleep_for(5ms);
  co_return pawl::Status();
}

class Replica final : public demo::BlocksService {
 public:
  void forward_to(demo::BlocksClient next) { next_ = std::move(next); }

 private:
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call& call, const demo::PutRequest& request,
                                               pawl::Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));
    const auto block = std::move(buffer).freeze();
    demo::PutReply reply;
    reply.set_copies(1);
    if (!next_.channel()) {  // the tail
      co_await ok(write_to_disk(request.key(), block));
      co_return reply;
    }
    // inherit(): what is left of the deadline, the priority, the trace. The margin is for us to say
    // that the next one did not answer.
    auto [written, forwarded] = co_await when_all(
        write_to_disk(request.key(), block), next_.put(request, lend(block), call.inherit(100ms)));
    co_await ok(std::move(written));
    auto below = co_await ok(std::move(forwarded));
    reply.set_copies(below.copies() + 1);
    co_return reply;
  }
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest&,
                                               pawl::Download&) override {
    co_return pawl::Status(pawl::Code::unimplemented, "here replicas are only written to");
  }

  demo::BlocksClient next_;
};

pawl::Task<pawl::Status> store(demo::BlocksClient head, pawl::Pool& pool) {
  auto buffer = co_await ok(pool.acquire(8 << 20));
  examples::fill(buffer.bytes(), 'z');
  demo::PutRequest put;
  put.set_key("chunk");
  auto stored = co_await ok(head.put(put, lend(std::move(buffer).freeze()), {.deadline = 5s}));
  co_return examples::check(stored.copies() == 3, "three replicas have the chunk");
}

int main() {
  Replica replicas[3];
  pawl::Node nodes[3];
  pawl::Node writer;
  pawl::Server servers[3];
  for (int i = 2; i >= 0; --i) {  // from the tail on
    auto server = nodes[i].serve("127.0.0.1:0", replicas[i]);
    if (!server.ok()) return examples::exit_code(server.status());
    servers[i] = *std::move(server);
    if (i > 0) {
      replicas[i - 1].forward_to(demo::BlocksClient(nodes[i - 1].channel(servers[i].address())));
    }
    nodes[i].run_background();
  }
  writer.run_background();
  demo::BlocksClient head(writer.channel(servers[0].address()));
  return examples::exit_code(writer.block_on(store(head, writer.pool())));
}
