// SPDX-License-Identifier: Apache-2.0
// No coroutines: a service derived by hand that answers from a thread of its own, and a client that
// is called back, or waits.
// Prints:
//   ok: eight callbacks and a blocking call, without a coroutine
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "check.h"
#include "demo.pawl.h"
#include "pawl/block.h"
#include "pawl/completer.h"
#include "pawl/node.h"

using namespace std::chrono_literals;
using pawl::proto::Protobuf;
using pawl::proto::Role;

/// What was asked, and where the answer goes.
class Job {
 public:
  Job(std::string said, pawl::Completer<pawl::Result<pawl::Payload>> to)
      : text(std::move(said)), answer(std::move(to)) {}
  std::string text;
  pawl::Completer<pawl::Result<pawl::Payload>> answer;
};

class Echo final : public pawl::Service {
 public:
  ~Echo() override {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }

  [[nodiscard]] std::span<const pawl::Method> methods() const override {
    return demo::EchoMethods::kAll;
  }
  pawl::Operation<pawl::Result<pawl::Payload>> handle(std::size_t, pawl::Call&,
                                                      std::span<const std::byte> bytes,
                                                      pawl::Upload&, pawl::Download&) override {
    auto [operation, completer] = pawl::make_completer<pawl::Result<pawl::Payload>>();
    demo::SayRequest request;
    auto status = Protobuf::decode(demo::EchoMethods::say, Role::request, bytes, request);
    if (!status.ok()) {
      completer.complete(std::move(status));
      return std::move(operation);
    }
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back(request.text(), std::move(completer));
    changed_.notify_one();
    return std::move(operation);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      demo::SayReply reply;
      reply.set_text(job.text);
      job.answer.complete(Protobuf::encode(demo::EchoMethods::say, Role::reply, reply));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::jthread worker_{[this] { work(); }};
};

/// Counts answers, on whatever thread they come.
class Answers {
 public:
  static void on_answer(void* context, pawl::Outcome<demo::SayReply> outcome) {
    auto* self = static_cast<Answers*>(context);
    if (outcome.ok() && outcome->text() == "called back") ++self->good_;
    ++self->all_;
    self->all_.notify_one();
  }
  void wait_for(int count) const {
    for (int seen = all_; seen < count; seen = all_) all_.wait(seen);
  }
  [[nodiscard]] int good() const { return good_; }

 private:
  std::atomic<int> all_ = 0;
  std::atomic<int> good_ = 0;
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
  pawl::Started calls[8];  // dropping one cancels it
  for (auto& call : calls) {
    call = start(client.say(request, {.deadline = 5s}), {&Answers::on_answer, &answers});
  }
  answers.wait_for(8);

  request.set_text("waited for");
  auto outcome = block(client.say(request, {.deadline = 5s}));  // not on a poller's thread
  if (!outcome.ok()) return examples::exit_code(outcome.status());
  return examples::exit_code(
      examples::check(answers.good() == 8 && outcome->text() == "waited for",
                      "eight callbacks and a blocking call, without a coroutine"));
}
