// SPDX-License-Identifier: Apache-2.0
// The client process of `pawl demo`.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/histogram.h"
#include "base/random.h"
#include "demo.pawl.h"
#include "demo_board.h"
#include "demo_corpus.h"
#include "demo_files.h"
#include "demo_node.h"
#include "demo_reuse.h"
#include "pawl/blocking.h"
#include "pawl/deadline.h"
#include "pawl/node.h"
#include "pawl/task_group.h"

namespace pawl::tools {

namespace {

constexpr std::size_t kSmallLanes = 32;
constexpr std::size_t kLargeLanes = 5;
constexpr std::size_t kLargeLanesMax = 8;  // where large files are all there is,
constexpr std::size_t kLargeLaneBytes = std::size_t{320} << 20;  // and in all no more than these

/// Makes calls, several at a time, and counts what became of them.
class Caller {
 public:
  Caller(const Corpus& corpus, Board& board, ReuseBook& book, Node& node, const Channel& channel)
      : files_(corpus),
        settings_(board.settings),
        board_(board),
        book_(book),
        node_(node),
        store_(channel),
        random_(board.settings.seed ^ 0xc11) {
    for (std::uint32_t i = 0; i < corpus.size(); ++i) {
      (corpus.file(i).size() > kLargeFileBytes ? large_ : small_).push_back(i);
    }
  }

  /// Until the row's time is over; what is under way then is dropped.
  Task<Status> run() {
    const TimePoint start = node_.poller().now();
    TaskGroup lanes;
    spawn(lanes, small_, kSmallLanes);
    spawn(lanes, large_, large_lanes());
    while (node_.poller().now() - start < settings_.run && lanes.size() > 0) {
      co_await sleep_for(std::min(kTick, settings_.run));
      publish(node_.poller().now() - start);
    }
    lanes.cancel();
    publish(node_.poller().now() - start);
    files_.stop_workers();
    co_return Status();
  }

 private:
  void spawn(TaskGroup& lanes, const std::vector<std::uint32_t>& files, std::size_t count) {
    for (std::size_t i = 0; i < count && !files.empty(); ++i) {
      const Status started = lanes.spawn(lane(files));
      PAWL_CHECK(started.ok(), "a group has room for the lanes");
    }
  }

  std::size_t large_lanes() const {
    if (!settings_.large_only) return kLargeLanes;
    std::size_t largest = 1;
    for (const std::uint32_t i : large_) {
      largest = std::max(largest, files_.corpus().file(i).size());
    }
    return std::clamp(kLargeLaneBytes / largest, kLargeLanes, kLargeLanesMax);
  }

  Task<Status> lane(const std::vector<std::uint32_t>& files) {
    for (;;) {
      const std::uint32_t file = files[random_.below(files.size())];
      Status made;
      if (random_.chance(0.5)) {
        made = co_await put(file);
      } else {
        made = co_await get(file);
      }
      // Without a connection, or without memory, the next call would fail as fast.
      if (!made.ok()) co_await sleep_for(1ms);
    }
  }

  CallOptions options(std::size_t bytes) const {
    CallOptions options;
    options.deadline = deadline_of(settings_, bytes);
    options.priority = priority_of(bytes);
    return options;
  }

  Task<Status> put(std::uint32_t file) {
    const std::size_t bytes = files_.corpus().file(file).size();
    auto buffer = co_await ok(node_.pool().acquire(bytes));
    BufferUse use(book_, buffer.bytes());
    Block block = co_await ok(files_.fill(file, std::move(buffer)));
    demo::PutRequest request;
    request.set_file(file);
    auto outcome = co_await store_.put(request, lend(block), options(bytes));
    co_return count(outcome, bytes);
  }

  Task<Status> get(std::uint32_t file) {
    const std::size_t bytes = files_.corpus().file(file).size();
    demo::GetRequest request;
    request.set_file(file);
    auto outcome = co_await store_.get(request, into(node_.pool()), options(bytes));
    if (!outcome.ok()) co_return count(outcome, bytes);
    auto block = co_await ok(outcome->part());  // accepted: from here on the bytes are ours
    const auto wrong = co_await ok(files_.wrong_bytes(file, std::move(block)));
    if (wrong > 0) {
      add(board_.client.wrong_bytes, wrong);
      add(board_.client.wrong_transfers);
    }
    co_return count(outcome, bytes, wrong == 0);
  }

  /// Fails where the next call should wait a moment.
  template <class T>
  Status count(const Outcome<T>& outcome, std::size_t bytes, bool right = true) {
    CallBoard& calls = board_.calls;
    add(calls.calls);
    if (outcome.ok()) {
      add(calls.ok);
      if (right) add(calls.good_bytes, bytes);
      times_.add(outcome.info().total);
      small_deadlines_.add(small_deadline_for(settings_, bytes, outcome.info().total));
      return {};
    }
    const Code code = outcome.status().code();
    if (code == Code::stale) return {};
    add(code == Code::deadline ? calls.timed_out : calls.failed);
    return code == Code::deadline ? Status() : outcome.status();
  }

  void publish(Duration elapsed) {
    CallBoard& calls = board_.calls;
    const NodeStats stats = node_.stats();
    const auto set = [](Counter& counter, auto value) {
      counter.store(static_cast<std::uint64_t>(value), std::memory_order_relaxed);
    };
    add(board_.client.heartbeats);
    set(board_.client.stale, stats.transfers_stale);
    set(calls.connections_lost, stats.connections_lost);
    set(calls.elapsed_ns, elapsed.count());
    set(calls.p50_ns, times_.p50().count());
    set(calls.p99_ns, times_.p99().count());
    set(calls.p999_ns, times_.p999().count());
    set(calls.p99_small_deadline_ns, small_deadlines_.p99().count());
  }

  Files files_;
  const RowSettings& settings_;
  Board& board_;
  ReuseBook& book_;
  Node& node_;
  demo::StoreClient store_;
  Random random_;
  Histogram times_;
  Histogram small_deadlines_;
  std::vector<std::uint32_t> small_;
  std::vector<std::uint32_t> large_;
};

Status call(const Corpus& corpus, fabric::SharedReuseTable& table, Board& board) {
  const RowSettings& settings = board.settings;
  ReuseBook book(table, board.client);
  HoldingSource source(settings.client_fabric.data(),
                       plan_of(settings, settings.seed ^ 0xc1e, book), &book);
  ErrorSink log;
  Node node(node_options(settings, "demo client", source, log));
  ChannelOptions options;
  options.guard = settings.guard;
  options.reconnect_backoff_first = 2ms;
  options.reconnect_backoff_max = 20ms;
  const Channel channel = node.channel(board.server.words(), options);
  if (Status up = node.block_on(channel.connect()); !up.ok()) return up;
  board.client.say(Stage::ready, "");
  Caller caller(corpus, board, book, node, channel);
  return node.block_on(caller.run());
}

}  // namespace

int run_client(const ChildFiles& files) {
  Result<SharedBoard> board = SharedBoard::attach(files.board);
  if (!board.ok()) return 1;
  Result<Corpus> corpus = Corpus::attach(files.corpus);
  Result<fabric::SharedReuseTable> table = fabric::SharedReuseTable::attach(files.reuse);
  Status status = corpus.ok() ? table.status() : corpus.status();
  if (status.ok()) status = call(*corpus, *table, **board);
  (*board)->client.say(status.ok() ? Stage::done : Stage::failed, status.to_string());
  return status.ok() ? 0 : 1;
}

}  // namespace pawl::tools
