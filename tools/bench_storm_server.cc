// SPDX-License-Identifier: Apache-2.0
// The server process of `pawl bench storm`.
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "bench.pawl.h"
#include "bench_counts.h"
#include "bench_pattern.h"
#include "bench_storm.h"
#include "error_sink.h"
#include "holding_source.h"
#include "pawl/node.h"

namespace pawl::tools {

namespace {

/// Places of equal size in a region, where uploads land. One that a pull failed in may have READs
/// under way: it is used again as late as possible.
class Places {
 public:
  Status make(Pool& pool, std::size_t bytes, std::size_t count) {
    constexpr std::size_t kAlign = 64;
    bytes_ = (bytes + kAlign - 1) / kAlign * kAlign;
    auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes_ * count);
    memory_ = {memory.get(), bytes_ * count};
    RegionOptions options;
    options.block_bytes = bytes_;
    Result<Region> made = Region::create(pool, memory_, std::move(memory), options);
    if (!made.ok()) return made.status();
    region_ = *std::move(made);
    for (std::size_t i = 0; i < count; ++i) free_.push_back(i * bytes_);
    return {};
  }
  [[nodiscard]] const Region& region() const { return region_; }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t offset) const {
    return memory_.subspan(offset, bytes_);
  }
  /// The offset of one that is free, if there is one.
  bool take(std::size_t& offset) {
    if (free_.empty()) return false;
    offset = free_.front();
    free_.pop_front();
    return true;
  }
  void give_back(std::size_t offset, bool landed) {
    if (landed) {
      free_.push_front(offset);
    } else {
      free_.push_back(offset);
    }
  }

 private:
  std::size_t bytes_ = 0;
  std::span<std::byte> memory_;
  Region region_;
  std::deque<std::size_t> free_;
};

class StormServer final : public bench::StormService {
 public:
  StormServer(const SampleSettings& settings, HoldBook& book, const HoldingSource& source)
      : settings_(settings), book_(book), source_(source) {}

  Status make_places(Node& node) {
    if (settings_.shape != Shape::upload) return {};
    return places_.make(node.pool(), settings_.size, kStormPlaces * settings_.outstanding);
  }

 private:
  struct Lent {
    Block block;
    TimePoint until;
  };

  Task<Result<bench::FetchReply>> fetch(Call& call, const bench::FetchRequest& request,
                                        Download& out) override {
    take_back(call.node().poller().now());
    auto buffer = co_await ok(call.pool().acquire(settings_.size, call.remaining()));
    fill_pattern(request.use(), buffer.bytes());
    Block block = std::move(buffer).freeze();
    // Guard disconnect takes back what timed out and knows nothing of evictions.
    if (request.lend_ns() > 0 && settings_.guard != Guard::disconnect) {
      const Duration lend(static_cast<std::int64_t>(request.lend_ns()));
      lent_.push_back(Lent{block, call.node().poller().now() + lend});
    }
    out.add(std::move(block));
    co_return bench::FetchReply();
  }

  /// What was lent for long enough: this use needs memory.
  void take_back(TimePoint now) {
    while (!lent_.empty() && lent_.front().until <= now) {
      std::move(lent_.front().block).retire();
      lent_.pop_front();
    }
  }

  Task<Result<bench::StoreReply>> store(Call&, const bench::StoreRequest& request,
                                        Upload& in) override {
    std::size_t place = 0;
    if (!places_.take(place)) co_return Status(Code::overloaded, "no place to land in is free");
    book_.set(places_.bytes(place), Duration(static_cast<std::int64_t>(request.hold_ns())));
    const Result<Block> block = co_await in.pull_into(places_.region(), place);
    places_.give_back(place, block.ok());
    if (!block.ok()) co_return block.status();
    bench::StoreReply reply;
    reply.set_wrong_bytes(wrong_bytes(request.use(), block->bytes(), settings_.size));
    wrong_bytes_ += reply.wrong_bytes();
    co_return reply;
  }

  Task<Result<bench::StormCountReply>> count(Call& call, const bench::CountRequest&) override {
    const NodeStats stats = call.node().stats();
    bench::StormCountReply reply;
    *reply.mutable_counts() = reply_of(stats);
    reply.set_late_reads(source_.late_reads());
    reply.set_wrong_bytes(wrong_bytes_);
    reply.set_transfers_live(stats.transfers_live);
    co_return reply;
  }

  const SampleSettings& settings_;
  HoldBook& book_;
  const HoldingSource& source_;
  std::deque<Lent> lent_;
  Places places_;
  std::uint64_t wrong_bytes_ = 0;
};

}  // namespace

Status serve_storm(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  const char* const fabric = settings.server_fabric.data();
  HoldBook book;
  HoldingSource source(fabric, book.plan());
  StormServer service(settings, book, source);
  ErrorSink log;
  NodeOptions options = storm_node_options(settings, "storm server", log, fabric);
  if (settings.shape == Shape::upload) options.fabric_source = &source;
  Node node(options);
  if (Status up = node.status(); !up.ok()) return up;
  if (Status made = service.make_places(node); !made.ok()) return made;
  Result<Server> serving = node.serve(settings.listen.data(), service);
  if (!serving.ok()) return serving.status();
  board.server.say(Stage::ready, serving->address());
  node.run();  // until the parent ends this process
  return {};
}

}  // namespace pawl::tools
