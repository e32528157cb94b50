// SPDX-License-Identifier: Apache-2.0
// The node as callee of uploads: each pull is checked by an answer of its own.
#include "pawl/when.h"
#include "protocol/connection_fixture.h"
#include "rpc/connection.h"

namespace pawl::rpc {
namespace {

class UploadTest : public ConnectionTest {
 protected:
  /// A handler that pulls two parts at once; the parts' codes are kept.
  void serve_two_pulls() {
    put_ = [this](Call& call, Upload& in) -> Task<Result<Payload>> {
      auto [first, second] = co_await when_all(in.pull(call.pool(), {0, 40'000}),
                                               in.pull(call.pool(), {40'000, 40'000}));
      first_ = first.status().code();
      second_ = second.status().code();
      co_return Payload();
    };
  }
  static FrameHeader request_header(std::uint64_t call) {
    FrameHeader header;
    header.type = FrameType::request;
    header.call = call;
    header.attempt = 1;
    return header;
  }
  /// The READs of both are posted.
  void start_put() {
    connect();
    call_put(1);
    data_endpoint_up();
    ASSERT_EQ(fabric().reads.size(), 2u);
  }
  void complete_second_pull() {
    if (fabric().reads[0].remote.address == 4096) {
      std::swap(fabric().reads[0], fabric().reads[1]);
    }
    ASSERT_EQ(fabric().reads[0].remote.address, 4096u + 40'000);
    fabric().complete_read();
    turn();
  }

  std::optional<Code> first_, second_;
};

// The owner looked before the READ of the other pull was over: its answer says nothing about that.
TEST_F(UploadTest, AnAnswerGoesToThePullThatAsked) {
  serve_two_pulls();
  start_put();
  complete_second_pull();
  ASSERT_TRUE(take(FrameType::confirm)) << "of the second pull";
  fabric().complete_read();
  turn();
  ASSERT_TRUE(take(FrameType::confirm)) << "of the first";
  answer_confirm(1, true);
  EXPECT_FALSE(first_) << "the first was not answered yet";
  answer_confirm(1, false);
  EXPECT_EQ(first_, Code::stale);
  EXPECT_EQ(second_, Code::ok);
}

TEST_F(UploadTest, TheAnswerToADroppedPullConfirmsNoOther) {
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    Started first = start(in.pull(call.pool(), {0, 40'000}),
                          Callback<Result<Buffer>>{[](void*, Result<Buffer>) {}, nullptr});
    co_await sleep_for(1ms);  // its CONFIRM is out
    first.drop();
    auto second = co_await in.pull(call.pool(), {40'000, 40'000});
    second_ = second.status().code();
    co_return Payload();
  };
  connect();
  call_put(1);
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 1u);
  fabric().complete_read();
  turn();
  ASSERT_TRUE(take(FrameType::confirm));
  clock_.advance(1ms);
  turn();
  ASSERT_EQ(fabric().reads.size(), 1u) << "of the second pull";
  fabric().complete_read();
  turn();
  ASSERT_TRUE(take(FrameType::confirm));
  answer_confirm(1, true);
  EXPECT_FALSE(second_) << "that was the answer to the first";
  answer_confirm(1, false);
  EXPECT_EQ(second_, Code::stale);
}

// The answer of a handler gives the lease back: it waits for READs that are still under way.
TEST_F(UploadTest, TheAnswerComesAfterTheLastRead) {
  put_ = [](Call& call, Upload& in) -> Task<Result<Payload>> {
    Started pull = start(in.pull(call.pool()),
                         Callback<Result<Buffer>>{[](void*, Result<Buffer>) {}, nullptr});
    co_await sleep_for(1ms);
    pull.drop();
    co_return Status(Code::not_found, "it is not wanted any more");
  };
  start_put();
  clock_.advance(1ms);
  turn();
  EXPECT_FALSE(take(FrameType::response)) << "its READs are out";
  finish_reads();
  const auto response = take_body<Response>(FrameType::response);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->code, Code::not_found);
  EXPECT_FALSE(take(FrameType::confirm));
}

TEST_F(UploadTest, AGuardThatWasNotNegotiatedEndsTheConnection) {
  connect();
  SegmentDescriptor segment;
  segment.kind = KeyKind::region;
  segment.length = kBytes;
  segment.key = 77;
  std::vector<std::byte> list(SegmentDescriptor::kBytes);
  encode(segment, list);
  Request request;
  request.method = kPut.hash;
  request.lease.emplace();
  request.lease->lease = {5, 9};
  request.lease->guard = Guard::none;
  request.lease->segments = 1;
  request.segments = list;
  feed(FrameType::request, 1, request);
  EXPECT_TRUE(over());
  EXPECT_EQ(node_->stats().served_started, 0u);
}

// The caller took one of two segments back: what was pulled of the other is good.
TEST_F(UploadTest, AWithdrawnSegmentSpoilsOnlyPullsOfIt) {
  std::vector<Code> alone, held;
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    for (std::size_t i = 0; i < in.segments(); ++i) {
      auto pulled = co_await in.pull_segment(i, call.pool());
      alone.push_back(pulled.status().code());
    }
    auto across = co_await in.pull(call.pool(), {kBytes / 2, kBytes});
    alone.push_back(across.status().code());
    // One check for what lies in segment 1 only.
    auto unconfirmed = co_await in.pull_unconfirmed(call.pool(), {kBytes, 100});
    held.push_back(unconfirmed.status().code());
    auto confirmed = co_await in.confirm();
    held.push_back(confirmed.status().code());
    // And one for what lies in both.
    auto both = co_await in.pull_unconfirmed(call.pool(), {kBytes - 50, 100});
    held.push_back(both.status().code());
    auto refused = co_await in.confirm();
    held.push_back(refused.status().code());
    co_return Payload();
  };
  connect();
  call_put(1, 2);
  data_endpoint_up();
  for (int i = 0; i < 5; ++i) {
    finish_reads();
    ASSERT_TRUE(take(FrameType::confirm)) << i;
    answer_confirm(1, true, {std::byte{0xfe}});  // not segment 0
  }
  EXPECT_EQ(alone, (std::vector{Code::stale, Code::ok, Code::stale}));
  EXPECT_EQ(held, (std::vector{Code::ok, Code::ok, Code::ok, Code::stale}));
}

// The device hears of all READs of a turn at once.
TEST_F(UploadTest, ReadsOfATurnArePostedInOneChain) {
  serve_two_pulls();
  start_put();
  EXPECT_EQ(fabric().read_chains, std::vector<std::size_t>{2});
}

// The READ had to wait for the endpoint's depth, and the deadline passed in the meantime. Its timer
// has not been looked at yet when the READ before it completes.
TEST_F(UploadTest, NoReadIsPostedAfterTheDeadline) {
  fabric().set_read_depth(2);  // one READ at a time
  serve_two_pulls();
  connect();
  call_put(1);
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 1u);
  clock_.advance(1s);
  fabric().complete_read();
  turn();
  EXPECT_TRUE(fabric().reads.empty());
  EXPECT_EQ(node_->stats().reads_posted, 1u);
}

// Receives of a turn go back in one chain, and before the peer is told of their credit.
TEST_F(UploadTest, ReceivesOfATurnAreRepostedInOneChain) {
  connect();
  fabric().receive_chains.clear();
  const std::size_t posted = fabric().receives(control_);
  Request request;
  request.method = kEcho.hash;
  std::vector<std::byte> body(4096);
  body.resize(encode(request, body));
  for (std::uint64_t call = 1; call <= 5; ++call) {
    ASSERT_TRUE(fabric().arrive(control_, message_of(request_header(call), body)));
  }
  turn();
  EXPECT_EQ(fabric().receive_chains, std::vector<std::size_t>{5});
  EXPECT_EQ(fabric().receives(control_), posted);
}

// A peer that lends, never answers the check and cancels.
TEST_F(UploadTest, APeerThatAnswersNoConfirmIsGivenUp) {
  returns_credit_ = true;
  put_ = [](Call& call, Upload& in) -> Task<Result<Payload>> {
    (void)co_await in.pull(call.pool());
    co_return Payload();
  };
  connect();
  call_put(1);
  data_endpoint_up();
  Cancel cancel;
  cancel.reason = Code::cancelled;
  for (std::uint64_t call = 1; call <= Connection::kConfirmsUnansweredMax; ++call) {
    if (call > 1) call_put(call);
    finish_reads();
    feed(FrameType::cancel, call, cancel);
    fabric().sent.clear();
  }
  EXPECT_FALSE(over());
  call_put(Connection::kConfirmsUnansweredMax + 1);
  finish_reads();
  EXPECT_TRUE(over());
}

}  // namespace
}  // namespace pawl::rpc
