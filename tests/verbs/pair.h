// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "fabric/verbs/make.h"
#include "support/fabric_side.h"
#include "verbs/fake_verbs.h"

namespace pawl::fabric::verbs {

using testing::Area;
using testing::Side;

/// Two fabrics on invented devices, whose bootstrap sockets are real, in a time that the test
/// moves.
class VerbsPair : public ::testing::Test {
 protected:
  VerbsPair() {
    fake_.add_device("fake0", ipv4_gid(10, 0, 0, 1));
    fake_.add_device("fake1", ipv4_gid(10, 0, 0, 2));
  }
  void TearDown() override {
    EXPECT_EQ(fake_.failing.size(), 0u) << "a test leaves its faults behind";
    a_.reset(), b_.reset();
    fabric_a_.reset(), fabric_b_.reset();
    EXPECT_EQ(fake_.objects, 0u) << "objects of the device are left";
  }

  void start() {
    fabric_a_ = make_fabric(FakeVerbs::calls(), {.device = "fake0"}, seen_).value();
    fabric_b_ = make_fabric(FakeVerbs::calls(), {.device = "fake1"}, seen_).value();
    a_ = std::make_unique<Side>(*fabric_a_, clock_, 1);
    b_ = std::make_unique<Side>(*fabric_b_, clock_, 1'000'000);
    listener_ = fabric_b_->listen("127.0.0.1:0").value();
    address_ = fabric_b_->listener_address(listener_);
  }
  /// Turns of both, a millisecond each, until `done`; false if it does not come to be.
  bool run_until(const std::function<bool()>& done);
  void turns(int count);

  /// a connects, b accepts; both have taken `connected`.
  void connect(const EndpointOptions& options = {
                   .group = {1}, .send_depth = 8, .receive_depth = 4});
  /// a's and b's queue pairs of the last connect.
  FakeQp& qp_a() { return fake_.qp(1); }
  FakeQp& qp_b() { return fake_.qp(0); }
  /// In ERR, everything that was posted is flushed by the devices.
  void flush_both() { fake_.flush(qp_a()), fake_.flush(qp_b()); }

  ManualClock clock_;
  FakeVerbs fake_;
  std::vector<LocalAddress> addresses_{{.gid = ipv4_gid(10, 0, 0, 1), .netdev = "eth0"},
                                       {.gid = ipv4_gid(10, 0, 0, 2), .netdev = "eth1"}};
  const AddressSource seen_ = [this] { return addresses_; };
  std::unique_ptr<Fabric> fabric_a_, fabric_b_;
  std::unique_ptr<Side> a_, b_;
  ListenerId listener_;
  std::string address_;
  EndpointId at_a_, at_b_;
};

}  // namespace pawl::fabric::verbs
