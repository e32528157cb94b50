// SPDX-License-Identifier: Apache-2.0
// Each call of libibverbs fails once: the status names it, the errno, the object and what to do.
#include <cerrno>
#include <string>

#include "support/plain_memory.h"
#include "verbs/pair.h"

namespace pawl::fabric::verbs {
namespace {

void expect_names(const Status& status, Code code, int error,
                  std::initializer_list<std::string_view> words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_EQ(status.native(), error);
  for (const std::string_view word : words) {
    EXPECT_NE(status.what().find(word), std::string_view::npos)
        << "\"" << word << "\" in: " << status.to_string();
  }
}

class FailingCalls : public VerbsPair {
 protected:
  Status make_status(const char* call, int error) {
    fake_.failing[call] = error;
    const Status status = make_fabric(FakeVerbs::calls(), {.device = "fake0"}, seen_).status();
    fake_.failing.clear();
    EXPECT_EQ(fake_.objects, 0u) << call << ": something is left";
    return status;
  }
};

TEST_F(FailingCalls, WhileTheFabricIsMade) {
  expect_names(make_status("get_device_list", ENOSYS), Code::unimplemented, ENOSYS,
               {"ibv_get_device_list", "ENOSYS", "modprobe"});
  expect_names(make_status("open_device", EACCES), Code::not_found, 0,
               {"ibv_open_device", "EACCES", "fake0", "/dev/infiniband"});
  expect_names(make_status("query_port", EIO), Code::not_found, 0, {"ibv_query_port", "EIO"});
  expect_names(make_status("query_device", EIO), Code::not_found, 0, {"ibv_query_device", "fake0"});
  expect_names(make_status("alloc_pd", ENOMEM), Code::resource_exhausted, ENOMEM,
               {"ibv_alloc_pd", "ENOMEM", "fake0", "max_pd"});
  expect_names(make_status("create_comp_channel", EMFILE), Code::resource_exhausted, EMFILE,
               {"ibv_create_comp_channel", "EMFILE", "nofile"});
  expect_names(make_status("create_cq", ENOMEM), Code::resource_exhausted, ENOMEM,
               {"ibv_create_cq", "ENOMEM"});
  expect_names(make_status("create_qp", EINVAL), Code::internal, EINVAL,
               {"ibv_create_qp", "EINVAL", "fake0"});
}

TEST_F(FailingCalls, RegisteringMemory) {
  start();
  testing::PlainMemory kind;
  alignas(64) static std::byte memory[4096];
  for (const int error : {ENOMEM, EAGAIN, EFAULT}) {
    fake_.failing["reg_mr"] = error;
    const Status status = fabric_a_->register_memory(memory, kind, MemoryUse::bulk).status();
    fake_.failing.clear();
    expect_names(status, error != EFAULT ? Code::resource_exhausted : Code::invalid_argument, error,
                 {"ibv_reg_mr", "4096 bytes", "fake0", error != EFAULT ? "ulimit -l" : "mapped"});
  }
  EXPECT_EQ(fabric_a_->resources().registrations, 0u);
  // While a window is bound, nothing is ended: whatever the device calls it.
  const MemoryHandle handle = fabric_a_->register_memory(memory, kind, MemoryUse::bulk).value();
  for (const int error : {EBUSY, EINVAL}) {
    fake_.failing["dereg_mr"] = error;
    const Status status = fabric_a_->deregister_memory(handle);
    fake_.failing.clear();
    expect_names(status, Code::failed_precondition, EBUSY, {"ibv_dereg_mr", "window"});
    EXPECT_EQ(fabric_a_->resources().registrations, 1u);
  }
  EXPECT_TRUE(fabric_a_->deregister_memory(handle).ok());
  EXPECT_EQ(fabric_a_->deregister_memory(handle).code(), Code::not_found);
}

TEST_F(FailingCalls, Windows) {
  start();
  fake_.failing["alloc_mw"] = ENOMEM;
  expect_names(fabric_a_->allocate_window().status(), Code::resource_exhausted, ENOMEM,
               {"ibv_alloc_mw", "ENOMEM", "max_mw"});
  fake_.failing.clear();
  const WindowId window = fabric_a_->allocate_window().value();
  fake_.failing["dealloc_mw"] = EIO;
  expect_names(fabric_a_->free_window(window), Code::unavailable, EIO, {"ibv_dealloc_mw"});
  fake_.failing.clear();
  EXPECT_EQ(fabric_a_->resources().windows, 1u) << "not freed, not forgotten";
  EXPECT_TRUE(fabric_a_->free_window(window).ok());
}

TEST_F(FailingCalls, Connecting) {
  start();
  for (const char* call : {"create_qp", "modify_qp init"}) {
    fake_.failing[call] = ENOMEM;
    const Status status = fabric_a_->connect(address_, {}, {}, clock_.now() + 10s).status();
    fake_.failing.clear();
    expect_names(status, Code::resource_exhausted, ENOMEM, {"ibv_", "ENOMEM", "fake0"});
  }
  EXPECT_EQ(fabric_a_->resources().endpoints, 0u);
  // The path is refused at the accepting end: its caller hears of it and may still reject.
  for (const char* call : {"modify_qp rtr", "modify_qp rts", "create_qp", "post_recv"}) {
    const EndpointId a = fabric_a_->connect(address_, {}, {}, clock_.now() + 10s).value();
    const std::size_t seen = b_->count(EventKind::connect_request);
    ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) > seen; }));
    const EndpointId b = b_->events(EventKind::connect_request).back()->endpoint;
    b_->receive(b, b_->area(64).segment(0, 64));
    fake_.failing[call] = ETIMEDOUT;
    const Status status = fabric_b_->accept(b, {}, {});
    fake_.failing.clear();
    expect_names(status, Code::unavailable, ETIMEDOUT, {"ibv_", "ETIMEDOUT"});
    fabric_b_->reject(b, {});
    ASSERT_TRUE(run_until([&] { return a_->event(EventKind::connect_failed, a) != nullptr; }));
    EXPECT_EQ(b_->outstanding(), 0u) << "its receive was flushed";
  }
}

TEST_F(FailingCalls, TheConnectingEndsPath) {
  start();
  const EndpointId a = fabric_a_->connect(address_, {}, {}, clock_.now() + 10s).value();
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) == 1; }));
  const EndpointId b = b_->event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(fabric_b_->accept(b, {}, {}).ok());
  fake_.failing["modify_qp rtr"] = EHOSTUNREACH;
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::connect_failed, a) != nullptr; }));
  fake_.failing.clear();
  const Status& status = a_->event(EventKind::connect_failed, a)->status;
  EXPECT_EQ(status.code(), Code::unavailable);
  for (const char* word : {"ibv_modify_qp", "EHOSTUNREACH", "10.0.0.1", "10.0.0.2", "fake0"}) {
    EXPECT_NE(status.what().find(word), std::string_view::npos) << word << ": " << status.what();
  }
  ASSERT_TRUE(run_until([&] { return b_->event(EventKind::connect_failed, b) != nullptr; }));
}

TEST_F(FailingCalls, PostingTellsHowManyWereTaken) {
  start();
  connect();
  Area& area = a_->area(4096);
  const LocalSegment segment = area.segment(0, 64);
  const WorkRequest work{.op = Opcode::send, .local = std::span(&segment, 1)};
  fake_.failing["post_send 2"] = ENOMEM;
  Status why;
  EXPECT_EQ(a_->post(at_a_, {work, work, work, work}, why).size(), 2u);
  fake_.failing.clear();
  expect_names(why, Code::resource_exhausted, ENOMEM, {"ibv_post_send", "queue is full"});
  EXPECT_EQ(fabric_a_->resources().work_requests, 2u);
  fabric_a_->set_error(at_a_);
  fake_.flush(qp_a());
  ASSERT_TRUE(run_until([&] { return a_->outstanding() == 0; }));
}

TEST_F(FailingCalls, PostingReceivesTellsHowManyWereTaken) {
  start();
  connect();
  const LocalSegment segment = a_->area(64).segment(0, 64);
  const WorkRequest work{.op = Opcode::receive, .local = std::span(&segment, 1)};
  fake_.failing["post_recv 2"] = ENOMEM;
  Status why;
  EXPECT_EQ(a_->post(at_a_, {work, work, work, work}, why).size(), 2u);
  fake_.failing.clear();
  expect_names(why, Code::resource_exhausted, ENOMEM, {"ibv_post_recv"});
  EXPECT_EQ(fabric_a_->resources().work_requests, 2u);
  fabric_a_->set_error(at_a_);
  fake_.flush(qp_a());
  ASSERT_TRUE(run_until([&] { return a_->outstanding() == 0; }));
}

TEST_F(FailingCalls, PollingEndsTheDevice) {
  start();
  connect();
  fake_.failing["poll_cq"] = EIO;
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  fake_.failing.clear();
  const Event* const device = a_->event(EventKind::device);
  ASSERT_NE(device, nullptr);
  EXPECT_NE(device->status.what().find("a completion queue of it cannot be polled"),
            std::string_view::npos)
      << device->status.what();
}

// case 84: its poller must be able to sleep
TEST_F(FailingCalls, ADeviceThatIsGoneIsNotArmedAgain) {
  start();
  connect();
  fake_.failing["req_notify_cq"] = EIO;
  turns(3);
  EXPECT_FALSE(fabric_a_->arm());
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  fabric_a_->close(at_a_);
  fake_.flush(qp_a());
  EXPECT_TRUE(run_until([&] { return fabric_a_->arm(); }));
  fake_.failing.clear();
}

TEST_F(FailingCalls, ArmingEndsTheDevice) {
  start();
  connect();
  fake_.failing["req_notify_cq"] = EIO;
  turns(3);
  EXPECT_FALSE(fabric_a_->arm());
  fake_.failing.clear();
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::failed, at_a_) != nullptr; }));
  const Event* const device = a_->event(EventKind::device);
  ASSERT_NE(device, nullptr);
  EXPECT_NE(device->status.what().find("ibv_req_notify_cq"), std::string_view::npos);
  EXPECT_EQ(fabric_a_->connect(address_, {}, {}, clock_.now() + 1s).status().code(),
            Code::unavailable);
}

TEST_F(FailingCalls, AQueuePairThatIsNotDestroyedKeepsItsMemory) {
  start();
  connect();
  const std::uint64_t posted = a_->receive(at_a_, a_->area(64).segment(0, 64));
  fake_.failing["destroy_qp"] = EBUSY;
  fabric_a_->close(at_a_);
  turns(3000);  // more than the time to drain
  EXPECT_FALSE(a_->done(posted)) << "its memory may still be written to";
  EXPECT_EQ(a_->count(EventKind::closed, at_a_), 0u);
  EXPECT_EQ(a_->count(EventKind::device), 1u) << "said once";
  EXPECT_NE(a_->event(EventKind::device)->status.what().find("ibv_destroy_qp"),
            std::string_view::npos);
  fake_.failing.clear();
  ASSERT_TRUE(run_until([&] { return a_->event(EventKind::closed, at_a_) != nullptr; }));
  EXPECT_EQ(a_->status(posted), "flushed");
}

}  // namespace
}  // namespace pawl::fabric::verbs
