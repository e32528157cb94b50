// SPDX-License-Identifier: Apache-2.0
// Endpoints on devices that complete late, out of step, wrongly or never.
#include "fabric/verbs/endpoint.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "pawl/node.h"
#include "verbs/pair.h"

namespace pawl::fabric::verbs {
namespace {

class EndpointTest : public VerbsPair {
 protected:
  void SetUp() override { start(); }

  std::uint64_t send(bool signalled = true) {
    const LocalSegment segment = area().segment(0, 64);
    return a_->post(at_a_,
                    {.op = Opcode::send, .signalled = signalled, .local = std::span(&segment, 1)});
  }
  Area& area() {
    if (area_ == nullptr) area_ = &a_->area(4096);
    return *area_;
  }
  std::uint64_t wr_id(std::size_t n) { return qp_a().sends.at(n).wr_id; }

  Area* area_ = nullptr;
};

TEST_F(EndpointTest, RightsPathAndTimersAreWhatTheContractWants) {
  fake_.devices.back().ports[0].attributes.active_mtu = IBV_MTU_1024;
  fabric_b_.reset();  // made again: it reads the port's MTU when it is made
  b_.reset();
  start();
  connect({.group = {1}, .send_depth = 8, .receive_depth = 4, .read_depth = 3});
  for (const FakeQp* qp : {&qp_a(), &qp_b()}) {
    EXPECT_EQ(qp->init.qp_access_flags, unsigned{IBV_ACCESS_REMOTE_READ}) << "no peer may write";
    EXPECT_EQ(qp->rtr.path_mtu, IBV_MTU_1024) << "the minimum of both ends";
    EXPECT_EQ(qp->rtr.max_dest_rd_atomic, 3);
    EXPECT_EQ(qp->rts.max_rd_atomic, 3);
    EXPECT_NE(qp->rtr.min_rnr_timer, 0) << "0 means 655 ms";
    EXPECT_LE(qp->rts.retry_cnt, 6) << "7 is endless on soft-RoCE";
    EXPECT_EQ(qp->rts.rnr_retry, 7) << "a message waits for its receive";
    EXPECT_EQ(qp->rtr.ah_attr.is_global, 1);
    EXPECT_EQ(qp->state, IBV_QPS_RTS);
  }
  EXPECT_EQ(qp_a().rtr.dest_qp_num, qp_b().qp.qp_num);
  EXPECT_EQ(qp_b().rtr.dest_qp_num, qp_a().qp.qp_num);
  EXPECT_EQ(qp_a().rtr.rq_psn, qp_b().rts.sq_psn);
  EXPECT_EQ(qp_b().rtr.rq_psn, qp_a().rts.sq_psn);

  for (const MemoryUse use : {MemoryUse::bulk, MemoryUse::bulk_window_only, MemoryUse::messages,
                              MemoryUse::generation_words}) {
    a_->area(64, use);
  }
  const unsigned write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  ASSERT_EQ(fake_.access.size(), 4u);
  for (const unsigned rights : fake_.access) EXPECT_EQ(rights & write, 0u);
  EXPECT_EQ(fake_.access[1] & IBV_ACCESS_REMOTE_READ, 0u) << "through windows only";
  EXPECT_EQ(fake_.access[2], unsigned{IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(fake_.access[3] & IBV_ACCESS_RELAXED_ORDERING, 0u) << "the guards rest on the order";
}

// Found over soft-RoCE with lost packets: two timeouts of half a second were longer than a READ may
// take, and a data endpoint was given up that the device had hardly tried.
TEST_F(EndpointTest, TheDeviceHasTriedAllItsTimesWithinTheTimeOfARead) {
  start();
  connect({.group = {1}, .send_depth = 8, .receive_depth = 4, .bulk = true});
  for (const FakeQp* qp : {&qp_a(), &qp_b()}) {
    const auto once = std::chrono::nanoseconds(4096LL << qp->rts.timeout);
    EXPECT_LE(once * (1 + qp->rts.retry_cnt), NodeOptions().read_timeout / 2);
    EXPECT_GE(qp->rts.retry_cnt, 6);
  }
}

TEST_F(EndpointTest, ADeviceOfFewAbilitiesIsUsedWithinThem) {
  fabric_a_.reset();
  a_.reset();
  FakeDevice& plain = fake_.devices.front();
  plain.inline_max = 0;
  plain.windows = false;
  plain.attributes.max_sge_rd = 1;
  plain.attributes.max_qp_init_rd_atom = 1;
  plain.attributes.max_qp_wr = 32;
  start();
  const Capabilities& can = fabric_a_->capabilities();
  EXPECT_EQ(can.inline_bytes_max, 0u);
  EXPECT_EQ(can.read_segments_max, 1u);
  EXPECT_EQ(can.read_depth_max, 1u);
  EXPECT_EQ(can.send_depth_max, 31u) << "one slot is the fabric's own";
  EXPECT_EQ(can.windows, WindowSupport::none);
  EXPECT_EQ(fabric_a_->allocate_window().status().code(), Code::unimplemented);
  connect({.group = {1}, .send_depth = 1000, .receive_depth = 1000, .read_depth = 99});
  EXPECT_EQ(qp_a().cap.max_send_wr, 32u);
  EXPECT_EQ(qp_a().cap.max_recv_wr, 32u);
  EXPECT_EQ(qp_a().cap.max_inline_data, 0u);
  EXPECT_EQ(qp_a().rts.max_rd_atomic, 1);
  EXPECT_EQ(qp_b().rtr.max_dest_rd_atomic, 1);
  a_->area(64);
  EXPECT_EQ(fake_.access.back() & IBV_ACCESS_MW_BIND, 0u);
}

TEST_F(EndpointTest,
       SilentWorkCompletesWithTheNextSignalledAndIsSignalledWhereItWouldFillTheQueue) {
  connect();  // send depth 8
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(send(false));
  const auto& posted = qp_a().sends;
  EXPECT_EQ(
      std::count_if(posted.begin(), posted.end(),
                    [](const ibv_send_wr& wr) { return (wr.send_flags & IBV_SEND_SIGNALED) != 0; }),
      1);
  ASSERT_NE(posted[3].send_flags & IBV_SEND_SIGNALED, 0u) << "half of the queue";
  fake_.complete(qp_a(), wr_id(3), IBV_WC_SUCCESS);
  ASSERT_TRUE(run_until([&] { return a_->done(ids[3]); }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a_->status(ids[i]), "success");
  EXPECT_FALSE(a_->done(ids[4]));
  EXPECT_EQ(fabric_a_->resources().work_requests, 2u);
  fabric_a_->set_error(at_a_);
  fake_.complete(qp_a(), posted.back().wr_id, IBV_WC_WR_FLUSH_ERR);  // the marker behind them
  ASSERT_TRUE(run_until([&] { return a_->outstanding() == 0; }));
  EXPECT_EQ(a_->status(ids[5]), "flushed");
  EXPECT_EQ(posted.back().num_sge, 0);
}

TEST_F(EndpointTest, OfAnErrorOnlyTheValidFieldsAreUsed) {
  connect();
  const std::uint64_t waiting = a_->receive(at_a_, area().segment(512, 64));
  const std::uint64_t first = send(false);
  const LocalSegment to = area().segment(1024, 64);
  const std::uint64_t read = a_->read(at_a_, to, {.key = 1, .address = 2});
  fake_.complete(qp_a(), wr_id(1), IBV_WC_REM_ACCESS_ERR);  // other fields are rubbish
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  EXPECT_EQ(a_->status(read), "remote_access");
  EXPECT_EQ(a_->completion(read)->native, 0x42);
  EXPECT_EQ(a_->completion(read)->bytes, 0u);
  EXPECT_EQ(a_->status(first), "flushed") << "silent, and the one behind it failed";
  const std::string_view why = a_->event(EventKind::failed, at_a_)->status.what();
  EXPECT_NE(why.find("a READ ended with remote_access"), std::string_view::npos) << why;
  EXPECT_EQ(qp_a().state, IBV_QPS_ERR);
  EXPECT_FALSE(a_->done(waiting));
  // The peer hears of it though its device says nothing.
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::failed, at_b_) != nullptr; }));
  EXPECT_NE(b_->event(EventKind::failed, at_b_)->status.what().find("work failed at the peer"),
            std::string_view::npos);
}

TEST_F(EndpointTest, WhatTheDeviceNeverCompletesIsFlushedAfterItsDestruction) {
  connect();
  const std::uint64_t sent = send();
  const std::uint64_t received = a_->receive(at_a_, area().segment(512, 64));
  fabric_a_->set_error(at_a_);
  turns(900);
  EXPECT_FALSE(a_->done(sent)) << "the device has a second for it";
  EXPECT_TRUE(qp_a().alive);
  ASSERT_TRUE(run_until([&] { return a_->done(sent) && a_->done(received); }));
  EXPECT_FALSE(qp_a().alive) << "destroyed first";
  EXPECT_EQ(a_->status(sent), "flushed");
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 0u) << "not by itself";
  // What comes now belongs to nobody, also when the slot has another endpoint.
  const FakeQp& old = qp_a();
  const std::uint64_t late = old.sends[0].wr_id;
  fabric_a_->close(at_a_);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::closed, at_a_) != nullptr; }));
  connect();
  const std::uint64_t next = send();
  EXPECT_NE(wr_id(0), late);
  EXPECT_EQ(WorkName::unpack(wr_id(0)).slot, WorkName::unpack(late).slot)
      << "the slot is used again";
  fake_.complete(old, late, IBV_WC_SUCCESS);
  turns(5);
  EXPECT_FALSE(a_->done(next));
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 0u);
}

TEST_F(EndpointTest, WhatWasInTheQueueBeforeTheDestructionIsTrue) {
  connect();
  const std::uint64_t received = a_->receive(at_a_, area().segment(512, 64));
  fabric_a_->close(at_a_);
  fake_.complete(qp_a(), qp_a().receives[0].wr_id, IBV_WC_SUCCESS, 17);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::closed, at_a_) != nullptr; }));
  EXPECT_EQ(a_->status(received), "success");
  EXPECT_EQ(a_->completion(received)->bytes, 17u);
}

TEST_F(EndpointTest, APeersEndLeavesWorkInFlightTimeForItsOwnReason) {
  connect();
  const std::uint64_t sent = send();
  fabric_b_->close(at_b_);
  turns(20);
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 0u) << "100 ms of grace";
  fake_.complete(qp_a(), wr_id(0), IBV_WC_REM_INV_REQ_ERR);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  EXPECT_EQ(a_->status(sent), "remote_operation");
  connect();
  fabric_b_->close(at_b_);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }))
      << "without work there is nothing to wait for";
}

TEST_F(EndpointTest, TheDevicesOwnEventsFailWhatTheyName) {
  connect();
  const EndpointId first = at_a_;
  FakeQp& broken = qp_a();
  connect();
  fake_.report(IBV_EVENT_QP_ACCESS_ERR, &broken);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, first) != nullptr; }));
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 0u);
  fake_.report(IBV_EVENT_PORT_ERR);
  ASSERT_TRUE(run_until([&] { return a_->count(EventKind::device) == 1; }));
  EXPECT_NE(a_->event(EventKind::device)->status.what().find("fake0 port 1 is down"),
            std::string_view::npos);
  EXPECT_EQ(a_->count(EventKind::failed, at_a_), 0u) << "it may come up again";
  fake_.report(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  EXPECT_EQ(fabric_a_->connect(address_, {}, {}, clock_.now() + 1s).status().code(),
            Code::unavailable);
}

// case 58: the fake raises no events
TEST_F(EndpointTest, WhatCameAfterTheLastPollKeepsThePollerAwake) {
  connect();
  const std::uint64_t id = send();
  turns(3);
  ASSERT_TRUE(fabric_a_->arm());
  fake_.complete(qp_a(), wr_id(0), IBV_WC_SUCCESS);
  EXPECT_FALSE(fabric_a_->arm());
  a_->turn();
  EXPECT_TRUE(a_->done(id));
  EXPECT_TRUE(fabric_a_->arm());
}

// case 13: on some devices the two keys are equal, and a mistake does not show
TEST_F(EndpointTest, PeersGetTheRemoteKeyAndWorkTheLocalOne) {
  connect();
  const LocalSegment segment = area().segment(0, 64);
  const ibv_mr& region = *fake_.regions.back();
  ASSERT_NE(region.lkey, region.rkey);
  const Result<RemoteAddress> remote = fabric_a_->expose({1}, area().handle(), area().at(0), 64);
  ASSERT_TRUE(remote.ok()) << remote.status().to_string();
  EXPECT_EQ(remote->key, region.rkey);
  a_->read(at_a_, segment, {.key = 0x4711, .address = 4096});
  send();
  EXPECT_EQ(qp_a().sends.at(0).wr.rdma.rkey, 0x4711u);
  EXPECT_EQ(qp_a().local_keys, (std::vector<std::uint32_t>{region.lkey, region.lkey}));
}

// cases 51 and 68
TEST_F(EndpointTest, ConnectionsThatFailedOrEndedLeaveNothing) {
  const EndpointOptions deep{.group = {1}, .send_depth = 1000, .receive_depth = 1000};
  const std::string nobody = [&] {
    const ListenerId gone = fabric_a_->listen("127.0.0.1:0").value();
    const std::string address = fabric_a_->listener_address(gone);
    fabric_a_->close_listener(gone);
    return address;
  }();
  std::optional<std::size_t> objects, queues;
  for (int round = 0; round < 50; ++round) {
    const EndpointId refused = fabric_a_->connect(nobody, deep, {}, clock_.now() + 1s).value();
    ASSERT_TRUE(
        run_until([&] { return a_->event(EventKind::connect_failed, refused) != nullptr; }));

    const std::size_t asked = b_->count(EventKind::connect_request);
    const EndpointId rejected = fabric_a_->connect(address_, deep, {}, clock_.now() + 1s).value();
    ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) > asked; }));
    fabric_b_->reject(b_->events(EventKind::connect_request).back()->endpoint, {});
    ASSERT_TRUE(
        run_until([&] { return a_->event(EventKind::connect_failed, rejected) != nullptr; }));

    const EndpointId silent = fabric_a_->connect(address_, deep, {}, clock_.now() + 50ms).value();
    ASSERT_TRUE(run_until([&] { return a_->event(EventKind::connect_failed, silent) != nullptr; }));

    connect(deep);
    fabric_a_->close(at_a_);
    fabric_b_->close(at_b_);
    flush_both();
    ASSERT_TRUE(run_until([&] {
      return fabric_a_->resources().endpoints == 0 && fabric_b_->resources().endpoints == 0;
    }));
    if (!objects) objects = fake_.objects, queues = fake_.cqs.size();
    ASSERT_EQ(fake_.objects, *objects) << round;
    ASSERT_EQ(fake_.cqs.size(), *queues) << round;
  }
}

TEST_F(EndpointTest, CompletionQueuesNeverOverrun) {
  // The device's queues have 4096 entries; each endpoint may need 1 + 1000 + 1000.
  const EndpointOptions large{.group = {1}, .send_depth = 1000, .receive_depth = 1000};
  for (int i = 0; i < 5; ++i) connect(large);
  std::map<ibv_cq*, int> users;
  for (const FakeQp& qp : fake_.qps) {
    if (qp.alive) ++users[qp.qp.send_cq];
  }
  for (const auto& [cq, count] : users) EXPECT_LE(count, 2) << "2001 entries each, of 4096";
  EXPECT_EQ(users.size(), 6u) << "three queues for five endpoints, at both ends";
}

}  // namespace
}  // namespace pawl::fabric::verbs
