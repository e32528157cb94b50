// SPDX-License-Identifier: Apache-2.0
// A call that ends early: the handler hears of it, and what was lent can be reused at once.
// Prints:
//   ok: the deadline ends the call
//   ok: a call is cancelled by dropping it
//   ok: the handler heard of both
#include <atomic>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/deadline.h"
#include "pawl/node.h"
#include "pawl/when.h"

using namespace std::chrono_literals;

class Slow final : public demo::BlocksService {
 public:
  [[nodiscard]] int cancelled() const { return cancelled_; }

 private:
  pawl::Task<pawl::Result<demo::PutReply>> put(pawl::Call& call, const demo::PutRequest&,
                                               pawl::Upload& in) override {
    // Something slow: ten seconds, or until nobody waits for the answer any more.
    co_await when_any(pawl::sleep_for(10s), call.on_cancelled());
    if (call.cancelled()) ++cancelled_;
    co_await ok(in.pull(call.pool()));  // too late: refused before it touches anything
    co_return demo::PutReply();
  }
  pawl::Task<pawl::Result<demo::GetReply>> get(pawl::Call&, const demo::GetRequest&,
                                               pawl::Download&) override {
    co_return pawl::Status(pawl::Code::unimplemented, "this service only keeps people waiting");
  }

  std::atomic<int> cancelled_ = 0;
};

pawl::Task<pawl::Status> hurry(demo::BlocksClient blocks, pawl::Pool& pool, const Slow& slow) {
  auto buffer = co_await ok(pool.acquire(1 << 20));
  examples::fill(buffer.bytes(), 'm');
  auto block = std::move(buffer).freeze();
  demo::PutRequest request;

  auto outcome = co_await blocks.put(request, lend(block), {.deadline = 50ms});
  std::printf("%s\n", outcome.to_string().c_str());
  co_await ok(examples::check(outcome.status().code() == pawl::Code::deadline,
                              "the deadline ends the call"));
  // Its lease has ended before we were told, so no late READ can get what we write now.
  auto ours = co_await ok(std::move(block).unique());
  examples::fill(ours.bytes(), 'x');
  block = std::move(ours).freeze();

  // Dropping whatever waits for a call cancels it; here, when_any drops the one that is not first.
  auto first = co_await when_any(blocks.put(request, lend(block)), pawl::sleep_for(20ms));
  co_await ok(examples::check(first.index == 1, "a call is cancelled by dropping it"));
  ours = co_await ok(std::move(block).unique());

  for (int i = 0; i < 500 && slow.cancelled() < 2; ++i) co_await pawl::sleep_for(10ms);
  co_return examples::check(slow.cancelled() == 2, "the handler heard of both");
}

int main() {
  Slow slow;
  pawl::Node server_node;
  pawl::Node client_node;
  auto server = server_node.serve("127.0.0.1:0", slow);
  if (!server.ok()) return examples::exit_code(server.status());
  server_node.run_background();
  client_node.run_background();
  demo::BlocksClient client(client_node.channel(server->address()));
  return examples::exit_code(client_node.block_on(hurry(client, client_node.pool(), slow)));
}
