// SPDX-License-Identifier: Apache-2.0
// A node inside an event loop that somebody else owns: no thread of Pawl's, one descriptor more.
// Prints:
//   ok: 20 calls in a loop of the program's own, on one thread
#include <sys/epoll.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/deadline.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

class Echo final : public demo::EchoService {
  pawl::Task<pawl::Result<demo::SayReply>> say(pawl::Call&,
                                               const demo::SayRequest& request) override {
    demo::SayReply reply;
    reply.set_text(request.text());
    co_return reply;
  }
};

pawl::Task<pawl::Status> talk(demo::EchoClient echo) {
  for (int i = 0; i < 20; ++i) {
    demo::SayRequest request;
    request.set_text("hello " + std::to_string(i));
    auto reply = co_await ok(echo.say(request, {.deadline = 5s}));
    if (reply.text() != request.text()) co_return pawl::Status(pawl::Code::internal, "wrong echo");
    co_await pawl::sleep_for(2ms);
  }
  co_return pawl::Status();
}

int main() {
  Echo echo;
  pawl::Node server_node;
  auto server = server_node.serve("127.0.0.1:0", echo);
  if (!server.ok()) return examples::exit_code(server.status());
  server_node.run_background();

  pawl::Node node;                                 // neither run() nor run_background()
  const pawl::Poller::Scope scope(node.poller());  // what is started here runs on this poller
  std::optional<pawl::Status> result;
  auto started = start(talk(demo::EchoClient(node.channel(server->address()))),
                       {[](void* context, pawl::Status status) {
                          *static_cast<std::optional<pawl::Status>*>(context) = std::move(status);
                        },
                        &result});

  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, node.event_fd(), &event);
  int waits = 0;
  while (!result.has_value()) {
    if (node.run_once() || !node.arm()) continue;  // it has something to do: do not wait
    // The node wakes the loop by its descriptor, for its timers too; the timeout is the loop's own.
    epoll_wait(epoll, &event, 1, 1000);
    ++waits;
  }
  close(epoll);
  if (!result->ok()) return examples::exit_code(*result);
  return examples::exit_code(
      examples::check(waits > 0, "20 calls in a loop of the program's own, on one thread"));
}
