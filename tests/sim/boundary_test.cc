// SPDX-License-Identifier: Apache-2.0
// case 47: one byte below, at and above every size at which a path changes: a receive, several of
// them, what travels inline, a chunk, a window, a size class, with the content looked at.
#include <algorithm>
#include <string>
#include <vector>

#include "sim/stack_fixture.h"

namespace pawl {
namespace {

using testing::fill;
using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kEcho = make_method("test.Boundary/Echo");
constexpr Method kGet = make_method("test.Boundary/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Boundary/Put", BulkDirection::upload);
constexpr std::size_t kMiB = std::size_t{1} << 20;

class BoundaryTest : public testing::StackFixture {
 protected:
  BoundaryTest() {
    service_.add(kEcho,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download&) -> Task<Result<Payload>> {
                   arrived_ = request.size();
                   right_ = holds(request, request.size());
                   co_return Payload(request);
                 });
    // Get(a, b) lends two segments; Put(a, b) is lent two.
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   for (std::size_t i = 0; i < 2; ++i) {
                     if (number(request, i) == 0) continue;
                     auto buffer = co_await ok(call.pool().acquire(number(request, i)));
                     fill(buffer.bytes(), i);
                     out.add(std::move(buffer).freeze());
                   }
                   co_return Payload();
                 });
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   right_ = true;
                   arrived_ = 0;
                   for (std::size_t i = 0; i < in.segments(); ++i) {
                     auto buffer = co_await ok(in.pull_segment(i, call.pool()));
                     right_ =
                         right_ && buffer.size() == number(request, i) && holds(buffer.bytes(), i);
                     arrived_ += buffer.size();
                   }
                   co_return Payload();
                 });
  }
  void echo(std::size_t bytes) {
    Payload request(bytes);
    fill(request.bytes(), bytes);
    right_ = false;
    const Outcome<Payload> got = world_.run(*client_, channel_.call(kEcho, std::move(request)));
    ASSERT_TRUE(got.ok()) << bytes << ": " << got.to_string();
    EXPECT_TRUE(right_ && arrived_ == bytes) << bytes;
    EXPECT_EQ(got->size(), bytes);
    EXPECT_TRUE(holds(got->bytes(), bytes)) << bytes;
  }
  void both_ways(std::size_t a, std::size_t b) {
    Outcome<Pulled<Payload>> got =
        world_.run(*client_, channel_.call(kGet, payload(a, b), into(client_->pool())));
    ASSERT_TRUE(got.ok()) << a << "+" << b << ": " << got.to_string();
    ASSERT_EQ(got->parts().size(), b == 0 ? 1u : 2u);
    for (std::size_t i = 0; i < got->parts().size(); ++i) {
      ASSERT_TRUE(got->parts()[i].ok());
      EXPECT_EQ(got->parts()[i]->size(), i == 0 ? a : b);
      EXPECT_TRUE(holds(got->parts()[i]->bytes(), i)) << a << "+" << b;
    }
    std::vector<Block> blocks;
    blocks.push_back(block_of(*client_, 0, a));
    if (b != 0) blocks.push_back(block_of(*client_, 1, b));
    right_ = false;
    const Outcome<Payload> put =
        world_.run(*client_, channel_.call(kPut, payload(a, b), lend(std::move(blocks))));
    ASSERT_TRUE(put.ok()) << a << "+" << b << ": " << put.to_string();
    EXPECT_TRUE(right_ && arrived_ == a + b) << a << "+" << b;
  }

  std::size_t arrived_ = 0;
  bool right_ = false;
};

// Every size up to several small receives: whatever the headers take, the edge is among them.
TEST_F(BoundaryTest, RequestsAndRepliesOfEverySizeThroughSmallReceives) {
  NodeOptions small;
  small.receive_bytes = 1024;
  start(small, small);
  for (std::size_t bytes = 0; bytes <= 2 * 1024 + 64; ++bytes) echo(bytes);
  expect_quiet();
}

TEST_F(BoundaryTest, RequestsAndRepliesAroundReceivesOfDifferentSize) {
  NodeOptions server;
  server.receive_bytes = 1033;
  NodeOptions client;
  client.receive_bytes = 8192;
  start(server, client);
  for (const std::size_t edge : {1033u, 2 * 1033u, 8192u, 2 * 8192u}) {
    for (std::size_t bytes = edge - 200; bytes <= edge + 8; ++bytes) echo(bytes);
  }
  expect_quiet();
}

TEST_F(BoundaryTest, BulkAroundInlineChunksWindowsAndClasses) {
  start();
  std::vector<std::size_t> edges = {4096, 8192, 16384, 65536, 2 * 65536, 15 * 65536, 16 * 65536};
  edges.push_back(2 * kMiB);  // the window
  edges.push_back(3 * kMiB);
  for (const std::size_t edge : edges) {
    for (const std::size_t bytes : {edge - 1, edge, edge + 1}) both_ways(bytes, 0);
  }
  both_ways(1, 0);
  expect_quiet();
}

// Two segments whose joint is one byte beside the end of a chunk, or of what is inline.
TEST_F(BoundaryTest, SegmentsWhoseJointIsBesideAnEdge) {
  start();
  for (const std::size_t edge : {2048u, 4096u, 65536u, 2 * 65536u}) {
    for (const std::size_t a : {edge - 1, edge, edge + 1}) {
      for (const std::size_t b : {std::size_t{1}, edge - 1, edge, edge + 1}) both_ways(a, b);
    }
  }
  expect_quiet();
}

}  // namespace
}  // namespace pawl
