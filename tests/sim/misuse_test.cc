// SPDX-License-Identifier: Apache-2.0
// Mistakes of users: each is refused by name, and nothing is lost or sent.
#include <string>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::payload;

constexpr Method kGet = make_method("test.Misuse/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Misuse/Put", BulkDirection::upload);
constexpr std::size_t kBytes = 100'000;

class MisuseTest : public testing::StackFixture {
 protected:
  MisuseTest() {
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          out.add(answer_);
          co_return Payload();
        });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
  }
  Outcome<Pulled<Payload>> get(Into into) {
    return world_.run(*client_, channel_.call(kGet, Payload(), std::move(into)));
  }
  Outcome<Payload> put(Lend lend) {
    return world_.run(*client_, channel_.call(kPut, Payload(), std::move(lend)));
  }
  void expect_refused_unsent(const Status& status, Code code, std::string_view word) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.ran(), Ran::no);
    EXPECT_NE(status.what().find(word), std::string_view::npos) << status.to_string();
    EXPECT_EQ(server_->stats().served_started, 0u);
  }

  Block answer_;
  std::function<Task<Result<Payload>>(Call&, Upload&)> put_;
};

TEST_F(MisuseTest, LendingTheMemoryOfAnotherNodeIsRefusedUnsent) {
  start();
  expect_refused_unsent(put(lend(block_of(*server_, 1, kBytes))).status(),
                        Code::failed_precondition, "another node's pool");
  expect_quiet();
}

TEST_F(MisuseTest, LandingInTheMemoryOfAnotherNodeIsRefusedUnsent) {
  start();
  answer_ = block_of(*server_, 1, kBytes);
  expect_refused_unsent(get(into(server_->pool())).status(), Code::failed_precondition,
                        "another node's pool");
  Result<Buffer> buffer = server_->pool().try_acquire(kBytes);
  ASSERT_TRUE(buffer.ok());
  Outcome<Pulled<Payload>> outcome = get(into(*std::move(buffer)));
  expect_refused_unsent(outcome.status(), Code::failed_precondition, "another node's pool");
  const std::vector<Buffer> back = world_.run(*client_, std::move(outcome.buffers_back()));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].capacity(), 131072u);
  std::vector<std::byte> own(kBytes);
  Result<Region> region = Region::create(server_->pool(), own, nullptr, {.block_bytes = 1000});
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  expect_refused_unsent(get(into(*region, {0, kBytes})).status(), Code::failed_precondition,
                        "another node's pool");
}

TEST_F(MisuseTest, AnAnswerFromTheMemoryOfAnotherNodeIsRefusedAndNamed) {
  start();
  answer_ = block_of(*client_, 1, kBytes);
  const Outcome<Pulled<Payload>> outcome = get(into(client_->pool()));
  EXPECT_EQ(outcome.status().code(), Code::failed_precondition);
  EXPECT_EQ(outcome.ran(), Ran::yes);
  EXPECT_NE(outcome.status().what().find("another node's pool"), std::string_view::npos);
  EXPECT_EQ(server_->stats().leases_lent, 0u);
  answer_ = Block();
  expect_quiet();
}

TEST_F(MisuseTest, AHandlerPullsIntoTheMemoryOfItsNodeOnly) {
  start();
  put_ = [this](Call&, Upload& in) -> Task<Result<Payload>> {
    auto buffer = co_await ok(in.pull(client_->pool()));
    co_return Payload();
  };
  const Outcome<Payload> outcome = put(lend(block_of(*client_, 1, kBytes)));
  EXPECT_EQ(outcome.status().code(), Code::failed_precondition);
  EXPECT_NE(outcome.status().what().find("Call::pool"), std::string_view::npos);
  EXPECT_EQ(server_->stats().reads_posted, 0u);
  expect_quiet();
}

TEST_F(MisuseTest, AnUploadBeyondAPoolBufferNamesTheRange) {
  start();
  std::uint64_t pulled = 0;
  put_ = [&pulled](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto whole = co_await in.pull(call.pool());
    EXPECT_EQ(whole.status().code(), Code::too_large);
    EXPECT_NE(whole.status().what().find("ByteRange"), std::string_view::npos);
    for (std::uint64_t at = 0; at < in.size(); at += Pool::kBufferBytesMax) {
      auto part = co_await ok(in.pull(call.pool(), {at, Pool::kBufferBytesMax}));
      pulled += part.size();
    }
    co_return Payload();
  };
  const std::size_t half = std::size_t{40} << 20;
  const Outcome<Payload> outcome =
      put(lend(block_of(*client_, 1, half), block_of(*client_, 2, half)));
  EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(pulled, 2 * half);
  expect_quiet();
}

TEST_F(MisuseTest, AnUploadOfNothingReachesItsHandler) {
  start();
  std::size_t segments = 99;
  put_ = [&segments](Call&, Upload& in) -> Task<Result<Payload>> {
    segments = in.segments();
    co_return Payload();
  };
  EXPECT_TRUE(put(lend(Block())).ok());
  EXPECT_EQ(segments, 0u);
  expect_quiet();
}

TEST(NodeMisuseTest, ANodeWithoutPollersSaysSo) {
  testing::World world(1);
  NodeOptions options;
  options.pollers = 0;
  const Node& node = world.add("node", options);
  EXPECT_EQ(node.status().code(), Code::invalid_argument);
  EXPECT_NE(node.status().what().find("pollers"), std::string_view::npos);
}

TEST(NodeMisuseTest, AGuardThatThisNodeCannotDoIsNamed) {
  testing::World world{1};
  int number = 0;
  for (const Guard guard : {Guard::window, Guard::window_verify, Guard::verify_read, Guard::none,
                            Guard::disconnect, Guard::deregister}) {
    NodeOptions options;
    options.guard = guard;
    const Status refused = world.add("node" + std::to_string(++number), options).status();
    EXPECT_FALSE(refused.ok()) << guard_name(guard);
    EXPECT_FALSE(refused.retryable());
    EXPECT_NE(refused.what().find(guard_name(guard)), std::string_view::npos) << refused.what();
  }
  NodeOptions options;
  options.guard = Guard::window;
  options.memory_windows = true;
  EXPECT_TRUE(world.add("can", options).status().ok());
  options.guard = Guard::deregister;
  options.allow_baselines = true;
  EXPECT_EQ(world.add("cannot", options).status().code(), Code::unimplemented);
}

TEST_F(MisuseTest, APullThatIsStartedAfterItsHandlerReadsNothing) {
  start();
  for (const std::size_t bytes : {std::size_t{5}, kBytes}) {
    for (const bool confirm : {false, true}) {
      Operation<Result<Buffer>> pull;
      Operation<Result<std::vector<Buffer>>> check;
      put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
        pull = in.pull(call.pool());
        check = in.confirm();
        co_return Payload();
      };
      ASSERT_TRUE(put(lend(block_of(*client_, 1, bytes))).ok());
      const Status status = confirm ? world_.run(*server_, std::move(check)).status()
                                    : world_.run(*server_, std::move(pull)).status();
      EXPECT_EQ(status.code(), Code::failed_precondition);
      EXPECT_NE(status.what().find("the handler has ended"), std::string_view::npos);
      EXPECT_EQ(server_->stats().reads_posted, 0u);
      pull.reset();
      check.reset();
      expect_quiet();
    }
  }
}

#ifndef __SANITIZE_ADDRESS__
// Lengths on the wire have 32 bits.
TEST_F(MisuseTest, ARequestOfMoreThanFourGigabytesIsTooLarge) {
  start();
  Payload request((std::size_t{1} << 32) + 8);  // never touched
  const Outcome<Pulled<Payload>> outcome =
      world_.run(*client_, channel_.call(kGet, std::move(request), into(client_->pool())));
  expect_refused_unsent(outcome.status(), Code::too_large, "message_bytes_max");
  expect_quiet();
}
#endif

// A node does not outlive a fork, so these tests begin again in a process of their own.
TEST(NodeMisuseTest, ANodeThatThreadsTurnIsTurnedByNobodyElse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  testing::World world(1);
  Node& node = world.add("node");
  EXPECT_DEATH(
      {
        node.run_background();
        node.run_once();
      },
      "Node::run_once or Node::arm on a node that threads turn already");
  EXPECT_DEATH(
      {
        node.run_background();
        node.arm();
      },
      "Node::run_once or Node::arm on a node that threads turn already");
  EXPECT_DEATH(
      {
        node.run_background();
        node.run();
      },
      "Node::run on a node that threads turn already");
  node.run_background();
  node.run_background();
  node.stop();
  node.run_once();
  (void)node.arm();
}

TEST(NodeMisuseTest, ANodeWithSeveralPollersIsNotTurnedByHand) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  testing::World world(1);
  NodeOptions options;
  options.pollers = 2;
  Node& node = world.add("node", options);
  EXPECT_DEATH(node.run_once(), "this node has several: use run_background");
  EXPECT_DEATH((void)node.arm(), "this node has several: use run_background");
}

}  // namespace
}  // namespace pawl
