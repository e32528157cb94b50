// SPDX-License-Identifier: Apache-2.0
// No coroutines: a service derived by hand that answers from threads of its own, and a client that
// is called back, or waits.
// Prints:
//   ok: eight callbacks and a blocking call, without a coroutine
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/blocking.h"
#include "pawl/completer.h"
#include "pawl/node.h"

using namespace std::chrono_literals;
using pawl::proto::Protobuf;
using pawl::proto::Role;
using Answer = pawl::Result<pawl::Payload>;
constexpr int kCalls = 8;

class Echo final : public pawl::Service {
 public:
  [[nodiscard]] std::span<const pawl::Method> methods() const override {
    return demo::EchoMethods::kAll;
  }
  pawl::Operation<Answer> handle(std::size_t, pawl::Call&, std::span<const std::byte> bytes,
                                 pawl::Upload&, pawl::Download&) override {
    demo::SayRequest request;
    auto status = Protobuf::decode(demo::EchoMethods::say, Role::request, bytes, request);
    if (!status.ok()) return pawl::Operation<Answer>::ready(std::move(status));
    auto [operation, completer] = pawl::make_completer<Answer>();
    threads_.emplace_back([request, answer = std::move(completer)]() mutable {
      demo::SayReply reply;
      reply.set_text(request.text());
      answer.complete(Protobuf::encode(demo::EchoMethods::say, Role::reply, reply));
    });
    return std::move(operation);
  }

 private:
  std::vector<std::jthread> threads_;  // without a lock: a server's handlers begin on one thread
};

/// Counts answers, on whatever thread they come.
struct Answers {
  static void on_answer(void* context, pawl::Outcome<demo::SayReply> outcome) {
    auto* self = static_cast<Answers*>(context);
    if (outcome.ok() && outcome->text() == "called back") ++self->good;
    self->missing.count_down();
  }
  std::latch missing{kCalls};
  std::atomic<int> good = 0;
};

int main() {
  Echo echo;
  pawl::Node node;
  auto server = node.serve("127.0.0.1:0", echo);
  if (!server.ok()) return examples::exit_code(server.status());
  node.run_background();
  const demo::EchoClient client(node.channel(server->address()));

  demo::SayRequest request;
  request.set_text("called back");
  Answers answers;
  pawl::Started calls[kCalls];  // dropping one cancels it
  for (auto& call : calls) {
    call = start(client.say(request, {.deadline = 5s}), {&Answers::on_answer, &answers});
  }
  answers.missing.wait();

  request.set_text("waited for");
  auto outcome = block(client.say(request, {.deadline = 5s}));  // not on a poller's thread
  if (!outcome.ok()) return examples::exit_code(outcome.status());
  return examples::exit_code(
      examples::check(answers.good == kCalls && outcome->text() == "waited for",
                      "eight callbacks and a blocking call, without a coroutine"));
}
