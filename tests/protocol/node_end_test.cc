// SPDX-License-Identifier: Apache-2.0
// A Node is destroyed while calls wait, connects are under way or due again, and channels are held:
// every call ends, nothing begins, and what is dropped later finds nothing to do.
#include <atomic>
#include <thread>

#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

/// Every look takes a millisecond, so that what is armed for soon is due at the next.
class ImpatientClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint{ns_.fetch_add(1'000'000, std::memory_order_relaxed)};
  }

 private:
  mutable std::atomic<std::int64_t> ns_{1'000'000'000};
};

class NodeEnd : public ConnectionTest {
 protected:
  struct Echoed {
    std::optional<Outcome<Payload>> outcome;
    Started call;
  };
  void call_echo(Echoed& echoed) {
    const Poller::Scope scope(node_->poller());
    echoed.call = start(
        channel_.call(kEcho, Payload()),
        Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                     static_cast<Echoed*>(to)->outcome.emplace(std::move(outcome));
                                   },
                                   &echoed});
  }
  static void expect_shut_down(const Echoed& echoed) {
    ASSERT_TRUE(echoed.outcome) << "every call that is left fails";
    EXPECT_EQ(echoed.outcome->status().code(), Code::connection_lost);
    EXPECT_EQ(echoed.outcome->ran(), Ran::no);
    EXPECT_NE(echoed.outcome->status().what().find("node was shut down"), std::string_view::npos)
        << echoed.outcome->to_string();
  }
};

TEST_F(NodeEnd, FailsACallThatWaitsForAConnectionThatIsBeingMade) {
  channel_ = node_->channel("peer");
  Echoed echoed;
  call_echo(echoed);
  turn();
  ASSERT_EQ(fabric().connecting.size(), 1u);
  node_.reset();
  expect_shut_down(echoed);
}

TEST_F(NodeEnd, FailsACallThatWaitsForTheNextTry) {
  channel_ = node_->channel("peer");
  Echoed echoed;
  call_echo(echoed);
  turn();
  fabric().connect_failed(fabric().connecting[0], {});
  turn();
  EXPECT_FALSE(echoed.outcome);
  EXPECT_EQ(node_->stats().connects_failed, 1u);
  node_.reset();
  expect_shut_down(echoed);
}

TEST_F(NodeEnd, FailsACallThatItsThreadNeverBegan) {
  channel_ = node_->channel("peer");
  Echoed echoed;
  echoed.call = start(
      channel_.call(kEcho, Payload()),  // posted, since no poller is current
      Callback<Outcome<Payload>>{[](void* to, Outcome<Payload> outcome) {
                                   static_cast<Echoed*>(to)->outcome.emplace(std::move(outcome));
                                 },
                                 &echoed});
  node_.reset();
  ASSERT_TRUE(echoed.outcome);
  EXPECT_EQ(echoed.outcome->status().code(), Code::unavailable);
}

TEST_F(NodeEnd, BeginsNoConnectWhateverIsDueMeanwhile) {
  ImpatientClock clock;
  NodeOptions options;
  options.clock = &clock;
  options.fabric_source = &source_;
  options.pool.grow_inline = true;
  options.seed = 7;
  ChannelOptions soon;
  soon.reconnect_backoff_first = 1ms;
  for (const bool refused : {false, true}) {
    node_.emplace(options);
    channel_ = node_->channel("peer", soon);
    Echoed echoed;
    call_echo(echoed);
    turn();
    ASSERT_FALSE(fabric().connecting.empty());
    // One of them is being made, or is about to be made again.
    if (refused) fabric().connect_failed(fabric().connecting.back(), {});
    node_.reset();
    expect_shut_down(echoed);
    channel_ = Channel();
  }
}

TEST_F(NodeEnd, LetsChannelsBeDroppedLaterByAnyThread) {
  for (int round = 0; round < 50; ++round) {
    NodeOptions options;
    options.clock = &clock_;
    options.fabric_source = &source_;
    options.pool.grow_inline = true;
    options.receive_bytes = 1024;
    options.seed = 7;
    node_.emplace(options);
    std::vector<Channel> channels;
    const std::vector<std::byte> answer = encode_handshake(peer_hello());
    for (std::size_t i = 0; i < 8; ++i) {
      channels.push_back(node_->channel("peer"));
      const Poller::Scope scope(node_->poller());
      connecting_ =
          start(channels.back().connect(), Callback<Status>{[](void*, Status) {}, nullptr});
      turn();
      ASSERT_EQ(fabric().connecting.size(), i + 1);
      if (i % 2 == 0) {
        fabric().connected(fabric().connecting[i], answer);
      } else {
        fabric().connect_failed(fabric().connecting[i], {});
      }
      turn();
    }
    connecting_ = Started();
    node_.reset();
    std::vector<Channel> half(channels.begin(), channels.begin() + 4);
    channels.erase(channels.begin(), channels.begin() + 4);
    std::thread first([dropped = std::move(half)]() mutable { dropped.clear(); });
    std::thread second([dropped = std::move(channels)]() mutable { dropped.clear(); });
    first.join();
    second.join();
  }
}

TEST_F(NodeEnd, LetsAChannelBackOverAConnectionBeDroppedLater) {
  std::vector<Channel> callers;
  put_ = [&](Call& call, Upload&) -> Task<Result<Payload>> {
    for (int i = 0; i < 2; ++i) callers.push_back(call.caller());
    co_return Payload();
  };
  connect();
  Request request;
  request.method = kPut.hash;
  request.remaining_us = 1'000'000;
  feed(FrameType::request, 1, request);
  ASSERT_EQ(callers.size(), 2u);
  node_.reset();
  std::thread first([dropped = std::move(callers[0])]() mutable { dropped = Channel(); });
  std::thread second([dropped = std::move(callers[1])]() mutable { dropped = Channel(); });
  first.join();
  second.join();
}

}  // namespace
}  // namespace pawl::rpc
