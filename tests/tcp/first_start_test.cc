// SPDX-License-Identifier: Apache-2.0
// Clients that are there before their server: calls wait for it until their deadline, whatever
// stands at the address meanwhile. Case 64.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.FirstStart/Echo");

class FirstStart : public ::testing::Test {
 protected:
  FirstStart() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  }
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    return options;
  }
  static int rounds() { return std::getenv("PAWL_TEST_SOAK") != nullptr ? 200 : 5; }
  /// Where nobody listens yet.
  static std::string free_address() {
    Node other(tcp());
    Result<Server> server = other.serve("127.0.0.1:0");
    EXPECT_TRUE(server.ok()) << server.status().to_string();
    return server->address();
  }
  void serve(Node& server, const std::string& address) {
    Result<Server> serving = server.serve(address, service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    server.run_background();
  }
  /// Ten calls wait from before the server until it is there, which is after `attempts` failed.
  void calls_before_server(const std::string& address, std::uint64_t attempts,
                           UniqueFd other_listener = {}) {
    Node client(tcp());
    client.run_background();
    ChannelOptions options;
    options.connect_timeout = 50ms;
    options.reconnect_backoff_max = 50ms;
    const Channel channel = client.channel(address, options);
    struct {
      std::counting_semaphore<> ended{0};
      std::atomic<int> good{0};
    } calls;
    std::vector<Started> started;
    for (int i = 0; i < 10; ++i) {
      started.push_back(
          start(channel.call(kEcho, Payload::of("waited")),
                Callback<Outcome<Payload>>{[](void* context, Outcome<Payload> outcome) {
                                             auto* to = static_cast<decltype(calls)*>(context);
                                             EXPECT_TRUE(outcome.ok()) << outcome.to_string();
                                             if (outcome.ok() && outcome->text() == "waited") {
                                               ++to->good;
                                             }
                                             to->ended.release();
                                           },
                                           &calls}));
    }
    const auto begun = [&](const NodeStats& stats) {
      return stats.calls_started == 10 && stats.connects_failed >= attempts;
    };
    while (!begun(client.stats())) std::this_thread::yield();
    EXPECT_EQ(client.stats().calls_live, 10u) << "none has given up";
    other_listener.reset();
    Node server(tcp());
    ASSERT_NO_FATAL_FAILURE(serve(server, address));
    for (int i = 0; i < 10; ++i) calls.ended.acquire();
    EXPECT_EQ(calls.good, 10);
    while (client.stats().connections_opened == 0) std::this_thread::yield();  // stats are copies
    EXPECT_EQ(client.stats().connections_opened, 1u);
    serving_.reset();
  }

  testing::FunctionService service_;
  std::optional<Server> serving_;
};

TEST_F(FirstStart, CallsWaitForAPortThatRefuses) {
  for (int i = 0; i < rounds(); ++i) {
    calls_before_server(free_address(), static_cast<std::uint64_t>(i % 4));
  }
}

TEST_F(FirstStart, CallsWaitForAUnixSocketThatIsNotThere) {
  for (int i = 0; i < rounds(); ++i) {
    calls_before_server("unix:@pawl-first-start-" + std::to_string(::getpid()),
                        static_cast<std::uint64_t>(i % 4));
  }
}

// The port is open and takes connections, and what is behind it says nothing.
TEST_F(FirstStart, CallsWaitBehindAListenerThatIsNotReady) {
  for (int i = 0; i < 3; ++i) {
    UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(silent);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    ASSERT_EQ(::bind(silent.get(), any, length), 0);
    ASSERT_EQ(::listen(silent.get(), 16), 0);
    ASSERT_EQ(::getsockname(silent.get(), any, &length), 0);
    calls_before_server("127.0.0.1:" + std::to_string(ntohs(at.sin_port)), 2, std::move(silent));
  }
}

TEST_F(FirstStart, ACallWhoseDeadlineComesFirstSaysWhatTheAddressSaid) {
  Node client(tcp());
  client.run_background();
  CallOptions options;
  options.deadline = 100ms;
  const Outcome<Payload> refused =
      block(client.channel(free_address()).call(kEcho, Payload(), options));
  EXPECT_EQ(refused.status().code(), Code::unavailable) << refused.to_string();
  EXPECT_EQ(refused.ran(), Ran::no);
  EXPECT_NE(refused.status().what().find("refused"), std::string_view::npos) << refused.to_string();
}

}  // namespace
}  // namespace pawl
