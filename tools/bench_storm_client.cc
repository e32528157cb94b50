// SPDX-License-Identifier: Apache-2.0
// The client process of `pawl bench storm`: how many calls there can be, then the same load twice,
// in the calm and while READs are held.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/random.h"
#include "bench.pawl.h"
#include "bench_counts.h"
#include "bench_meter.h"
#include "bench_pattern.h"
#include "bench_row.h"
#include "bench_storm.h"
#include "error_sink.h"
#include "holding_source.h"
#include "pawl/deadline.h"
#include "pawl/node.h"
#include "pawl/task_group.h"

namespace pawl::tools {

namespace {

constexpr double kLoad = 0.6;                 // of the capacity
constexpr std::int64_t kDeadlineFactor = 10;  // of what half of the calls need in the calm
constexpr std::size_t kCallsMax = 16384;      // under way
constexpr std::uint64_t kSeed = 1;
constexpr Duration kDrainStepMin = 1ms;
constexpr int kCountsMax = 100;

/// An open loop: calls begin at their times, however many are under way.
struct Load {
  Duration interval{0};
  std::uint64_t calls = 0;
  Duration deadline{0};  ///< 0: that of every channel
  double held = 0;
};

/// How one call ended.
struct Ended {
  Code code = Code::ok;
  std::uint64_t wrong_bytes = 0;
  TimePoint at;  ///< before its bytes were looked at
};

/// What became of the calls of a load.
struct Tally {
  std::uint64_t calls = 0;
  std::uint64_t wrong_bytes = 0;
  Histogram times;  ///< from when they were to begin, of those that were not held
  StormResult storm;
  std::uint64_t data_lost = 0;  ///< of storm.failed

  /// But for queue pairs that were lost.
  [[nodiscard]] std::uint64_t failures() const {
    return storm.timed_out + storm.stale + storm.failed - data_lost;
  }

  void count(const Load& load, std::uint64_t size, TimePoint due, bool held, const Ended& ended) {
    ++calls;
    wrong_bytes += ended.wrong_bytes;
    const bool good = ended.code == Code::ok && ended.wrong_bytes == 0;
    count_failure(ended.code);
    if (held) {
      ++storm.held;
      return;
    }
    storm.offered_bytes += size;
    if (good) storm.good_bytes += size;
    // One that failed was no faster than one that its caller waited for in vain.
    const Duration took = ended.at - due;
    times.add(good ? took : std::max(took, load.deadline));
  }

 private:
  void count_failure(Code code) {
    if (code == Code::ok) return;
    switch (code) {
      case Code::deadline:
        ++storm.timed_out;
        break;
      case Code::stale:
        ++storm.stale;
        break;
      default:
        ++storm.failed;
        if (code == Code::data_lost) ++data_lost;
    }
  }
};

class Caller {
 public:
  Caller(const SampleSettings& settings, HoldBook& book, Node& node, Channel channel)
      : settings_(settings), book_(book), node_(node), storm_(std::move(channel)), random_(kSeed) {}

  /// As many lanes as calls are outstanding, each with one call at a time.
  Task<Status> closed_loop(Meter& meter) {
    TaskGroup lanes(settings_.outstanding);
    for (std::uint32_t i = 0; i < settings_.outstanding; ++i) co_await ok(lanes.spawn(lane(meter)));
    co_return co_await lanes.join();
  }

  Task<Status> open_loop(const Load& load, Tally& tally) {
    TaskGroup calls(kCallsMax);
    const TimePoint start = node_.poller().now();
    const HoldRange range = hold_range(settings_.shape, load.deadline);
    for (std::uint64_t i = 0; i < load.calls; ++i) {
      const TimePoint due = start + load.interval * static_cast<std::int64_t>(i);
      co_await sleep_until(due);
      const bool held = random_.chance(load.held);
      const Duration hold(held ? random_.between(range.min.count(), range.max.count()) : 0);
      if (calls.spawn(one_of(load, tally, due, hold)).ok()) continue;
      const Ended refused{Code::resource_exhausted, 0, clock_.now()};
      tally.count(load, settings_.size, due, held, refused);
    }
    co_return co_await calls.join();
  }

  /// What both ends counted, when no READ is under way any more.
  Task<Result<bench::StormCountReply>> count(Duration step) {
    const bench::CountRequest request;
    for (int tries = 1;; ++tries) {
      auto reply = co_await storm_.count(request);
      // The last calls of a storm may take their connection with them.
      const bool lost = !reply.ok() && reply.status().code() == Code::connection_lost;
      if (!reply.ok() && (!lost || tries == kCountsMax)) co_return reply.status();
      const bool drained = reply.ok() && reply->transfers_live() == 0;
      if (drained && node_.stats().transfers_live == 0) co_return *std::move(reply);
      co_await sleep_for(step);
    }
  }

  /// Why a call failed; not told of queue pairs that were lost.
  [[nodiscard]] const Status& trouble() const { return trouble_; }
  /// Calls of closed loops whose data queue pair was lost: windows lose theirs where a process does
  /// not get its core for long.
  [[nodiscard]] std::uint64_t data_lost() const { return data_lost_; }

 private:
  /// In the calm a server that is gone ends the sample at once.
  static CallOptions options_of(const Load& load) {
    CallOptions options;
    options.deadline = load.deadline;
    options.wait_for_connection = load.deadline > Duration{0};
    return options;
  }

  Task<Status> lane(Meter& meter) {
    const CallOptions options = options_of(Load());
    for (TimePoint began = meter.now(); meter.begin(began);) {
      const Ended ended = co_await call(Duration{0}, options);
      if (ended.code == Code::ok) meter.end(began, ended.at, ended.wrong_bytes);
      if (ended.code == Code::data_lost) ++data_lost_;
      if (ended.code != Code::ok && ended.code != Code::data_lost) co_return trouble_;
      began = meter.now();
    }
    co_return Status();
  }

  Task<Status> one_of(const Load& load, Tally& tally, TimePoint due, Duration hold) {
    const CallOptions options = options_of(load);
    const Ended ended = co_await call(hold, options);
    tally.count(load, settings_.size, due, hold > Duration{0}, ended);
    co_return Status();
  }

  Task<Ended> call(Duration hold, const CallOptions& options) {
    auto acquired = co_await node_.pool().acquire(settings_.size);
    if (!acquired.ok()) co_return ended_by(acquired.status());
    const std::uint64_t use = ++uses_;
    if (settings_.shape == Shape::download) {
      co_return co_await fetch(use, *std::move(acquired), hold, options);
    }
    co_return co_await store(use, *std::move(acquired), hold, options);
  }

  Task<Ended> fetch(std::uint64_t use, Buffer buffer, Duration hold, const CallOptions& options) {
    book_.set(std::as_const(buffer).bytes(), hold);
    bench::FetchRequest request;
    request.set_use(use);
    request.set_lend_ns(static_cast<std::uint64_t>((options.deadline / kLendParts).count()));
    const auto outcome = co_await storm_.fetch(request, into(std::move(buffer)), options);
    if (!outcome.ok()) co_return ended_by(outcome.status());
    const Result<Block> block = outcome->part();
    if (!block.ok()) co_return ended_by(block.status());
    Ended ended{Code::ok, 0, clock_.now()};
    ended.wrong_bytes = wrong_bytes(use, block->bytes(), settings_.size);
    co_return ended;
  }

  Task<Ended> store(std::uint64_t use, Buffer buffer, Duration hold, const CallOptions& options) {
    fill_pattern(use, buffer.bytes());
    Block block = std::move(buffer).freeze();
    bench::StoreRequest request;
    request.set_use(use);
    request.set_hold_ns(static_cast<std::uint64_t>(hold.count()));
    const auto outcome = co_await storm_.store(request, lend(std::move(block)), options);
    if (!outcome.ok()) co_return ended_by(outcome.status());
    co_return Ended{Code::ok, outcome->wrong_bytes(), clock_.now()};
  }

  Ended ended_by(const Status& status) {
    if (status.code() != Code::data_lost) trouble_ = status;
    return {status.code(), 0, clock_.now()};
  }

  const SampleSettings& settings_;
  HoldBook& book_;
  Node& node_;
  bench::StormClient storm_;
  const SteadyClock clock_;
  Random random_;
  std::uint64_t uses_ = 0;
  Status trouble_;
  std::uint64_t data_lost_ = 0;
};

/// The phases of one sample, one after the other.
class Sample {
 public:
  Sample(BenchBoard& board, Caller& caller, Node& node, const HoldingSource& source)
      : board_(board), settings_(board.settings), caller_(caller), node_(node), source_(source) {}

  Status run() {
    Meter warm = Meter::warm_up(settings_);
    if (Status done = node_.block_on(caller_.closed_loop(warm)); !done.ok()) return done;
    Meter meter = Meter::measured(settings_);
    if (Status done = node_.block_on(caller_.closed_loop(meter)); !done.ok()) return done;
    SampleResult capacity;
    meter.write(settings_.size, capacity);
    Load load;
    const double calls_per_s = figure_of(capacity, Figure::calls_per_s) * kLoad;
    load.interval = std::max(Duration(1), Duration(static_cast<std::int64_t>(1e9 / calls_per_s)));
    load.calls = settings_.calls > 0 ? settings_.calls
                                     : std::max<std::uint64_t>(1, settings_.run / load.interval);
    Tally calm;
    if (Status done = node_.block_on(caller_.open_loop(load, calm)); !done.ok()) return done;
    const std::uint64_t wrong = warm.wrong_bytes() + meter.wrong_bytes() + calm.wrong_bytes;
    if (Status good = check_calm(calm, wrong); !good.ok()) return good;
    load.deadline = calm.times.p50() * kDeadlineFactor;
    load.held = settings_.held_percent / 100.0;
    return storm(load, calm);
  }

 private:
  Status check_calm(const Tally& calm, std::uint64_t wrong) const {
    if (calm.failures() > 0) return caller_.trouble();
    if (wrong == 0) return {};
    return Status::with_detail(Code::internal,
                               fmt::format("{} bytes arrived wrong in the calm", wrong));
  }

  Status storm(const Load& load, const Tally& calm) {
    const Duration step = std::max(load.deadline, kDrainStepMin);
    const auto before = node_.block_on(caller_.count(step));
    if (!before.ok()) return before.status();
    const SampleCounts own_before = counts_of(node_.stats());
    Tally tally;
    const TimePoint start = clock_.now();
    if (Status done = node_.block_on(caller_.open_loop(load, tally)); !done.ok()) return done;
    board_.result.elapsed = clock_.now() - start;
    const auto after = node_.block_on(caller_.count(step));
    if (!after.ok()) return after.status();
    const SampleCounts own_after = counts_of(node_.stats());
    write(load, calm, tally);
    SampleResult& result = board_.result;
    result.counts = between(sum_of(counts_of(before->counts()), own_before),
                            sum_of(counts_of(after->counts()), own_after));
    // The other end counts the same ones.
    result.counts.queue_pairs_lost = own_after.queue_pairs_lost - own_before.queue_pairs_lost;
    // Of what a device refused only the calls tell.
    if (settings_.shape == Shape::download) result.counts.stale = tally.storm.stale;
    result.wrong_bytes += after->wrong_bytes();
    result.storm.late_reads = after->late_reads() + node_.block_on(late_reads());
    return {};
  }

  /// On the poller.
  Task<std::uint64_t> late_reads() { co_return source_.late_reads(); }

  void write(const Load& load, const Tally& calm, const Tally& tally) {
    SampleResult& result = board_.result;
    result.calls = tally.calls;
    result.bytes = tally.storm.good_bytes;
    // Of uploads the server counts, since it is the one who accepts.
    result.wrong_bytes = settings_.shape == Shape::download ? tally.wrong_bytes : 0;
    result.times = tally.times;
    result.storm = tally.storm;
    result.storm.calls_per_s = 1e9 / static_cast<double>(load.interval.count());
    result.storm.deadline = load.deadline;
    result.storm.calm = calm.times;
    result.storm.calm_failed = caller_.data_lost() + calm.data_lost;
  }

  BenchBoard& board_;
  const SampleSettings& settings_;
  Caller& caller_;
  Node& node_;
  const HoldingSource& source_;
  const SteadyClock clock_;
};

}  // namespace

Status call_storm(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  const char* const fabric = settings.client_fabric.data();
  HoldBook book;
  HoldingSource source(fabric, book.plan());
  ErrorSink log;
  NodeOptions options = storm_node_options(settings, "storm client", log, fabric);
  if (settings.shape == Shape::download) options.fabric_source = &source;
  Node node(options);
  if (Status up = node.status(); !up.ok()) return up;
  ChannelOptions channel_options;
  channel_options.guard = settings.guard;
  channel_options.reconnect_backoff_first = 2ms;
  channel_options.reconnect_backoff_max = 20ms;
  const Channel channel = node.channel(board.server.words(), channel_options);
  Caller caller(settings, book, node, channel);
  node.run_background();
  if (Status up = node.block_on(channel.connect()); !up.ok()) return up;
  Sample sample(board, caller, node, source);
  return sample.run();
}

}  // namespace pawl::tools
