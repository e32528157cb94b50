// SPDX-License-Identifier: Apache-2.0
// Pawl's client process of `pawl bench`.
#include <string>
#include <utility>
#include <vector>

#include "bench.pawl.h"
#include "bench_idle.h"
#include "bench_meter.h"
#include "bench_node.h"
#include "bench_pattern.h"
#include "error_sink.h"
#include "pawl/blocking.h"
#include "pawl/node.h"
#include "pawl/task_group.h"

namespace pawl::tools {

namespace {

/// Of one end, since its start.
SampleCounts counts_of(const NodeStats& stats) {
  SampleCounts counts;
  counts.messages = stats.messages_sent;
  counts.transfers = stats.transfers_ok;
  counts.reads = stats.reads_posted;
  counts.confirms = stats.confirms_valid;
  counts.binds = stats.window_binds;
  counts.invalidates = stats.window_invalidates;
  counts.stale = stats.transfers_stale;
  counts.connections_lost = stats.connections_lost;
  counts.queue_pairs_lost = stats.data_endpoints_lost;
  return counts;
}

SampleCounts counts_of(const bench::CountReply& reply) {
  SampleCounts counts;
  counts.served = reply.served_ok();
  counts.messages = reply.messages_sent();
  counts.transfers = reply.transfers_ok();
  counts.reads = reply.reads_posted();
  counts.confirms = reply.confirms_valid();
  counts.binds = reply.window_binds();
  counts.invalidates = reply.window_invalidates();
  counts.stale = reply.transfers_stale();
  counts.queue_pairs_lost = reply.data_endpoints_lost();
  return counts;
}

constexpr std::uint64_t SampleCounts::*kCounts[] = {
    &SampleCounts::served,          &SampleCounts::messages, &SampleCounts::transfers,
    &SampleCounts::reads,           &SampleCounts::confirms, &SampleCounts::binds,
    &SampleCounts::invalidates,     &SampleCounts::stale,    &SampleCounts::connections_lost,
    &SampleCounts::queue_pairs_lost};

// A server that is gone ends the sample at once.
constexpr CallOptions kOptions{.wait_for_connection = false};

class Client {
 public:
  Client(const SampleSettings& settings, Node& node, Channel channel)
      : settings_(settings), node_(node), bench_(std::move(channel)) {}

  Status hold_blocks() {
    if (settings_.shape != Shape::upload) return {};
    Result<std::vector<Block>> made = make_blocks(node_, settings_.size);
    if (!made.ok()) return made.status();
    blocks_ = *std::move(made);
    return {};
  }

  /// As many lanes as calls are outstanding, each with one call at a time.
  Task<Status> phase(Meter& meter) {
    TaskGroup lanes(settings_.outstanding);
    for (std::uint32_t i = 0; i < settings_.outstanding; ++i) co_await ok(lanes.spawn(lane(meter)));
    co_return co_await lanes.join();
  }

  Task<Result<SampleCounts>> count() {
    SampleCounts both = co_await ok(count_server());
    const SampleCounts own = counts_of(node_.stats());
    for (const auto member : kCounts) both.*member += own.*member;
    co_return both;
  }

 private:
  Task<Result<SampleCounts>> count_server() {
    const bench::CountRequest request;
    auto reply = co_await ok(bench_.count(request, kOptions));
    co_return counts_of(reply);
  }

  Task<Status> lane(Meter& meter) {
    switch (settings_.shape) {
      case Shape::echo:
        return echo(meter);
      case Shape::download:
        return download(meter);
      case Shape::upload:
        break;
    }
    return upload(meter);
  }

  Task<Status> echo(Meter& meter) {
    bench::EchoRequest request;
    std::string& data = *request.mutable_data();
    data.resize(settings_.size);
    const auto bytes = std::as_writable_bytes(std::span(data));
    for (TimePoint began = meter.now(); meter.begin(began);) {
      fill_pattern(meter.begun(), bytes);
      auto reply = co_await ok(bench_.echo(request, kOptions));
      const TimePoint now = meter.now();
      meter.end(began, now, reply.data() == data ? 0 : settings_.size);
      began = now;
    }
    co_return Status();
  }

  Task<Status> download(Meter& meter) {
    bench::GetRequest request;
    for (TimePoint began = meter.now(); meter.begin(began);) {
      request.set_block(static_cast<std::uint32_t>(meter.begun() % kBenchBlocks));
      auto pulled = co_await ok(bench_.get(request, into(node_.pool()), kOptions));
      auto block = co_await ok(pulled.part());
      const TimePoint now = meter.now();
      meter.end(began, now,
                wrong_bytes(request.block(), block.bytes(), settings_.size, meter.thorough()));
      began = meter.thorough() ? meter.now() : now;
    }
    co_return Status();
  }

  Task<Status> upload(Meter& meter) {
    bench::PutRequest request;
    request.set_thorough(meter.thorough());
    for (TimePoint began = meter.now(); meter.begin(began);) {
      request.set_block(static_cast<std::uint32_t>(meter.begun() % kBenchBlocks));
      auto reply = co_await ok(bench_.put(request, lend(blocks_[request.block()]), kOptions));
      const TimePoint now = meter.now();
      meter.end(began, now, reply.wrong_bytes());
      began = now;
    }
    co_return Status();
  }

  const SampleSettings& settings_;
  Node& node_;
  bench::BenchClient bench_;
  std::vector<Block> blocks_;
};

/// What the calls between two counts took. Of the counting itself there are, between the two, one
/// call served and two messages: the first answer and the second request.
SampleCounts between(const SampleCounts& before, const SampleCounts& after) {
  SampleCounts counts;
  for (const auto member : kCounts) counts.*member = after.*member - before.*member;
  counts.served -= 1;
  counts.messages -= 2;
  return counts;
}

}  // namespace

Status call_pawl(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  ErrorSink log;
  raise_file_limit();
  Node node(bench_node_options(settings, "bench client", log, settings.client_fabric.data()));
  if (Status up = node.status(); !up.ok()) return up;
  ChannelOptions options;
  options.guard = settings.guard;
  const Channel channel = node.channel(board.server.words(), options);
  Client client(settings, node, channel);
  if (Status held = client.hold_blocks(); !held.ok()) return held;
  node.run_background();
  if (Status up = node.block_on(channel.connect()); !up.ok()) return up;

  IdleConnections idle(board, node);
  if (settings.look_at_idle) {
    if (Status open = idle.open(); !open.ok()) return open;
  }
  Meter warm = Meter::warm_up(settings);
  if (Status status = node.block_on(client.phase(warm)); !status.ok()) return status;
  const Result<SampleCounts> before = node.block_on(client.count());
  if (!before.ok()) return before.status();
  Meter meter = Meter::measured(settings);
  const CpuTimes cpu(board.server_process);
  if (Status status = node.block_on(client.phase(meter)); !status.ok()) return status;
  cpu.write(board.result);
  meter.write(settings.size, board.result);
  board.result.wrong_bytes += warm.wrong_bytes();
  const Result<SampleCounts> after = node.block_on(client.count());
  if (!after.ok()) return after.status();
  board.result.counts = between(*before, *after);
  return settings.look_at_idle ? idle.rest() : Status();
}

}  // namespace pawl::tools
