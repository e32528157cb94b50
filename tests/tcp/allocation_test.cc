// SPDX-License-Identifier: Apache-2.0
// Traffic in its steady state takes no memory from the system: every thread's calls of operator new
// are counted over real sockets. On failure the places that called it are printed.
#include <execinfo.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "pawl/detail/frame.h"
#include "pawl/node.h"
#include "support/function_service.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace pawl {
namespace {

constexpr std::size_t kPlacesMax = 64;
constexpr int kDepth = 12;

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> count{0};
std::array<std::array<void*, kDepth>, kPlacesMax> places;
std::array<int, kPlacesMax> depths;

void note() {
  thread_local bool inside = false;
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  const std::uint64_t index = count.fetch_add(1);
  if (index < kPlacesMax) depths[index] = backtrace(places[index].data(), kDepth);
  inside = false;
}

}  // namespace
}  // namespace pawl

void* operator new(std::size_t bytes) {
  pawl::note();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  pawl::note();
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  pawl::note();
  const std::size_t to = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}
// Not inlined: g++ warns of a free() that it sees without the malloc() above.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  operator delete(memory);
}

namespace pawl {
namespace {

using testing::FunctionService;

constexpr Method kEcho = make_method("test.Allocation/Echo");
constexpr Method kGet = make_method("test.Allocation/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Allocation/Put", BulkDirection::upload);
constexpr Method kGetParts = make_method("test.Allocation/GetParts", BulkDirection::download);
constexpr Method kCallBack = make_method("test.Allocation/CallBack");
constexpr std::size_t kBulk = std::size_t{1} << 18;
constexpr int kWarm = 5000;  // every queue and table has its size
constexpr int kCounted = 500;

/// A frame that one thread takes and another gives back comes round in batches, and which thread
/// lets go last is chance: so that no thread is without one while calls are counted, the lists that
/// all threads share get some batches of each size.
void stock_shared_lists() {
  constexpr std::size_t kBytesOfASize = std::size_t{1} << 20;
  for (std::size_t bytes = 64; bytes <= 16384; bytes += bytes < 1024 ? 64 : bytes) {
    std::vector<void*> frames(kBytesOfASize / bytes);
    for (void*& frame : frames) frame = detail::frame_allocate(bytes);
    for (void* frame : frames) detail::frame_free(frame, bytes);
  }
}

class AllocationTest : public ::testing::Test {
 protected:
  AllocationTest() {
    std::array<void*, 2> frames;
    backtrace(frames.data(), 2);  // loads what it needs
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBulk));
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(
        kPut,
        [](Call& call, std::span<const std::byte>, Upload& in, Download&) -> Task<Result<Payload>> {
          (void)co_await ok(in.pull(call.pool()));
          co_return Payload();
        });
    service_.add(kGetParts,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   for (int i = 0; i < 4; ++i) {
                     auto buffer = co_await ok(call.pool().acquire(kBulk / 4));
                     out.add(std::move(buffer).freeze());
                   }
                   co_return Payload();
                 });
    service_.add(kCallBack,
                 [](Call& call, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> {
                   auto said = co_await ok(call.caller().call(kEcho, Payload(request)));
                   co_return std::move(said);
                 });
    NodeOptions options;
    options.fabric = "tcp";
    options.long_turn = 1h;  // a thread that did not get its core says so, in a string
    server_.emplace(options);
    serving_.emplace(*server_->serve("127.0.0.1:0", service_));
    server_->run_background();
    client_.emplace(options);
    client_->run_background();
    channel_ = client_->channel(serving_->address(), {}, service_);
  }

  /// Calls `once` until all is warm, then counts.
  template <class F>
  void expect_none(F once) {
    for (int i = 0; i < kWarm; ++i) ASSERT_TRUE(once());
    stock_shared_lists();
    count = 0;
    counting = true;
    int good = 0;
    for (int i = 0; i < kCounted; ++i) good += once() ? 1 : 0;
    counting = false;
    EXPECT_EQ(good, kCounted);
    EXPECT_EQ(count.load(), 0u) << "in " << kCounted << " calls";
    for (std::size_t i = 0; i < std::min<std::size_t>(count, kPlacesMax); ++i) {
      backtrace_symbols_fd(places[i].data(), depths[i], 2);
      std::fputs("--\n", stderr);
    }
  }

  FunctionService service_;
  std::optional<Node> server_, client_;
  std::optional<Server> serving_;
  Channel channel_;
};

TEST_F(AllocationTest, AnEchoTakesNone) {
  const std::string text(64, 'x');
  expect_none([&] { return block(channel_.call(kEcho, Payload::of(text))).ok(); });
}

TEST_F(AllocationTest, ADownloadTakesNone) {
  expect_none([&] { return block(channel_.call(kGet, Payload(), into(client_->pool()))).ok(); });
}

TEST_F(AllocationTest, AnUploadTakesNone) {
  expect_none([&] {
    Result<Buffer> buffer = block(client_->pool().acquire(kBulk));
    if (!buffer.ok()) return false;
    const Block lent = (*std::move(buffer)).freeze();
    return block(channel_.call(kPut, Payload(), lend(lent))).ok();
  });
}

TEST_F(AllocationTest, ADownloadOfSeveralPartsTakesNone) {
  expect_none([&] {
    const auto got = block(channel_.call(kGetParts, Payload(), into(client_->pool())));
    return got.ok() && got->parts().size() == 4;
  });
}

TEST_F(AllocationTest, AnUploadOfSeveralSegmentsTakesNone) {
  expect_none([&] {
    Result<Buffer> a = block(client_->pool().acquire(kBulk / 2));
    Result<Buffer> b = block(client_->pool().acquire(kBulk / 2));
    if (!a.ok() || !b.ok()) return false;
    Lend both = lend((*std::move(a)).freeze(), (*std::move(b)).freeze());
    return block(channel_.call(kPut, Payload(), std::move(both))).ok();
  });
}

TEST_F(AllocationTest, AReverseCallTakesNone) {
  const std::string text(64, 'x');
  expect_none([&] { return block(channel_.call(kCallBack, Payload::of(text))).ok(); });
}

TEST_F(AllocationTest, ADownloadIntoARegionTakesNone) {
  std::vector<std::byte> memory(2 * kBulk);
  Result<Region> region = Region::create(client_->pool(), memory, nullptr, {.block_bytes = kBulk});
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  expect_none([&] {
    return block(channel_.call(kGet, Payload(), into(*region, {kBulk, kBulk}))).ok();
  });
  EXPECT_TRUE(block(region->close()).ok());
}

}  // namespace
}  // namespace pawl

#endif
