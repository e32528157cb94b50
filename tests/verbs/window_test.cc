// SPDX-License-Identifier: Apache-2.0
// What reaches the device of windows, and what must not.
#include <algorithm>
#include <cerrno>

#include "verbs/pair.h"

namespace pawl::fabric::verbs {
namespace {

class WindowTest : public VerbsPair {
 protected:
  void SetUp() override {
    start();
    connect();
    area_ = &a_->area(4096, MemoryUse::bulk_window_only);
    window_ = fabric_a_->allocate_window().value();
  }
  void TearDown() override {
    if (window_) {
      EXPECT_TRUE(fabric_a_->free_window(window_).ok());
    }
    VerbsPair::TearDown();
  }
  WorkRequest bind() const {
    return {.op = Opcode::bind, .window = window_, .bind_target = area_->segment(0, 64)};
  }
  WorkRequest invalidate() const { return {.op = Opcode::invalidate, .window = window_}; }
  void refused(const WorkRequest& work) {
    const std::size_t before = qp_a().sends.size();
    Status why;
    EXPECT_TRUE(a_->post(at_a_, {work}, why).empty());
    EXPECT_EQ(why.code(), Code::failed_precondition) << why.to_string();
    EXPECT_EQ(qp_a().sends.size(), before) << "it reached the device";
  }
  void complete_last(ibv_wc_status status = IBV_WC_SUCCESS) {
    fake_.complete(qp_a(), qp_a().sends.back().wr_id, status);
    turns(3);
  }

  Area* area_ = nullptr;
  WindowId window_;
};

TEST_F(WindowTest, TheKeyOfEachBindIsInTheWindowOnceItIsPosted) {
  const std::uint64_t key = fabric_a_->next_window_key(window_);
  a_->post(at_a_, bind());
  const ibv_send_wr bound = qp_a().sends.back();
  EXPECT_EQ(bound.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(bound.bind_mw.rkey, key);
  EXPECT_EQ(bound.bind_mw.mw->rkey, key);
  EXPECT_EQ(bound.bind_mw.bind_info.mw_access_flags,
            unsigned{IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED});
  a_->post(at_a_, invalidate());
  EXPECT_EQ(qp_a().sends.back().opcode, IBV_WR_LOCAL_INV);
  EXPECT_EQ(qp_a().sends.back().invalidate_rkey, key);
  complete_last();
  EXPECT_NE(fabric_a_->next_window_key(window_), key);
}

TEST_F(WindowTest, ASecondInvalidateNeverReachesTheDevice) {
  refused(invalidate());
  a_->post(at_a_, bind());
  refused(bind());
  a_->post(at_a_, invalidate());
  refused(invalidate());
  complete_last();
  refused(invalidate());
}

TEST_F(WindowTest, ABindThatTheDeviceRefusedLeavesTheWindowAsItWas) {
  const std::uint64_t key = fabric_a_->next_window_key(window_);
  const LocalSegment message = a_->area(64).segment(0, 8);
  fake_.failing["post_send 0"] = ENOMEM;
  Status why;
  EXPECT_TRUE(a_->post(at_a_, {bind(), {.op = Opcode::send, .local = std::span(&message, 1)}}, why)
                  .empty());
  fake_.failing.clear();
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_EQ(fabric_a_->next_window_key(window_), key);
  refused(invalidate());
  a_->post(at_a_, bind());
  EXPECT_EQ(qp_a().sends.back().bind_mw.rkey, key);
  fake_.failing["post_send 1"] = ENOMEM;
  EXPECT_TRUE(a_->post(at_a_, {invalidate()}, why).empty());
  fake_.failing.clear();
  a_->post(at_a_, invalidate());
  complete_last();
}

TEST_F(WindowTest, BytesThatMayNotBeLentAreNotBound) {
  WorkRequest work = bind();
  work.bind_target = area_->segment(4096 - 10, 11);
  refused(work);
  work.bind_target.memory = {};
  refused(work);
  work.bind_target = a_->area(64, MemoryUse::messages).segment(0, 64);
  refused(work);
}

TEST_F(WindowTest, ItIsBound255TimesAndNoMore) {
  for (std::uint32_t i = 0; i < kWindowBindsMax; ++i) {
    a_->post(at_a_, bind());
    a_->post(at_a_, invalidate());
    complete_last();
  }
  refused(bind());
}

TEST_F(WindowTest, AfterAnErrorItCanOnlyBeFreed) {
  a_->post(at_a_, bind());
  complete_last(IBV_WC_MW_BIND_ERR);
  ASSERT_NE(a_->event(EventKind::failed, at_a_), nullptr);
  connect();
  refused(bind());
  refused(invalidate());
}

TEST_F(WindowTest, ItIsNotFreedUnderPostedWorkOfALiveEndpoint) {
  a_->post(at_a_, bind());
  EXPECT_EQ(fabric_a_->free_window(window_).code(), Code::failed_precondition);
  EXPECT_EQ(fake_.called["dealloc_mw"], 2) << "one trial of each fabric, and no more";
  fabric_a_->set_error(at_a_);
  EXPECT_TRUE(fabric_a_->free_window(window_).ok()) << "before the flush was polled";
  window_ = {};
  fake_.flush(qp_a());
  ASSERT_TRUE(run_until([&] { return a_->outstanding() == 0; }));
}

TEST_F(WindowTest, ClosedWaitsForTheWindowAndFreeingItWakesThePoller) {
  a_->post(at_a_, bind());
  complete_last();
  fabric_a_->close(at_a_);
  turns(3000);
  EXPECT_EQ(a_->count(EventKind::closed, at_a_), 0u);
  EXPECT_TRUE(qp_a().alive) << "a queue pair under a bound window may take a minute to go";
  while (!fabric_a_->arm()) a_->turn();
  EXPECT_TRUE(fabric_a_->free_window(window_).ok());
  window_ = {};
  EXPECT_FALSE(qp_a().alive && a_->count(EventKind::closed, at_a_) != 0);
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::closed, at_a_) != nullptr; }));
  EXPECT_FALSE(qp_a().alive);
}

TEST_F(WindowTest, TwoBindsInOneChainAreTwoDoorbells) {
  const WindowId other = fabric_a_->allocate_window().value();
  WorkRequest second = bind();
  second.window = other;
  Status why;
  ASSERT_EQ(a_->post(at_a_, {bind(), invalidate(), bind(), second}, why).size(), 4u)
      << why.to_string();
  EXPECT_EQ(qp_a().sends[0].bind_mw.rkey + 1, qp_a().sends[2].bind_mw.rkey);
  EXPECT_EQ(qp_a().sends[2].bind_mw.mw->rkey, qp_a().sends[2].bind_mw.rkey);
  fabric_a_->set_error(at_a_);
  EXPECT_TRUE(fabric_a_->free_window(other).ok());
}

}  // namespace
}  // namespace pawl::fabric::verbs
