// SPDX-License-Identifier: Apache-2.0
// An owner goes, and its memory is written over and unmapped, while its peer still reads. The
// reader is turned by hand, so that READs are under way at that moment.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "pawl/blocking.h"
#include "pawl/node.h"
#include "pawl/region.h"
#include "support/function_service.h"

namespace pawl {
namespace {

constexpr Method kGet = make_method("test.Shutdown/Get", BulkDirection::download);
constexpr Method kPut = make_method("test.Shutdown/Put", BulkDirection::upload);
constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr std::size_t kCalls = 64;

std::byte pattern(std::uint64_t tag, std::size_t i) {
  return static_cast<std::byte>((i * 13 + tag * 101) >> 2);
}
void fill(std::span<std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(tag, i);
}
bool holds(std::span<const std::byte> bytes, std::uint64_t tag) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(tag, i)) return false;
  }
  return bytes.size() == kBlock;
}
std::uint64_t number(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
Payload payload(std::uint64_t tag) { return Payload(std::as_bytes(std::span(&tag, 1))); }

NodeOptions tcp() {
  NodeOptions options;
  options.fabric = "tcp";
  return options;
}

/// A region of a node's whose memory is another use's the moment that Pawl lets go of it, and then
/// unmapped: kCalls blocks, each with its number's pattern.
class Lent {
 public:
  explicit Lent(Node& node) {
    constexpr std::size_t kBytes = kBlock * kCalls;
    void* const base =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(base, MAP_FAILED);
    memory_ = {static_cast<std::byte*>(base), kBytes};
    const std::shared_ptr<void> keep_alive(base, [gone = gone_](void* memory) {
      std::memset(memory, 0xee, kBytes);
      gone->store(true);
    });
    Result<Region> made = Region::create(node.pool(), memory_, keep_alive, {.block_bytes = kBlock});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    region = *std::move(made);
    for (std::size_t i = 0; i < kCalls; ++i) fill(*region.reuse(i), i);
  }
  ~Lent() { munmap(memory_.data(), memory_.size()); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  [[nodiscard]] bool gone() const { return *gone_; }
  /// Once nobody refers to it any more, other pages stand in its place, and nobody may touch them.
  void unmap_when_gone() const {
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!gone() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_TRUE(gone()) << "nobody refers to it any more";
    ASSERT_EQ(mmap(memory_.data(), memory_.size(), PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              memory_.data());
  }
  void expect_untouched() {
    std::vector<unsigned char> pages(memory_.size() / 4096);
    ASSERT_EQ(mincore(memory_.data(), memory_.size(), pages.data()), 0);
    EXPECT_TRUE(std::none_of(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
  }

  Region region;

 private:
  std::span<std::byte> memory_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
};

/// How calls ended, or pulls.
struct Counts {
  void add(bool ok, bool right) { ++(!ok ? failed : right ? good : wrong); }
  [[nodiscard]] std::size_t all() const { return good + wrong + failed; }
  std::size_t good = 0, wrong = 0, failed = 0;
};

class ShutdownTcp : public ::testing::Test {
 protected:
  ShutdownTcp() {
    service_.add(kPut,
                 [this](Call& call, std::span<const std::byte> request, Upload& in,
                        Download&) -> Task<Result<Payload>> {
                   ++begun_;
                   const std::uint64_t tag = number(request);
                   const Result<Buffer> got = co_await in.pull(call.pool());
                   pulls_.add(got.ok(), got.ok() && holds(got->bytes(), tag));
                   co_return Payload();
                 });
    service_.add(kGet,
                 [this](Call&, std::span<const std::byte> request, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   out.add(*lent_->region.block(number(request)));
                   co_return Payload();
                 });
  }
  /// Uploads of every block of `lent_` by a client that other threads turn, until the server, which
  /// this thread turns, has some and READs more.
  void begin_uploads(Node& client, Node& server, const Channel& channel) {
    for (std::size_t i = 0; i < kCalls; ++i) {
      uploads_.push_back(start(channel.call(kPut, payload(i), lend(*lent_->region.block(i))),
                               Callback<Outcome<Payload>>{&ShutdownTcp::upload_over, this}));
    }
    ASSERT_TRUE(client.running());
    while (pulls_.all() < 5 || !reading(server)) server.run_once();
  }
  static bool reading(const Node& reader) {
    const NodeStats stats = reader.stats();
    return stats.reads_posted - stats.reads_completed - stats.reads_failed > 4;
  }
  static void upload_over(void* context, Outcome<Payload> outcome) {
    auto* self = static_cast<ShutdownTcp*>(context);
    ++(outcome.ok() ? self->uploads_ok_ : self->uploads_failed_);
  }

  testing::FunctionService service_;
  std::optional<Lent> lent_;
  std::vector<Started> uploads_;
  std::atomic<std::size_t> uploads_ok_{0}, uploads_failed_{0};
  std::size_t begun_ = 0;
  Counts pulls_;
};

// case 2
TEST_F(ShutdownTcp, TheCallerGoesWithItsMemoryWhileItsUploadsAreRead) {
  Node server(tcp());
  Result<Server> serving = server.serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  auto client = std::make_unique<Node>(tcp());
  client->run_background();
  lent_.emplace(*client);
  begin_uploads(*client, server, client->channel(serving->address()));
  lent_->region = Region();
  EXPECT_FALSE(lent_->gone()) << "it is lent";
  client.reset();
  EXPECT_EQ(uploads_ok_ + uploads_failed_, kCalls) << "every call has ended";
  EXPECT_GT(uploads_failed_, 0u);
  uploads_.clear();
  lent_->unmap_when_gone();
  while (pulls_.all() < begun_ || server.stats().served_live > 0) server.run_once();
  EXPECT_EQ(pulls_.wrong, 0u);
  EXPECT_GT(pulls_.failed, 0u);
  EXPECT_GE(pulls_.good, uploads_ok_);
  lent_->expect_untouched();
  EXPECT_EQ(server.stats().pool.bytes_in_use, 0u);
}

// case 2
TEST_F(ShutdownTcp, TheRegionGoesWhileTheUploadsAreRead) {
  for (const bool channel_too : {false, true}) {
    Node server(tcp());
    Result<Server> serving = server.serve("127.0.0.1:0", service_);
    ASSERT_TRUE(serving.ok()) << serving.status().to_string();
    Node client(tcp());
    client.run_background();
    Channel channel = client.channel(serving->address());
    lent_.emplace(client);
    begin_uploads(client, server, channel);
    if (channel_too) channel = Channel();
    uploads_.clear();  // drops the calls, and with the last of them the channel
    ASSERT_TRUE(block(lent_->region.close()).ok());
    EXPECT_FALSE(lent_->gone()) << "a handle is left";
    lent_->region = Region();
    lent_->unmap_when_gone();
    while (pulls_.all() < begun_ || server.stats().served_live > 0) server.run_once();
    EXPECT_EQ(pulls_.wrong, 0u);
    EXPECT_GT(pulls_.failed, 0u);
    lent_->expect_untouched();
    EXPECT_EQ(server.stats().pool.bytes_in_use, 0u);
    EXPECT_TRUE(channel_too || server.stats().connections_lost == 0) << "it goes on";
    pulls_ = {};
    begun_ = 0;
  }
}

// case 2
TEST_F(ShutdownTcp, TheServerGoesWithItsMemoryWhileItsAnswersAreRead) {
  auto server = std::make_unique<Node>(tcp());
  Result<Server> serving = server->serve("127.0.0.1:0", service_);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  lent_.emplace(*server);
  server->run_background();
  Node client(tcp());
  Channel channel = client.channel(serving->address());
  struct Get {
    Counts& counts;
    std::uint64_t tag;
    Started started;
  };
  std::vector<Get> gets;
  gets.reserve(kCalls);
  for (std::size_t i = 0; i < kCalls; ++i) {
    const Poller::Scope scope(client.poller());
    Get& get = gets.emplace_back(pulls_, i, Started());
    get.started =
        start(channel.call(kGet, payload(i), into(client.pool())),
              Callback<Outcome<Pulled<Payload>>>{
                  [](void* context, Outcome<Pulled<Payload>> outcome) {
                    const auto* of = static_cast<Get*>(context);
                    of->counts.add(outcome.ok(),
                                   outcome.ok() && holds(outcome->parts()[0]->bytes(), of->tag));
                  },
                  &get});
  }
  while (pulls_.all() < 5 || !reading(client)) client.run_once();
  serving = Status(Code::cancelled, "gone");
  server.reset();
  lent_->region = Region();
  lent_->unmap_when_gone();
  while (pulls_.all() < kCalls) client.run_once();
  EXPECT_EQ(pulls_.wrong, 0u);
  EXPECT_GT(pulls_.failed, 0u);
  {
    const Poller::Scope scope(client.poller());
    gets.clear();
  }
  while (client.stats().transfers_live > 0) client.run_once();
  lent_->expect_untouched();
  EXPECT_EQ(client.stats().pool.bytes_in_use, 0u);
}

}  // namespace
}  // namespace pawl
