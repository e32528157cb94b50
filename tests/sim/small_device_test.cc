// SPDX-License-Identifier: Apache-2.0
// Devices that READ little at once, and memory beyond 4 GiB: no work request is longer than the
// device can do, and no offset loses its upper bits. Case 77.
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "sim/device_fixture.h"

namespace pawl {
namespace {

using testing::fill;
using testing::holds;

constexpr Method kGet = make_method("test.Small/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Small/Put", BulkDirection::upload);
constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t k4GiB = 4 * kGiB / kBlock;  ///< the block that begins there

/// 5 GiB of which only what is touched takes memory.
class SparseRegion {
 public:
  explicit SparseRegion(Pool& pool) {
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(memory);
    RegionOptions options;
    options.block_bytes = kBlock;
    const std::shared_ptr<void> keep(memory, [](void* at) { ::munmap(at, kBytes); });
    Result<Region> made = Region::create(pool, {bytes_, kBytes}, keep, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) region_ = *std::move(made);
  }
  [[nodiscard]] const Region& region() const { return region_; }
  Block filled(std::size_t first, std::size_t count, std::uint64_t tag) {
    fill(*region_.reuse(first, count), tag);
    return *region_.block(first, count);
  }
  /// Nothing but zeros stands where 32 bits of the offset would lead.
  void expect_untouched(std::size_t first, std::size_t count) const {
    const std::span<const std::byte> bytes(bytes_ + first * kBlock, count * kBlock);
    for (const std::byte each : bytes) ASSERT_EQ(each, std::byte{0});
  }

  static constexpr std::size_t kBytes = 5 * kGiB;

 private:
  std::byte* bytes_ = nullptr;
  Region region_;
};

class SmallDevice : public testing::DeviceFixture {
 protected:
  SmallDevice() {
    for (Place* place : {&server_, &client_}) {
      place->capabilities.read_bytes_max = kReadBytes;
      place->capabilities.read_segments_max = 1;
      place->capabilities.read_depth_max = 4;
    }
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          for (const Block& block : answer_) out.add(block);
          co_return Payload();
        });
    service_.add(kPut, [this](Call& call, std::span<const std::byte>, Upload& in, Download&) {
      return put_(call, in);
    });
  }
  void expect_small_reads(Place& reader, std::uint64_t reads_min) {
    EXPECT_GE(reader.watch.reads, reads_min);
    EXPECT_EQ(reader.watch.longest_read, kReadBytes);
    EXPECT_EQ(reader.watch.most_segments, 1u);
    EXPECT_EQ(reader.node->stats().data_endpoints_lost, 0u);
  }

  std::vector<Block> answer_;
  std::function<Task<Result<Payload>>(Call&, Upload&)> put_;
};

TEST_F(SmallDevice, SegmentsOfOddSizesArriveWholeInSmallReads) {
  start();
  const std::vector<std::size_t> sizes = {kReadBytes + 1, 70'001,         1,
                                          kReadBytes - 1, 3 * kReadBytes, 300'007};
  std::size_t total = 0;
  std::vector<Block> lent;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    answer_.push_back(block_of(*server_.node, i, sizes[i]));
    lent.push_back(block_of(*client_.node, i + 100, sizes[i]));
    total += sizes[i];
  }
  const Outcome<Pulled<Payload>> got =
      run(channel_.call(kGet, Payload(), into(client_.node->pool())));
  ASSERT_TRUE(got.ok()) << got.to_string();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(got->parts()[i]->size(), sizes[i]);
    EXPECT_TRUE(holds(got->parts()[i]->bytes(), i));
  }
  expect_small_reads(client_, total / kReadBytes);
  // Joined: a READ ends where a segment of the owner's does.
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    auto all = co_await ok(in.pull(call.pool()));
    EXPECT_EQ(all.size(), total);
    std::span<const std::byte> rest = std::as_const(all).bytes();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(holds(rest.first(sizes[i]), i + 100));
      rest = rest.subspan(sizes[i]);
    }
    co_return Payload();
  };
  const Outcome<Payload> put = run(channel_.call(kPut, Payload(), lend(std::move(lent))));
  ASSERT_TRUE(put.ok()) << put.to_string();
  expect_small_reads(server_, total / kReadBytes);
}

// Both regions have the bytes around and behind 4 GiB; what stands 4 GiB before them stays zero.
TEST_F(SmallDevice, OffsetsBeyondFourGibibytesKeepTheirUpperBits) {
  start();
  SparseRegion theirs(server_.node->pool()), ours(client_.node->pool());
  answer_ = {theirs.filled(k4GiB - 1, 2, 1), theirs.filled(k4GiB + 7, 3, 2)};
  const std::vector<ByteRange> ranges = {{(k4GiB - 1) * kBlock, 2 * kBlock},
                                         {(k4GiB + 7) * kBlock, 3 * kBlock}};
  Outcome<Pulled<Payload>> got = run(channel_.call(kGet, Payload(), into(ours.region(), ranges)));
  ASSERT_TRUE(got.ok()) << got.to_string();
  EXPECT_TRUE(holds(got->parts()[0]->bytes(), 1));
  EXPECT_TRUE(holds(got->parts()[1]->bytes(), 2));
  ours.expect_untouched(0, 10);
  expect_small_reads(client_, 5 * kBlock / kReadBytes);
  // And back, a range of what was lent.
  put_ = [&](Call&, Upload& in) -> Task<Result<Payload>> {
    const ByteRange range{1000, 2 * kBlock};
    auto block = co_await ok(in.pull_into(theirs.region(), (k4GiB + 1000) * kBlock, range));
    EXPECT_EQ(block.size(), 2 * kBlock);
    EXPECT_TRUE(holds(block.bytes(), 3, 1000));
    co_return Payload();
  };
  const Outcome<Payload> put =
      run(channel_.call(kPut, Payload(), lend(ours.filled(k4GiB + 100, 3, 3))));
  ASSERT_TRUE(put.ok()) << put.to_string();
  theirs.expect_untouched(1000, 3);
  expect_small_reads(server_, 2 * kBlock / kReadBytes);
}

// One segment that is itself longer than 4 GiB, of which the end is pulled.
TEST_F(SmallDevice, TheEndOfABlockLongerThanFourGibibytes) {
  start();
  SparseRegion ours(client_.node->pool());
  const std::size_t blocks = ours.region().blocks();
  fill(*ours.region().reuse(blocks - 2, 2), 5);
  Result<Block> whole = ours.region().block(0, blocks);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  put_ = [&](Call& call, Upload& in) -> Task<Result<Payload>> {
    EXPECT_EQ(in.size(), SparseRegion::kBytes);
    EXPECT_EQ(in.segment_size(0), SparseRegion::kBytes);
    const ByteRange end{SparseRegion::kBytes - 2 * kBlock};
    auto buffer = co_await ok(in.pull(call.pool(), end));
    EXPECT_EQ(buffer.size(), 2 * kBlock);
    EXPECT_TRUE(holds(std::as_const(buffer).bytes(), 5));
    const Result<Buffer> all = co_await in.pull(call.pool());
    EXPECT_EQ(all.status().code(), Code::too_large) << all.status().to_string();
    co_return Payload();
  };
  const Outcome<Payload> put = run(channel_.call(kPut, Payload(), lend(*whole)));
  ASSERT_TRUE(put.ok()) << put.to_string();
}

}  // namespace
}  // namespace pawl
