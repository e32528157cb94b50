// SPDX-License-Identifier: Apache-2.0
// The last Channel goes on whatever thread, while its calls are under way on the pollers', and
// inside their callbacks. The thread and address sanitizers look on. Case 106.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.TcpDrop/Echo");
constexpr Method kNote = make_method("test.TcpDrop/Note", BulkDirection::none, false, true);
constexpr Method kPut = make_method("test.TcpDrop/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 1 << 20;

class TcpChannelDrop : public ::testing::Test {
 protected:
  TcpChannelDrop() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(
        kNote,
        [this](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          ++noted_;
          co_return Payload();
        });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto pulled = co_await ok(in.pull(call.pool()));
          const auto bytes = std::as_const(pulled).bytes();
          bool good = bytes.size() == kBytes;
          for (const std::byte each : bytes) good = good && each == std::byte{0x5a};
          co_return Payload::of(good ? "good" : "bad");
        });
  }
  void SetUp() override {
    Result<Server> serving = server_.serve("127.0.0.1:0", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    server_.run_background();
    client_.run_background();
  }
  static NodeOptions tcp(std::uint32_t pollers) {
    NodeOptions options;
    options.fabric = "tcp";
    options.pollers = pollers;
    options.read_timeout = 60s;  // no time limit is what ends a call here
    options.quarantine_timeout = 120s;
    return options;
  }
  Operation<Outcome<Payload>> put(const Channel& channel) {
    Result<Buffer> buffer = block(client_.pool().acquire(kBytes));
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    std::memset(buffer->bytes().data(), 0x5a, kBytes);
    return channel.call(kPut, Payload(), lend((*std::move(buffer)).freeze()));
  }
  /// Every connection ends with its channel, here once so many calls were made; the limit is the
  /// test program's. (Stats are copies, a little old.)
  void wait_for_no_connection(std::uint64_t calls) {
    const auto over = [&] {
      const NodeStats client = client_.stats(), server = server_.stats();
      return client.calls_started == calls && client.calls_live == 0 &&
             client.connections_live == 0 && server.connections_live == 0 &&
             server.connections_opened == client.connections_opened;
    };
    while (!over()) std::this_thread::yield();
  }

  testing::FunctionService service_;
  std::atomic<int> noted_{0};
  Node server_{tcp(1)};
  Node client_{tcp(2)};
  Server serving_;
};

TEST_F(TcpChannelDrop, WithAHundredCallsUnderWayOfWhichEachEndsWell) {
  struct Count {
    std::atomic<int> good{0};
    std::counting_semaphore<> ended{0};
  } count;
  const Callback<Outcome<Payload>> callback{
      [](void* context, Outcome<Payload> outcome) {
        auto* self = static_cast<Count*>(context);
        EXPECT_TRUE(outcome.ok()) << outcome.to_string();
        if (outcome.ok() && (outcome->text() == "x" || outcome->text() == "good")) ++self->good;
        self->ended.release();
      },
      &count};
  for (int round = 0; round < 5; ++round) {
    std::vector<Started> calls;
    Channel channel = client_.channel(serving_.address());
    for (int i = 0; i < 100; ++i) {
      calls.push_back(
          start(i % 10 == 0 ? put(channel) : channel.call(kEcho, Payload::of("x")), callback));
    }
    channel = Channel();
    for (int i = 0; i < 100; ++i) count.ended.acquire();
    EXPECT_EQ(count.good, (round + 1) * 100);
    wait_for_no_connection(
        100u * static_cast<unsigned>(round + 1));  // the handles of the calls are still here
  }
}

TEST_F(TcpChannelDrop, OnManyThreadsEachWithItsOwnChannel) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        Channel channel = client_.channel(serving_.address());
        Operation<Outcome<Payload>> call = channel.call(kEcho, Payload::of("x"));
        channel = Channel();
        const Outcome<Payload> outcome = block(std::move(call));
        EXPECT_TRUE(outcome.ok()) << outcome.to_string();
        if (outcome.ok()) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 100);
  wait_for_no_connection(100);
}

// On a poller's thread, by the callback that the first of ten calls has; then all ten calls too.
TEST_F(TcpChannelDrop, InsideACallback) {
  struct Group {
    Channel channel;
    std::vector<Started> calls;
    bool drops_calls = false;
    int told = 0;
    std::counting_semaphore<> ended{0};
  };
  const auto ended = [](void* context, Outcome<Payload> outcome) {
    auto* self = static_cast<Group*>(context);
    EXPECT_TRUE(outcome.ok()) << outcome.to_string();
    self->channel = Channel();
    if (self->drops_calls) self->calls.clear();
    ++self->told;
    self->ended.release();
  };
  struct Begin : Work {
    explicit Begin(std::function<void()> f) : Work(&Begin::go, "begin"), fn(std::move(f)) {}
    static void go(Work* work) { static_cast<Begin*>(work)->fn(); }
    const std::function<void()> fn;
  };
  for (int round = 0; round < 40; ++round) {
    Group group;
    group.channel = client_.channel(serving_.address());
    group.drops_calls = round % 2 == 1;
    Begin begin([&] {
      for (int i = 0; i < 10; ++i) {
        group.calls.push_back(start(group.channel.call(kEcho, Payload::of("x")),
                                    Callback<Outcome<Payload>>{ended, &group}));
      }
    });
    client_.poller(static_cast<std::size_t>(round / 2) % 2).post(begin);
    const int expected = group.drops_calls ? 1 : 10;
    for (int i = 0; i < expected; ++i) group.ended.acquire();
    wait_for_no_connection(10u * static_cast<unsigned>(round + 1));
    EXPECT_EQ(group.told, expected);
    if (group.drops_calls) continue;
    // What was started on a poller is dropped there.
    std::binary_semaphore dropped{0};
    Begin drop([&] {
      group.calls.clear();
      dropped.release();
    });
    client_.poller(static_cast<std::size_t>(round / 2) % 2).post(drop);
    dropped.acquire();
  }
}

// Found: they were flushed with the endpoint, though each send had said ok.
TEST_F(TcpChannelDrop, RightAfterOneWayCallsWhichStillArrive) {
  for (int round = 1; round <= 20; ++round) {
    Channel channel = client_.channel(serving_.address());
    for (int i = 0; i < 10; ++i) {
      const Status sent = block(channel.send(kNote, Payload::of("x")));
      ASSERT_TRUE(sent.ok()) << sent.to_string();
    }
    channel = Channel();
    wait_for_no_connection(10u * static_cast<unsigned>(round));
    EXPECT_EQ(noted_, round * 10);
  }
}

}  // namespace
}  // namespace pawl
