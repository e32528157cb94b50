// SPDX-License-Identifier: Apache-2.0
// Handlers that block: on their poller, what goes on and what does not; on Workers, where they
// belong, everything goes on. Case 65.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "pawl/blocking.h"
#include "pawl/node.h"
#include "pawl/workers.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.Blocked/Echo");
constexpr Method kBlock = make_method("test.Blocked/Block");
constexpr Method kNested = make_method("test.Blocked/Nested");
constexpr Method kWait = make_method("test.Blocked/Wait");

NodeOptions tcp(std::uint32_t pollers = 1) {
  NodeOptions options;
  options.fabric = "tcp";
  options.pollers = pollers;
  return options;
}

/// Takes connections, and says nothing.
class DeadPeer {
 public:
  DeadPeer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(fd_.get(), any, length), 0);
    EXPECT_EQ(::listen(fd_.get(), 128), 0);
    EXPECT_EQ(::getsockname(fd_.get(), any, &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  UniqueFd fd_;
  std::string address_;
};

/// Calls under way, with how they ended.
class Calls {
 public:
  void begin(const Channel& channel, const Method& method, Duration deadline) {
    CallOptions options;
    options.deadline = deadline;
    started_.push_back(start(channel.call(method, Payload::of("x"), options),
                             Callback<Outcome<Payload>>{&Calls::over, this}));
  }
  void wait(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ended_.acquire();
  }
  void drop() { started_.clear(); }
  [[nodiscard]] int ok() const { return ok_; }
  [[nodiscard]] int deadline() const { return deadline_; }
  [[nodiscard]] int others() const { return others_; }

 private:
  static void over(void* context, Outcome<Payload> outcome) {
    auto* self = static_cast<Calls*>(context);
    const Code code = outcome.status().code();
    ++(outcome.ok() ? self->ok_ : code == Code::deadline ? self->deadline_ : self->others_);
    self->ended_.release();
  }
  std::counting_semaphore<> ended_{0};
  std::atomic<int> ok_{0}, deadline_{0}, others_{0};
  std::vector<Started> started_;
};

class Blocked : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  Blocked() : server_(tcp(GetParam())), client_(tcp()) {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(
        kBlock,
        [this](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          ++begun_;
          began_.release();
          release_.acquire();
          co_return Payload();
        });
    // Occupies a worker with calls to nobody, one after the other.
    service_.add(
        kNested,
        [this](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          const auto work = [this] {
            ++begun_;
            while (!released_) {
              CallOptions options;
              options.deadline = 50ms;
              const Outcome<Payload> none = block(dead_channel_.call(kEcho, Payload(), options));
              ++(none.status().code() == Code::unavailable ? nested_ended_ : nested_wrong_);
            }
          };
          auto done = run_on(*workers_, work);
          const Status status = co_await std::move(done);
          if (!status.ok()) co_return status;
          co_return Payload();
        });
    service_.add(kWait,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   ++waiting_;
                   auto over = call.on_cancelled();
                   (void)co_await std::move(over);
                   ++cancelled_;
                   co_return Payload();
                 });
    Result<Server> serving = server_.serve("127.0.0.1:0", service_);
    EXPECT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    server_.run_background();
    client_.run_background();
    channel_ = client_.channel(serving_.address());
    dead_channel_ = server_.channel(dead_.address());
    EXPECT_TRUE(echo(channel_).ok());
  }
  [[nodiscard]] static Status echo(const Channel& channel, Duration deadline = 30s) {
    CallOptions options;
    options.deadline = deadline;
    const Outcome<Payload> outcome = block(channel.call(kEcho, Payload::of("x"), options));
    return outcome.ok() && outcome->text() != "x" ? Status(Code::internal, "not what was sent")
                                                  : outcome.status();
  }

  DeadPeer dead_;
  std::atomic<int> begun_{0}, waiting_{0}, cancelled_{0};
  std::atomic<int> nested_ended_{0}, nested_wrong_{0};
  std::atomic<bool> released_{false};
  std::counting_semaphore<> began_{0}, release_{0};
  testing::FunctionService service_;
  Node server_;
  Node client_;
  Server serving_;
  Channel channel_;
  Channel dead_channel_;
  std::optional<Workers> workers_;  // ends before the pollers that wait for it
};

// case 65
TEST_P(Blocked, OnThePollerItsOtherPollersAndTheDeadlinesOfCallersGoOn) {
  const int pollers = static_cast<int>(GetParam());
  testing::FunctionService echoes;
  echoes.add(kEcho,
             [](Call&, std::span<const std::byte> request, Upload&,
                Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  Node other(tcp());
  Result<Server> elsewhere = other.serve("127.0.0.1:0", echoes);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().to_string();
  other.run_background();
  while (server_.stats().served_ok < 1) std::this_thread::yield();  // stats are copies
  Calls held, late;
  held.begin(channel_, kBlock, 60s);
  began_.acquire();
  for (int i = 1; i < pollers; ++i) late.begin(channel_, kBlock, 30ms);
  late.begin(channel_, kEcho, 30ms);

  // Who calls hears at its deadline, whatever the server does.
  late.wait(static_cast<std::size_t>(pollers));
  EXPECT_EQ(late.deadline(), pollers);
  // And its cancels are out: a turn in which one was said has ended.
  for (int i = 0; i < 2; ++i) {
    const auto nothing = []() -> Task<Status> { co_return Status(); };
    EXPECT_TRUE(block_on(client_.poller(), nothing()).ok());
  }
  // The server's other pollers call and hear, and keep their own deadlines.
  for (int i = 1; i < pollers; ++i) {
    const auto call = [](Channel over, Duration deadline) -> Task<Status> {
      CallOptions options;
      options.deadline = deadline;
      co_return (co_await over.call(kEcho, Payload::of("x"), options)).status();
    };
    Poller& poller = server_.poller(static_cast<std::size_t>(i));
    const Status there = block_on(poller, call(server_.channel(elsewhere->address()), 30s));
    EXPECT_TRUE(there.ok()) << there.to_string();
    const Status nobody = block_on(poller, call(dead_channel_, 30ms));
    EXPECT_EQ(nobody.code(), Code::unavailable) << nobody.to_string();
  }
  EXPECT_GE(server_.stats().served_ok, 1u) << "a copy of the last turn";
  // Its accepts wait with it, since they are the first poller's.
  Node newcomer(tcp());
  newcomer.run_background();
  const Channel knocks = newcomer.channel(serving_.address());
  EXPECT_EQ(echo(knocks, 50ms).code(), Code::unavailable);

  EXPECT_EQ(held.ok(), 0);
  release_.release();
  held.wait(1);
  EXPECT_EQ(held.ok(), 1);
  const Status accepted = echo(knocks);
  EXPECT_TRUE(accepted.ok()) << accepted.to_string();
  EXPECT_TRUE(echo(channel_).ok());
  EXPECT_EQ(begun_, 1) << "those whose callers gave up are not started";
  EXPECT_EQ(client_.stats().connections_lost, 0u);
}

// case 65
TEST_P(Blocked, OnWorkersEverythingGoesOn) {
  const int handlers = static_cast<int>(GetParam());  // as many as pollers, and as workers
  WorkersOptions options;
  options.threads = GetParam();
  workers_.emplace(options);
  Calls held;
  for (int i = 0; i < handlers; ++i) held.begin(channel_, kNested, 60s);
  // Deadlines of the nested calls, which are the server's own.
  while (begun_ < handlers || nested_ended_ < 2 * handlers) std::this_thread::yield();

  for (int i = 0; i < 20; ++i) EXPECT_TRUE(echo(channel_).ok());
  // Accepts and handshakes.
  for (int i = 0; i < 3; ++i) {
    Node newcomer(tcp());
    newcomer.run_background();
    const Status accepted = echo(newcomer.channel(serving_.address()));
    EXPECT_TRUE(accepted.ok()) << accepted.to_string();
  }
  // Cancels, of a call that is dropped and of one whose time is up.
  Calls dropped, late;
  dropped.begin(channel_, kWait, 60s);
  late.begin(channel_, kWait, 30ms);
  while (waiting_ < 1) std::this_thread::yield();
  dropped.drop();
  late.wait(1);
  EXPECT_EQ(late.deadline(), 1);
  while (cancelled_ < waiting_) std::this_thread::yield();
  // Stats, of the turns since.
  const std::uint64_t served = server_.stats().served_ok;
  EXPECT_TRUE(echo(channel_).ok());
  while (server_.stats().served_ok <= served) std::this_thread::yield();

  EXPECT_EQ(begun_, handlers);
  EXPECT_EQ(held.ok() + held.deadline() + held.others(), 0) << "all this time they were blocked";
  released_ = true;
  held.wait(static_cast<std::size_t>(handlers));
  EXPECT_EQ(held.ok(), handlers);
  EXPECT_EQ(nested_wrong_, 0);
  EXPECT_EQ(client_.stats().connections_lost, 0u);
}

// case 65
TEST_P(Blocked, MoreThanWorkersAndTheirQueueHoldIsRefusedByName) {
  WorkersOptions options;
  options.threads = 1;
  options.queue_max = GetParam();
  workers_.emplace(options);
  Calls held;
  held.begin(channel_, kNested, 60s);
  while (begun_ < 1) std::this_thread::yield();
  for (std::size_t i = 0; i < options.queue_max; ++i) held.begin(channel_, kNested, 60s);
  while (workers_->queued() < options.queue_max) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    const Outcome<Payload> refused = block(channel_.call(kNested, Payload()));
    EXPECT_EQ(refused.status().code(), Code::resource_exhausted) << refused.to_string();
    EXPECT_NE(refused.status().what().find("workers' queue is full"), std::string_view::npos)
        << refused.to_string();
    EXPECT_NE(refused.status().what().find("WorkersOptions::queue_max"), std::string_view::npos);
    EXPECT_TRUE(echo(channel_).ok());
  }
  released_ = true;
  held.wait(1 + options.queue_max);
  EXPECT_EQ(held.ok(), static_cast<int>(1 + options.queue_max));
}

INSTANTIATE_TEST_SUITE_P(Pollers, Blocked, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace pawl
