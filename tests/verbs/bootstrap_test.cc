// SPDX-License-Identifier: Apache-2.0
// Peers at the bootstrap connection that say the wrong things, or nothing.
#include <sys/socket.h>

#include <array>
#include <string>

#include "fabric/socket/address.h"
#include "fabric/socket/socket.h"
#include "fabric/verbs/greeting.h"
#include "fabric/verbs/limits.h"
#include "verbs/pair.h"

namespace pawl::fabric::verbs {
namespace {

class BootstrapTest : public VerbsPair {
 protected:
  void SetUp() override { start(); }

  /// A plain socket to b's listener.
  UniqueFd dial() {
    const SocketAddress to = parse_target(address_).value().addresses.front();
    UniqueFd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), to.get(), to.length), 0);
    return fd;
  }
  static Greeting request() {
    Greeting greeting;
    greeting.attempt = 77;
    greeting.mtu = 5;
    greeting.qp_number = 0x4711;
    greeting.read_initiator = greeting.read_responder = 4;
    greeting.gid = ipv4_gid(10, 0, 0, 9);
    return greeting;
  }
  static void say(int fd, const Greeting& greeting) {
    std::array<std::byte, kGreetingBytes> bytes;
    encode_greeting(greeting, bytes);
    ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool ended(int fd) {
    std::byte byte{};
    ssize_t n = 0;
    do {
      n = ::recv(fd, &byte, 1, MSG_DONTWAIT);
    } while (n > 0);
    return n == 0 || (errno != EAGAIN && errno != EINTR);
  }
  /// b drops the socket, and its application hears nothing.
  void expect_dropped(int fd) {
    EXPECT_TRUE(run_until([&] { return ended(fd); }));
    EXPECT_TRUE(run_until([&] { return fabric_b_->resources().endpoints == 0; }));
    EXPECT_EQ(b_->count(EventKind::connect_request), 0u);
    EXPECT_EQ(b_->count(EventKind::connect_failed), 0u);
    EXPECT_EQ(fake_.qps.size(), 2u) << "only the trials at the start made queue pairs";
  }
};

TEST_F(BootstrapTest, AnotherProtocolIsDropped) {
  const UniqueFd fd = dial();
  const std::string text(100, 'G');
  ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), 100);
  expect_dropped(fd.get());
}

TEST_F(BootstrapTest, ARequestThatIsNoneIsDropped) {
  for (const GreetingKind kind : {GreetingKind::accept, GreetingKind::ready, GreetingKind::end}) {
    const UniqueFd fd = dial();
    Greeting greeting = request();
    greeting.kind = kind;
    say(fd.get(), greeting);
    expect_dropped(fd.get());
  }
  const UniqueFd fd = dial();
  Greeting greeting = request();
  greeting.qp_number = 0;
  say(fd.get(), greeting);
  expect_dropped(fd.get());
}

TEST_F(BootstrapTest, HalfARequestEndsAtItsDeadlineOrWithItsSocket) {
  UniqueFd silent = dial();
  expect_dropped(silent.get());
  UniqueFd half = dial();
  ASSERT_EQ(::send(half.get(), &kMagic, sizeof kMagic, MSG_NOSIGNAL), 8);
  turns(3);
  EXPECT_EQ(fabric_b_->resources().endpoints, 1u);
  half.reset();
  ASSERT_TRUE(run_until([&] { return fabric_b_->resources().endpoints == 0; }));
  EXPECT_EQ(b_->count(EventKind::connect_request), 0u);
}

TEST_F(BootstrapTest, HandshakesThatAreHalfOpenHaveABoundAndHoldUpNobodyForLong) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < kHalfOpenMax + 20; ++i) silent.push_back(dial());
  turns(100);
  EXPECT_EQ(fabric_b_->resources().endpoints, kHalfOpenMax);
  connect();  // once the silent ones are over
}

TEST_F(BootstrapTest, AfterItsRequestThePeerSaysNothingMore) {
  const UniqueFd fd = dial();
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::connect_failed, b) != nullptr; }));
  EXPECT_EQ(b_->event(EventKind::connect_failed, b)->status.code(), Code::protocol_error);
  EXPECT_EQ(fabric_b_->accept(b, {}, {}).code(), Code::not_found);
}

TEST_F(BootstrapTest, AWordOfAnotherAttemptEndsIt) {
  const UniqueFd fd = dial();
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(fabric_b_->accept(b, {}, {}).ok());
  Greeting ready = request();
  ready.kind = GreetingKind::ready;
  ready.attempt = 78;
  say(fd.get(), ready);
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::connect_failed, b) != nullptr; }));
  EXPECT_EQ(b_->event(EventKind::connect_failed, b)->status.code(), Code::protocol_error);
  EXPECT_EQ(b_->count(EventKind::connected), 0u);
}

TEST_F(BootstrapTest, WhoNeverConfirmsIsGivenUp) {
  const UniqueFd fd = dial();
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(fabric_b_->accept(b, {}, {}).ok());
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::connect_failed, b) != nullptr; }));
  EXPECT_TRUE(run_until([&] { return fabric_b_->resources().endpoints == 0; }));
}

TEST_F(BootstrapTest, TheFirstMessageMayComeBeforeThePeersLastWord) {
  const UniqueFd fd = dial();
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  const std::uint64_t received = b_->receive(b, b_->area(64).segment(0, 64));
  ASSERT_TRUE(fabric_b_->accept(b, {}, {}).ok());
  fake_.complete(fake_.qp(), fake_.qp().receives.at(0).wr_id, IBV_WC_SUCCESS, 5);
  // Side checks that `connected` is taken first.
  ASSERT_TRUE(run_until([&] { return b_->done(received); }));
  EXPECT_EQ(b_->status(received), "success");
  Greeting ready = request();
  ready.kind = GreetingKind::ready;
  say(fd.get(), ready);
  turns(200);
  EXPECT_EQ(b_->count(EventKind::failed, b), 0u) << "late, and not out of order";
  say(fd.get(), ready);
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::failed, b) != nullptr; }));
}

TEST_F(BootstrapTest, OtherNetworksAreRefusedInASentence) {
  for (const bool infiniband : {false, true}) {
    const UniqueFd fd = dial();
    Greeting greeting = request();
    greeting.gid = {0x20, 0x01, 0x0d, 0xb8, 1};
    if (infiniband) greeting.link_layer = LinkLayer::infiniband;
    say(fd.get(), greeting);
    const std::size_t seen = b_->count(EventKind::connect_request);
    ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) > seen; }));
    const EndpointId b = b_->events(EventKind::connect_request).back()->endpoint;
    const Status status = fabric_b_->accept(b, {}, {});
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_NE(status.what().find(infiniband ? "InfiniBand" : "one family"), std::string_view::npos)
        << status.what();
    fabric_b_->close(b);
  }
}

TEST_F(BootstrapTest, WordsOutOfOrderEndALiveConnection) {
  const UniqueFd fd = dial();
  say(fd.get(), request());
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(fabric_b_->accept(b, {}, {}).ok());
  Greeting word = request();
  word.kind = GreetingKind::ready;
  say(fd.get(), word);
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::connected, b) != nullptr; }));
  say(fd.get(), word);
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::failed, b) != nullptr; }));
  EXPECT_EQ(fake_.qp().state, IBV_QPS_ERR);
}

}  // namespace
}  // namespace pawl::fabric::verbs
