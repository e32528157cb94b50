// SPDX-License-Identifier: Apache-2.0
// Paths that pass what is small and swallow what is large. Case 47.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"
#include "support/own_network.h"
#include "support/proxy.h"

namespace pawl {
namespace {

constexpr Method kEcho = make_method("test.BlackHole/Echo");
constexpr Method kGet = make_method("test.BlackHole/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.BlackHole/Put", BulkDirection::upload);
constexpr std::size_t kBytes = std::size_t{1} << 20;

class BlackHole : public ::testing::Test {
 protected:
  BlackHole() {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   std::memset(buffer.bytes().data(), 'g', kBytes);
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto buffer = co_await ok(in.pull(call.pool()));
          co_return Payload::of(std::to_string(buffer.size()));
        });
  }
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    options.read_timeout = 300ms;
    return options;
  }
  void start_server(const std::string& address) {
    server_ = std::make_unique<Node>(tcp());
    Result<Server> serving = server_->serve(address, service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    server_->run_background();
  }
  void start_client(const std::string& address) {
    client_ = std::make_unique<Node>(tcp());
    client_->run_background();
    channel_ = client_->channel(address);
    ASSERT_TRUE(small_passes());
  }
  [[nodiscard]] bool small_passes() const {
    const Outcome<Payload> echo = block(channel_.call(kEcho, Payload::of("small")));
    EXPECT_TRUE(echo.ok()) << echo.to_string();
    return echo.ok() && echo->text() == "small";
  }
  [[nodiscard]] Outcome<Pulled<Payload>> get() const {
    return block(channel_.call(kGet, Payload(), into(client_->pool())));
  }
  [[nodiscard]] Outcome<Payload> put() const {
    Result<Buffer> buffer = block(client_->pool().acquire(kBytes));
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    std::memset(buffer->bytes().data(), 'p', kBytes);
    return block(channel_.call(kPut, Payload(), lend((*std::move(buffer)).freeze())));
  }
  static void expect_hint(const Status& status) {
    EXPECT_EQ(status.code(), Code::data_lost) << status.to_string();
    EXPECT_NE(status.what().find("large packets"), std::string_view::npos) << status.to_string();
    EXPECT_NE(status.what().find("MTU"), std::string_view::npos) << status.to_string();
  }
  testing::FunctionService service_;
  std::unique_ptr<Node> server_;
  Server serving_;
  std::unique_ptr<Node> client_;
  Channel channel_;
};

// case 47
TEST_F(BlackHole, ACallWhoseBytesAreSwallowedFailsAndSaysThatLargePacketsMayBe) {
  for (const bool worked_before : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(start_server("127.0.0.1:0"));
    testing::Proxy way([&](std::size_t) { return serving_.address(); });
    ASSERT_NO_FATAL_FAILURE(start_client(way.address()));
    if (worked_before) {
      EXPECT_TRUE(get().ok());
    }
    way.swallow_beyond(16384);
    const Outcome<Pulled<Payload>> got = get();
    expect_hint(got.status());
    EXPECT_EQ(got.ran(), Ran::yes);
    if (!worked_before) {
      const Outcome<Payload> done = put();
      expect_hint(done.status());
      EXPECT_EQ(done.ran(), Ran::yes);
    }
    EXPECT_TRUE(small_passes());
    EXPECT_EQ(client_->stats().connections_lost, 0u);
    channel_ = Channel();
    client_.reset();
    serving_ = Server();
    server_.reset();
  }
}

// A link of 9000 bytes whose other end takes frames of 1500 from some moment on, and drops larger
// ones without a word. case 47
class BlackHoleLink : public BlackHole {
 protected:
  void SetUp() override {
    for (const testing::OwnNetwork* end : {&here_, &there_}) {
      if (end->missing() != nullptr) GTEST_SKIP() << end->missing();
    }
    here_.enter();
    if (!here_.ip("link add near type veth peer name far netns " + there_.path())) {
      GTEST_SKIP() << "this kernel has no veth interfaces";
    }
    // One segment at a time, or frames are as large as the kernel likes.
    const std::string up = " mtu 9000 gso_max_segs 1 up";
    ASSERT_TRUE(here_.ip("addr add 10.47.0.1/24 dev near") && here_.ip("link set near" + up));
    there_.enter();
    ASSERT_TRUE(there_.ip("addr add 10.47.0.2/24 dev far") && there_.ip("link set far" + up));
    ASSERT_NO_FATAL_FAILURE(start_server("10.47.0.2:0"));
    here_.enter();
    ASSERT_NO_FATAL_FAILURE(start_client(serving_.address()));
    EXPECT_TRUE(put().ok());
  }
  void lower_mtu(bool new_connections_know) const {
    there_.enter();
    ASSERT_TRUE(there_.ip("link set far mtu 1500"));
    if (!new_connections_know) {
      ASSERT_TRUE(there_.ip("route replace 10.47.0.0/24 dev far advmss 8960"));
    }
    here_.enter();
  }
  testing::OwnNetwork here_;
  testing::OwnNetwork there_;
};

// What was connected before stays cut; a new connection is told what the other end takes.
TEST_F(BlackHoleLink, TheNextDataEndpointTakesSegmentsThatPass) {
  ASSERT_NO_FATAL_FAILURE(lower_mtu(true));
  const Outcome<Payload> done = put();
  EXPECT_TRUE(done.ok()) << done.to_string();
  while (server_->stats().read_timeouts == 0) std::this_thread::yield();  // stats are copies
  EXPECT_EQ(server_->stats().read_timeouts, 1u);
  EXPECT_EQ(client_->stats().connections_lost, 0u);
}

TEST_F(BlackHoleLink, WhereEverySegmentIsTooLargeTheCallFailsAndSaysSo) {
  ASSERT_NO_FATAL_FAILURE(lower_mtu(false));
  const Outcome<Payload> done = put();
  expect_hint(done.status());
  EXPECT_TRUE(small_passes());
  EXPECT_EQ(client_->stats().connections_lost, 0u);
}

}  // namespace
}  // namespace pawl
