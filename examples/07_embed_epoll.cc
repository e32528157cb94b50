// SPDX-License-Identifier: Apache-2.0
// A node inside an event loop that somebody else owns: no thread of Pawl's, one descriptor more.
// Prints:
//   ok: 20 calls beside the loop's own timer, on one thread
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
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

/// A foreign loop: an epoll set with a timer that ticks each millisecond.
class Loop {
 public:
  Loop() {
    const itimerspec each{{0, 1'000'000}, {0, 1'000'000}};
    timerfd_settime(timer_, 0, &each, nullptr);
    watch(timer_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    close(timer_);
    close(epoll_);
  }
  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  /// One turn with both guests: the timer, and the node.
  void turn(pawl::Node& node) {
    if (node.run_once() || !node.arm()) return;  // it had something to do: do not wait
    epoll_event event{};
    if (epoll_wait(epoll_, &event, 1, 1000) == 1 && event.data.fd == timer_) {
      std::uint64_t expired = 0;
      if (read(timer_, &expired, sizeof expired) == sizeof expired) ticks_ += expired;
    }
  }
  [[nodiscard]] std::uint64_t ticks() const { return ticks_; }

 private:
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  int timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  std::uint64_t ticks_ = 0;
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

  pawl::Node node;  // neither run() nor run_background()
  Loop loop;
  loop.watch(node.event_fd());
  const pawl::Poller::Scope scope(node.poller());  // what is started here runs on this poller
  std::optional<pawl::Status> result;
  auto started = start(talk(demo::EchoClient(node.channel(server->address()))),
                       {[](void* context, pawl::Status status) {
                          *static_cast<std::optional<pawl::Status>*>(context) = std::move(status);
                        },
                        &result});
  while (!result.has_value()) loop.turn(node);
  if (!result->ok()) return examples::exit_code(*result);
  return examples::exit_code(
      examples::check(loop.ticks() > 10, "20 calls beside the loop's own timer, on one thread"));
}
