// SPDX-License-Identifier: Apache-2.0
// case 33: every function that registers, allocates or uses memory, on a node that never worked and
// after the node is gone: errors by name, or the handle still works; never a crash.
#include <string>
#include <vector>

#include "pawl/region.h"
#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::fill;
using testing::holds;

constexpr Method kPut = make_method("test.AfterNode/Put", BulkDirection::upload);
constexpr Method kGet = make_method("test.AfterNode/Get", BulkDirection::download);
constexpr std::size_t kBytes = 65536;

class AfterNode : public testing::StackFixture {
 protected:
  AfterNode() {
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto buffer = co_await ok(in.pull(call.pool()));
          EXPECT_TRUE(holds(buffer.bytes(), 1));
          co_return Payload();
        });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 * kBytes);
};

TEST_F(AfterNode, WhatIsLeftOfItCanBeUsedAndDropped) {
  start();
  ASSERT_TRUE(
      world_.run(*client_, channel_.call(kPut, Payload(), lend(block_of(*client_, 1, kBytes))))
          .ok());
  Pool& pool = client_->pool();  // the channel keeps it
  Buffer buffer = *pool.try_acquire(kBytes);
  Block lent = block_of(*client_, 1, kBytes);
  bool freed = false;
  const auto keep_alive = [&] {
    return std::shared_ptr<void>(&freed, [](void* flag) { *static_cast<bool*>(flag) = true; });
  };
  Region region = *Region::create(pool, memory_, keep_alive(), {.block_bytes = kBytes});
  fill(*region.reuse(0), 1);
  Block of_region = *region.block(0);
  const std::string ticket = std::string(
      client_->issue_ticket(std::vector<Block>{lent}, "client:1", std::chrono::hours(1))->bytes());
  const std::uint64_t in_use = pool.stats().bytes_in_use;
  world_.crash("client");

  // Memory: as before.
  EXPECT_EQ(pool.stats().bytes_in_use, in_use);
  EXPECT_EQ(pool.stats().bytes_landing, 0u);
  EXPECT_EQ(pool.stats().leases_live, 0u);
  fill(buffer.bytes(), 2);
  const Block frozen = std::move(buffer).freeze();
  EXPECT_TRUE(holds(frozen.bytes(), 2));
  EXPECT_TRUE(holds(lent.slice(8192, 100).bytes(), 1, 8192));
  EXPECT_TRUE(holds(of_region.bytes(), 1));
  EXPECT_TRUE(region.reuse(0).ok());
  EXPECT_TRUE(region.block(1).ok());
  EXPECT_EQ(region.block(4).status().code(), Code::invalid_argument);
  Result<Buffer> more = pool.try_acquire(kBytes);
  EXPECT_TRUE(more.ok() || more.status().code() == Code::resource_exhausted);
  EXPECT_EQ(pool.try_acquire(0).status().code(), Code::invalid_argument);
  std::vector<std::byte> other(kBytes);
  Result<Region> late = Region::create(pool, other, nullptr, {.block_bytes = kBytes});
  EXPECT_TRUE(late.ok() || !late.status().what().empty());
  EXPECT_FALSE(Region::create(pool, memory_, nullptr, {.block_bytes = kBytes}).ok()) << "overlaps";

  // Calls over its channel, with its memory or that of another, and its memory over another's.
  const auto refused = [](const Status& status) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.ran(), Ran::no) << status.to_string();
    EXPECT_FALSE(status.what().empty());
  };
  refused(block(channel_.call(kPut, Payload(), lend(lent))).status());
  refused(block(channel_.call(kPut, Payload(), lend(of_region))).status());
  refused(block(channel_.call(kGet, Payload(), into(pool))).status());
  refused(block(channel_.call(kGet, Payload(), into(region, ByteRange{kBytes, kBytes}))).status());
  EXPECT_FALSE(block(channel_.connect(1s)).ok());
  Node& another = world_.add("another");
  const Channel other_way = another.channel("server:1");
  const Outcome<Payload> foreign = world_.run(another, other_way.call(kPut, Payload(), lend(lent)));
  EXPECT_EQ(foreign.status().code(), Code::failed_precondition) << foreign.to_string();
  refused(foreign.status());
  const auto pulled =
      world_.run(another, another.pull(Ticket(ticket), into(another.pool()), within(100ms)));
  EXPECT_FALSE(pulled.ok());

  // The end of the region, and of the memory.
  EXPECT_FALSE(freed);
  EXPECT_TRUE(block(region.close()).ok());
  EXPECT_EQ(region.block(1).status().code(), Code::failed_precondition) << "closed";
  of_region = Block();
  region = Region();
  EXPECT_TRUE(freed);
  std::move(lent).retire();
  channel_ = Channel();  // and the pool with it, when the last of its memory is gone
  EXPECT_TRUE(holds(frozen.bytes(), 2)) << "a Block keeps what it needs";
}

TEST(NodeThatNeverWorked, EveryUseSaysWhy) {
  NodeOptions options;
  options.fabric = "no such fabric";
  testing::FunctionService service;
  Node node(options);
  const Status why = node.status();
  ASSERT_FALSE(why.ok());
  EXPECT_EQ(node.serve("127.0.0.1:0", service).status().code(), why.code());
  Result<Buffer> buffer = block(node.pool().acquire(kBytes));
  Lend nothing;
  if (buffer.ok()) nothing = lend((*std::move(buffer)).freeze());
  const Channel channel = node.channel("127.0.0.1:1");
  node.run_background();
  const Outcome<Payload> put = block(channel.call(kPut, Payload(), std::move(nothing)));
  EXPECT_EQ(put.status().code(), why.code()) << put.to_string();
  EXPECT_EQ(put.ran(), Ran::no);
  EXPECT_EQ(block(channel.call(kGet, Payload(), into(node.pool()))).status().code(), why.code());
  EXPECT_FALSE(block(channel.connect(1s)).ok());
  std::vector<std::byte> memory(kBytes);
  Result<Region> region = Region::create(node.pool(), memory, nullptr, {.block_bytes = kBytes});
  EXPECT_TRUE(region.ok() || !region.status().what().empty());
}

}  // namespace
}  // namespace pawl
