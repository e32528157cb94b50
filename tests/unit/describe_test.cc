// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pawl/call.h"

namespace pawl {
namespace {

CallInfo download_over_tcp() {
  CallInfo info;
  info.guard = Guard::verify;
  info.bulk = true;
  info.total = 143us;
  info.queue = 3us;
  info.wire = 60us;
  info.read = 51us;
  info.confirm = 29us;
  info.fabric = "tcp";
  info.fabric_reason = "no RDMA device";
  return info;
}

TEST(DescribeCall, SuccessIsOneLineWithEveryStep) {
  EXPECT_EQ("ok 143 us (queue 3, wire 60, read 51, confirm 29) verify/tcp: no RDMA device",
            describe_call({}, download_over_tcp()));
}

TEST(DescribeCall, FailureEndsWithTheSentenceAndWhetherTheHandlerRan) {
  CallInfo info = download_over_tcp();
  info.total = 50'123us;
  info.read = info.confirm = Duration(0);
  const Status status(Code::deadline, "no answer within 50 ms", Ran::unknown);
  EXPECT_EQ(
      "deadline 50123 us (queue 3, wire 60) verify/tcp: no answer within 50 ms "
      "(ran: unknown)",
      describe_call(status, info));
}

TEST(DescribeCall, StepsAndWordsThatDoNotApplyAreLeftOut) {
  CallInfo info;
  info.total = 21us;
  info.fabric = "verbs";
  EXPECT_EQ("ok 21 us verbs", describe_call({}, info)) << "no bulk: no guard; no steps";
  EXPECT_EQ("unavailable 0 us: no connection to 10.0.0.7:7000 (ran: no)",
            describe_call(Status(Code::unavailable, "no connection to 10.0.0.7:7000"), {}));
}

TEST(DescribeCall, AttemptsAreCountedFromTheSecond) {
  CallInfo info = download_over_tcp();
  info.attempts = 2;
  EXPECT_EQ(
      "ok 143 us (queue 3, wire 60, read 51, confirm 29, 2 attempts) verify/tcp: no RDMA device",
      describe_call({}, info));
}

TEST(DescribeCall, RoundsToTheNearestMicrosecond) {
  CallInfo info;
  info.total = 1'499ns;
  info.queue = 1ns;
  info.fabric = "sim";
  EXPECT_EQ("ok 1 us (queue 0) sim", describe_call({}, info));
  info.total = 1'500ns;
  EXPECT_EQ("ok 2 us (queue 0) sim", describe_call({}, info));
}

}  // namespace
}  // namespace pawl
