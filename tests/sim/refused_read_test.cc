// SPDX-License-Identifier: Apache-2.0
// One READ of many is refused by the owner's device, which takes the endpoint of all of them to
// ERR: the call that it belongs to fails, at once and by name, and no other. Case 92.
#include <optional>
#include <string>
#include <vector>

#include "sim/device_fixture.h"

namespace pawl {
namespace {

using testing::holds;
using testing::number;
using testing::payload;

constexpr Method kGet = make_method("test.Refused/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Refused/Put", BulkDirection::upload);
constexpr std::size_t kSegments = 8;
constexpr std::size_t kBytes = 100'000;
constexpr std::uint64_t kCalls = 20;
constexpr std::uint64_t kBad = 7;  ///< the call that has the bad segment, 3 of 8

class RefusedRead : public testing::DeviceFixture {
 protected:
  using Got = Outcome<Pulled<Payload>>;

  RefusedRead() {
    service_.add(kGet,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   for (const Block& block : blocks_of(server_, number(request))) out.add(block);
                   co_return Payload();
                 });
    service_.add(kPut,
                 [](Call& call, std::span<const std::byte> request, Upload& in,
                    Download&) -> Task<Result<Payload>> {
                   for (std::size_t i = 0; i < kSegments; ++i) {
                     auto pulled = co_await ok(in.pull_segment(i, call.pool()));
                     EXPECT_TRUE(holds(std::as_const(pulled).bytes(), number(request) * 10 + i));
                   }
                   co_return Payload();
                 });
  }
  std::vector<Block> blocks_of(Place& owner, std::uint64_t call) {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < kSegments; ++i) {
      blocks.push_back(block_of(*owner.node, call * 10 + i, kBytes));
      if (call != kBad || i != 3) continue;
      bad_ = blocks.back();  // kept, so that no other call gets its memory
      owner.watch.refused = bad_.bytes().data();
    }
    return blocks;
  }
  static void expect_refused(const Status& status, const char* peer) {
    EXPECT_EQ(status.code(), Code::stale);
    for (const char* word : {"refused a READ", peer}) {
      EXPECT_NE(status.what().find(word), std::string_view::npos) << status.to_string();
    }
  }
  /// The outcomes of all calls, which began together and ended long before any time limit.
  template <class T, class Make>
  std::vector<std::optional<T>> run_all(Make&& make) {
    std::vector<std::optional<T>> ended(kCalls);
    std::vector<Started> calls;
    const TimePoint begun = network_.now();
    for (std::uint64_t i = 0; i < kCalls; ++i) calls.push_back(begin(make(i), ended[i]));
    EXPECT_TRUE(loop_.run_until([&] {
      for (const std::optional<T>& each : ended) {
        if (!each) return false;
      }
      return true;
    }));
    EXPECT_LT(network_.now() - begun, NodeOptions().read_timeout / 2) << "no time limit ended it";
    const Poller::Scope scope(client_.node->poller());
    calls.clear();
    return ended;
  }

  Block bad_;
};

TEST_F(RefusedRead, FailsItsDownloadAloneAndNamesThePeer) {
  start();
  const std::vector<std::optional<Got>> ended = run_all<Got>([this](std::uint64_t i) {
    return channel_.call(kGet, payload(i), into(client_.node->pool()));
  });
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(ended[i]);
    if (i == kBad) {
      expect_refused(ended[i]->status(), "the device of server");
      EXPECT_EQ(ended[i]->ran(), Ran::yes);
      continue;
    }
    ASSERT_TRUE(ended[i]->ok()) << i << ": " << ended[i]->to_string();
    ASSERT_EQ((*ended[i])->parts().size(), kSegments);
    for (std::size_t s = 0; s < kSegments; ++s) {
      EXPECT_TRUE(holds((*ended[i])->parts()[s]->bytes(), i * 10 + s));
    }
  }
  EXPECT_EQ(client_.node->stats().data_endpoints_lost, 1u) << "and it was not tried again";
  EXPECT_TRUE(run(channel_.call(kGet, payload(kCalls), into(client_.node->pool()))).ok());
}

TEST_F(RefusedRead, FailsTheUploadsPullAloneAndItsCallerHearsWhy) {
  start();
  using Done = Outcome<Payload>;
  const std::vector<std::optional<Done>> ended = run_all<Done>([this](std::uint64_t i) {
    return channel_.call(kPut, payload(i), lend(blocks_of(client_, i)));
  });
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(ended[i]);
    if (i == kBad) {
      expect_refused(ended[i]->status(), "the device of client");
    } else {
      EXPECT_TRUE(ended[i]->ok()) << i << ": " << ended[i]->to_string();
    }
  }
  EXPECT_EQ(server_.node->stats().data_endpoints_lost, 1u) << "and it was not tried again";
  EXPECT_TRUE(run(channel_.call(kPut, payload(kCalls), lend(blocks_of(client_, kCalls)))).ok());
}

}  // namespace
}  // namespace pawl
