// SPDX-License-Identifier: Apache-2.0
// One call moves a gibibyte and more, exactly, or says by name why not. Case 76.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "pawl/blocking.h"
#include "pawl/node.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kGet = make_method("test.Large/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Large/Put", BulkDirection::upload);
constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kWindow = (std::size_t{32} << 20) + (64 << 10);
constexpr std::size_t kBlock = 64 << 10;

std::byte pattern(std::size_t at) { return static_cast<std::byte>((at * 2654435761u) >> 13); }

/// A region of which every kWindow bytes are the same memory: each byte must stand at its place
/// modulo a length that no power of two divides well.
class Repeated {
 public:
  Repeated(Pool& pool, std::size_t bytes) : size_((bytes + kBlock - 1) / kBlock * kBlock) {
    const UniqueFd file(::memfd_create("pawl-large", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), kWindow), 0);
    void* const room =
        ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(room, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(room);
    for (std::size_t at = 0; at < size_; at += kWindow) {
      EXPECT_NE(::mmap(bytes_ + at, std::min(kWindow, size_ - at), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, file.get(), 0),
                MAP_FAILED);
    }
    RegionOptions options;
    options.block_bytes = kBlock;
    const std::size_t size = size_;
    const std::shared_ptr<void> keep(room, [size](void* at) { ::munmap(at, size); });
    Result<Region> made = Region::create(pool, {bytes_, size_}, keep, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) region_ = *std::move(made);
  }
  [[nodiscard]] const Region& region() const { return region_; }
  void fill() {
    for (std::size_t i = 0; i < kWindow; ++i) bytes_[i] = pattern(i);
  }
  [[nodiscard]] bool filled(std::size_t first, std::size_t last) const {
    for (std::size_t i = first; i < last; ++i) {
      if (bytes_[i] != pattern(i % kWindow)) return false;
    }
    return true;
  }
  void clear() { std::memset(bytes_, 0, kWindow); }
  [[nodiscard]] Block first(std::size_t bytes) const {
    return region_.block(0, region_.blocks())->slice(0, bytes);
  }

 private:
  const std::size_t size_;
  std::byte* bytes_ = nullptr;
  Region region_;
};

class LargeBody : public ::testing::Test {
 protected:
  static NodeOptions tcp() {
    NodeOptions options;
    options.fabric = "tcp";
    options.read_timeout = 60s;  // of a machine that does other things too
    options.quarantine_timeout = 120s;
    return options;
  }
  void SetUp() override {
    service_.add(
        kGet,
        [this](Call&, std::span<const std::byte>, Upload&, Download& out) -> Task<Result<Payload>> {
          out.add(answer_);
          co_return Payload();
        });
    service_.add(
        kPut,
        [this](Call&, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          auto block = co_await ok(in.pull_into(landing_, 0));
          pulled_ = block.size();
          co_return Payload();
        });
    Result<Server> serving = server_.serve("127.0.0.1:0", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    serving_.emplace(*std::move(serving));
    server_.run_background();
    client_.run_background();
    channel_ = client_.channel(serving_->address());
    options_.deadline = std::chrono::minutes(20);
  }
  static void expect_whole(const Repeated& at, std::size_t bytes) {
    EXPECT_TRUE(at.filled(0, std::min(bytes, kWindow)));
    EXPECT_TRUE(at.filled(bytes - 1, bytes)) << "the last byte";
  }

  testing::FunctionService service_;
  Block answer_;
  Region landing_;
  std::size_t pulled_ = 0;
  Node server_{tcp()}, client_{tcp()};
  std::optional<Server> serving_;
  Channel channel_;
  CallOptions options_;
};

// 2 GiB and 4 GiB + 1, and uploads of all sizes, in the soak.
TEST_F(LargeBody, OfAGibibyteAndMoreArrivesWholeOrIsRefusedByName) {
  const bool soak = std::getenv("PAWL_TEST_SOAK") != nullptr;
  std::vector<std::size_t> sizes = {kGiB + 1};
  if (soak) sizes = {kGiB / 2, kGiB - 1, kGiB, kGiB + 1, 2 * kGiB, 4 * kGiB + 1};
  const std::size_t largest = sizes.back();
  Repeated theirs(server_.pool(), largest), ours(client_.pool(), largest);
  theirs.fill();
  std::uint64_t moved = 0;
  for (const std::size_t bytes : sizes) {
    answer_ = theirs.first(bytes);
    const auto begin = std::chrono::steady_clock::now();
    {
      const Outcome<Pulled<Payload>> got =
          block(channel_.call(kGet, Payload(), into(ours.region(), ByteRange{0, bytes}), options_));
      ASSERT_TRUE(got.ok()) << bytes << ": " << got.to_string();
      EXPECT_EQ(got->part()->size(), bytes);
    }
    moved += bytes;
    expect_whole(ours, bytes);
    std::printf("%zu bytes in %lld ms\n", bytes,
                static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                           std::chrono::steady_clock::now() - begin)
                                           .count()));
    if (soak) {
      landing_ = theirs.region();
      const Block lent = ours.first(bytes);
      const Outcome<Payload> put = block(channel_.call(kPut, Payload(), lend(lent), options_));
      ASSERT_TRUE(put.ok()) << bytes << ": " << put.to_string();
      EXPECT_EQ(pulled_, bytes);
      expect_whole(theirs, bytes);
    }
    ours.clear();
  }
  // Beyond a buffer of the pool: one error, which names it, and not a byte.
  answer_ = theirs.first(largest);
  const Outcome<Pulled<Payload>> pooled =
      block(channel_.call(kGet, Payload(), into(client_.pool()), options_));
  EXPECT_EQ(pooled.status().code(), Code::too_large) << pooled.to_string();
  client_.stop();
  EXPECT_EQ(client_.stats().read_bytes, moved);
  EXPECT_EQ(client_.stats().connections_lost, 0u);
}

}  // namespace
}  // namespace pawl
