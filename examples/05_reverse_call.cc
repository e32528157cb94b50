// SPDX-License-Identifier: Apache-2.0
// Both ends can call: the server calls its client back over the connection that the client opened.
// Prints:
//   ok: the server delivered 4 events
//   ok: each of them arrived, in order
#include <atomic>

#include "check.h"
#include "pawl/node.h"
#include "watch.pawl.h"

using namespace std::chrono_literals;

class Watch final : public demo::WatchService {
  pawl::Task<pawl::Result<demo::SubscribeReply>> subscribe(
      pawl::Call& call, const demo::SubscribeRequest& request) override {
    demo::ListenerClient listener(call.caller());  // no address, no second connection
    demo::SubscribeReply reply;
    demo::Event event;
    event.set_topic(request.topic());
    for (std::uint32_t i = 1; i <= request.events(); ++i) {
      event.set_number(i);
      co_await ok(listener.hint(event, call.inherit()));     // one way: sent, nobody answers
      co_await ok(listener.changed(event, call.inherit()));  // within what is left of the deadline
      reply.set_delivered(i);
    }
    co_return reply;
  }
};

class Listener final : public demo::ListenerService {
 public:
  [[nodiscard]] std::uint32_t sum() const { return sum_; }
  [[nodiscard]] std::uint32_t hints() const { return hints_; }

 private:
  pawl::Task<pawl::Result<demo::EventReply>> changed(pawl::Call&,
                                                     const demo::Event& event) override {
    if (event.topic() != "prices") {
      co_return pawl::Status(pawl::Code::invalid_argument, "not what was subscribed to");
    }
    sum_ += event.number();
    co_return demo::EventReply();
  }
  pawl::Task<pawl::Status> hint(pawl::Call&, const demo::Event&) override {
    ++hints_;
    co_return pawl::Status();
  }

  std::atomic<std::uint32_t> sum_ = 0;  // main() looks from another thread
  std::atomic<std::uint32_t> hints_ = 0;
};

pawl::Task<pawl::Status> listen(demo::WatchClient watch) {
  demo::SubscribeRequest request;
  request.set_topic("prices");
  request.set_events(4);
  auto reply = co_await ok(watch.subscribe(request, {.deadline = 5s}));
  co_return examples::check(reply.delivered() == 4, "the server delivered 4 events");
}

int main() {
  Watch watch;
  Listener listener;
  pawl::Node server_node;
  pawl::Node client_node;
  auto server = server_node.serve("127.0.0.1:0", watch);
  if (!server.ok()) return examples::exit_code(server.status());
  server_node.run_background();
  client_node.run_background();
  // The client serves too, but listens nowhere.
  demo::WatchClient client(client_node.channel(server->address(), {}, listener));
  auto status = client_node.block_on(listen(client));
  if (!status.ok()) return examples::exit_code(status);
  return examples::exit_code(examples::check(
      listener.sum() == 1 + 2 + 3 + 4 && listener.hints() == 4, "each of them arrived, in order"));
}
