// SPDX-License-Identifier: Apache-2.0
// A service, a client, and what an error looks like.
// Prints:
//   ok: the echo answers
//   ok: an error of the handler arrives, and says that it ran
#include <cstdio>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/node.h"

using namespace std::chrono_literals;

class Echo final : public demo::EchoService {
  pawl::Task<pawl::Result<demo::SayReply>> say(pawl::Call&,
                                               const demo::SayRequest& request) override {
    if (request.text().empty()) {
      co_return pawl::Status(pawl::Code::invalid_argument, "nothing to say: set a text");
    }
    demo::SayReply reply;
    reply.set_text(request.text());
    co_return reply;
  }
};

pawl::Task<pawl::Status> talk(demo::EchoClient echo) {
  demo::SayRequest request;
  request.set_text("hello");
  // ok(): the reply, or this coroutine ends with the error of the call.
  auto reply = co_await ok(echo.say(request, {.deadline = 1s}));
  co_await ok(examples::check(reply.text() == "hello", "the echo answers"));

  // Without it: an Outcome, which also knows what happened on the way.
  auto outcome = co_await echo.say(demo::SayRequest());
  std::printf("%s\n", outcome.to_string().c_str());
  co_return examples::check(
      outcome.status().code() == pawl::Code::invalid_argument && outcome.ran() == pawl::Ran::yes,
      "an error of the handler arrives, and says that it ran");
}

int main() {
  Echo echo;  // before the node, so that it outlives its handlers
  pawl::Node node;
  auto server = node.serve("127.0.0.1:0", echo);
  if (!server.ok()) return examples::exit_code(server.status());
  node.run_background();
  demo::EchoClient client(node.channel(server->address()));
  return examples::exit_code(node.block_on(talk(client)));
}
