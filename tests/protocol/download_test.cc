// SPDX-License-Identifier: Apache-2.0
// The node as caller of downloads: what it reads, releases and believes when things go otherwise.
#include <vector>

#include "protocol/connection_fixture.h"

namespace pawl::rpc {
namespace {

class DownloadTest : public ConnectionTest {
 protected:
  static SegmentDescriptor lent(std::uint64_t bytes = kBytes) {
    SegmentDescriptor segment;
    segment.kind = KeyKind::region;
    segment.length = bytes;
    segment.key = 77;
    segment.address = 4096;
    return segment;
  }
  static std::vector<std::byte> answer_body(std::span<const SegmentDescriptor> segments,
                                            LeaseName lease = {5, 9}) {
    std::vector<std::byte> list(segments.size() * SegmentDescriptor::kBytes);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      encode(segments[i], std::span(list).subspan(i * SegmentDescriptor::kBytes));
    }
    Response response;
    response.lease.emplace();
    response.lease->lease = lease;
    response.lease->segments = static_cast<std::uint16_t>(segments.size());
    response.segments = list;
    std::vector<std::byte> body(list.size() + 4096);
    body.resize(encode(response, body));
    return body;
  }
  void answer(std::uint64_t call, std::span<const SegmentDescriptor> segments,
              LeaseName lease = {5, 9}) {
    feed_bytes(FrameType::response, call, answer_body(segments, lease));
  }
  void expect_released(LeaseName lease = {5, 9}) {
    const auto release = take_body<Release>(FrameType::release);
    ASSERT_TRUE(release) << "the callee's buffer stays lent until the deadline";
    EXPECT_EQ(release->lease, lease);
  }
};

TEST_F(DownloadTest, ATransferThatNobodyWantsIsNotTriedAgain) {
  connect();
  Ended ended;
  answer_with_descriptor(call_get(ended));
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 2u);
  fabric().stuck = true;  // the second one's flush is still to come when the call is dropped
  fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
  fabric().failed(data_);
  turn();
  {
    const Poller::Scope scope(node_->poller());
    call_.drop();
  }
  turn();
  EXPECT_EQ(node_->stats().transfers_live, 1u);
  fabric().unstick();
  turn();
  EXPECT_EQ(node_->stats().transfers_live, 0u);
  EXPECT_EQ(node_->pool().stats().bytes_in_use, 0u);
}

/// READs that never complete, over one data endpoint and then over the next. Case 47.
class HangingReads : public DownloadTest {
 protected:
  void begin(Duration deadline) {
    connect();
    answer_with_descriptor(call_get(ended_, deadline));
    data_endpoint_up();
    ASSERT_EQ(fabric().reads.size(), 2u);
  }
  void after_read_timeout() {
    clock_.advance(1s);
    turn();
  }
  void next_endpoint() {
    if (fabric().connecting.size() < 3) advance_to_next_timer();
    data_endpoint_up(3);
    ASSERT_EQ(fabric().reads.size(), 2u);
  }
  void expect(Code code, bool hint) {
    ASSERT_TRUE(ended_.outcome);
    const Status& status = ended_.outcome->status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(ended_.outcome->ran(), Ran::yes);
    EXPECT_EQ(status.what().find("large packets") != std::string_view::npos, hint)
        << status.to_string();
    EXPECT_NE(status.what().find("peer"), std::string_view::npos) << status.to_string();
  }
  Ended ended_;
};

// case 47
TEST_F(HangingReads, OverTwoEndpointsThePathMayDropLargePackets) {
  begin(20s);
  after_read_timeout();
  EXPECT_FALSE(ended_.outcome);
  next_endpoint();
  after_read_timeout();
  expect(Code::data_lost, true);
}

// case 47
TEST_F(HangingReads, AsTheDeviceReportsThem) {
  begin(20s);
  fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
  turn();
  next_endpoint();
  fabric().complete_read(fabric::CompletionStatus::retry_exceeded);
  turn();
  expect(Code::data_lost, true);
}

// case 47
TEST_F(HangingReads, AtTheDeadlineDuringTheSecondTry) {
  begin(1500ms);
  after_read_timeout();
  next_endpoint();
  clock_.advance(500ms);
  turn();
  expect(Code::deadline, true);
  EXPECT_NE(ended_.outcome->status().what().find("0 of "), std::string_view::npos);
}

// case 47
TEST_F(HangingReads, WhoseTimeIsUpDuringTheFirstTryOnlySaysHowFarItIs) {
  begin(500ms);
  clock_.advance(500ms);
  turn();
  expect(Code::deadline, false);
  EXPECT_NE(ended_.outcome->status().what().find("0 of "), std::string_view::npos);
}

// Something large came: it is no path that drops everything large.
TEST_F(HangingReads, WhereOneCameInTheFirstTryNothingIsSaidOfThePath) {
  begin(20s);
  clock_.advance(1ms);
  fabric().complete_read();
  after_read_timeout();
  next_endpoint();
  after_read_timeout();
  expect(Code::data_lost, false);
}

TEST_F(HangingReads, WhereOneCameInTheSecondTryNothingIsSaidOfThePath) {
  begin(20s);
  after_read_timeout();
  next_endpoint();
  clock_.advance(1ms);
  fabric().complete_read();
  after_read_timeout();
  expect(Code::data_lost, false);
}

// The data endpoint cannot be opened: the caller hears why. Case 43.
TEST_F(HangingReads, WithoutADataEndpointTheDeadlineSaysWhyThereIsNone) {
  connect();
  answer_with_descriptor(call_get(ended_, 200ms));
  Handshake refusal;
  refusal.refusal = Status(Code::permission_denied, "not here");
  fabric().connect_failed(fabric().connecting[1], encode_handshake(refusal));
  turn();
  clock_.advance(200ms);
  turn();
  expect(Code::deadline, false);
  EXPECT_NE(ended_.outcome->status().what().find("peer refused it: not here"),
            std::string_view::npos)
      << ended_.outcome->status().to_string();
}

// More READs than the endpoint's depth, the first of which never completes.
TEST_F(DownloadTest, AGrantThatIsPartlyPostedHasItsTimeLimitToo) {
  fabric().set_read_depth(2);
  connect();
  Ended ended;
  const std::vector<SegmentDescriptor> segments(4, lent(5000));
  answer(call_get(ended, 20s), segments);
  data_endpoint_up();
  ASSERT_EQ(fabric().reads.size(), 1u);
  clock_.advance(999ms);
  turn();
  EXPECT_FALSE(fabric().closed_endpoints[data_.value]);
  clock_.advance(1ms);
  turn();
  EXPECT_TRUE(fabric().closed_endpoints[data_.value]);
  EXPECT_EQ(node_->stats().read_timeouts, 1u);
}

// The answer and the loss of the data endpoint come in one turn: what flow control granted goes
// back to it, however often.
TEST_F(DownloadTest, GrantsOfATransferThatCannotPostGoBack) {
  connect();
  returns_credit_ = true;
  std::size_t connects = 2;
  for (int i = 0; i < 40; ++i) {
    Ended ended;
    const std::uint64_t call = call_get(ended, 20s);
    FrameHeader frame;
    frame.type = FrameType::response;
    frame.call = call;
    frame.attempt = 1;
    const std::vector<SegmentDescriptor> segments(1, lent());
    std::vector<std::byte> message = message_of(frame, answer_body(segments));
    return_credit(message);
    ASSERT_TRUE(fabric().arrive(control_, message));
    if (i > 0) {
      clock_.advance(10ms);  // it stood for longer than the delay before the next one
      fabric().failed(data_);
    }
    turn();
    if (i > 0) advance_to_next_timer();
    data_endpoint_up(connects++);
    ASSERT_EQ(fabric().reads.size(), 2u) << "in round " << i;
    finish_reads();
    ASSERT_TRUE(take(FrameType::confirm));
    answer_confirm(call, true);
    ASSERT_TRUE(ended.outcome);
    EXPECT_TRUE(ended.outcome->ok()) << ended.outcome->to_string();
    fabric().sent.clear();
  }
}

// The bitmap of a check counts the segments that have a key.
TEST_F(DownloadTest, ASegmentThatWasTakenBackIsTheOneThatIsRefused) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer(call, std::vector<SegmentDescriptor>{SegmentDescriptor{}, lent(), lent()});
  data_endpoint_up();
  finish_reads();
  ASSERT_TRUE(take(FrameType::confirm));
  answer_confirm(call, true, {std::byte{0b10}});
  ASSERT_TRUE(ended.outcome && ended.outcome->ok());
  const auto parts = (*ended.outcome)->parts();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(parts[0].ok());
  EXPECT_EQ(parts[1].status().code(), Code::stale);
  EXPECT_TRUE(parts[2].ok());
}

TEST_F(DownloadTest, ALeaseOfWhichNothingIsWantedIsReleasedAtOnce) {
  connect();
  Ended ended;
  const std::uint64_t call =
      call_get(ended, into(node_->pool()).range(ByteRange{kBytes, 10}), std::chrono::seconds(1));
  answer_with_descriptor(call);
  ASSERT_TRUE(ended.outcome);
  EXPECT_TRUE(ended.outcome->ok()) << ended.outcome->to_string();
  expect_released();
  EXPECT_EQ(fabric().connecting.size(), 1u) << "there is nothing to read";
}

TEST_F(DownloadTest, WithoutLandingMemoryTheLeaseIsReleased) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer(call, std::vector<SegmentDescriptor>(20, lent(std::uint64_t{64} << 20)));
  ASSERT_TRUE(ended.outcome);
  EXPECT_FALSE(ended.outcome->ok());
  EXPECT_EQ(ended.outcome->ran(), Ran::yes);
  expect_released();
}

TEST_F(DownloadTest, TheLossOfTheConnectionDuringThePullIsNoProofThatNothingRan) {
  connect();
  Ended ended;
  answer_with_descriptor(call_get(ended));
  data_endpoint_up();
  fabric().failed(control_);
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::connection_lost);
  EXPECT_NE(ended.outcome->ran(), Ran::no) << "it would be made again";
}

TEST_F(DownloadTest, ASecondAnswerIsReleasedUnread) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  answer(call, std::vector<SegmentDescriptor>(1, lent()), {6, 11});
  expect_released({6, 11});
  finish_reads();
  const auto confirm = take_body<Confirm>(FrameType::confirm);
  ASSERT_TRUE(confirm);
  EXPECT_EQ(confirm->lease, (LeaseName{5, 9}));
  answer_confirm(call, true);
  ASSERT_TRUE(ended.outcome);
  EXPECT_TRUE(ended.outcome->ok()) << ended.outcome->to_string();
}

// The owner's device refused it: no check was sent that would have ended the lease.
TEST_F(DownloadTest, ARefusedReadGivesTheLeaseBack) {
  connect();
  Ended ended;
  const std::uint64_t call = call_get(ended);
  answer_with_descriptor(call);
  data_endpoint_up();
  while (!fabric().reads.empty()) {
    fabric().complete_read(fabric::CompletionStatus::remote_access);
  }
  turn();
  ASSERT_TRUE(ended.outcome);
  EXPECT_EQ(ended.outcome->status().code(), Code::stale);
  EXPECT_FALSE(take(FrameType::confirm));
  const auto cancel = take(FrameType::cancel);
  ASSERT_TRUE(cancel) << "the callee's buffer stays lent until the deadline";
  EXPECT_EQ(cancel->header.call, call);
}

}  // namespace
}  // namespace pawl::rpc
