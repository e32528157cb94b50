// SPDX-License-Identifier: Apache-2.0
// The node as callee of uploads: each pull is checked by an answer of its own.
#include "pawl/when.h"
#include "protocol/connection_fixture.h"

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

}  // namespace
}  // namespace pawl::rpc
