// SPDX-License-Identifier: Apache-2.0
// Pawl's client process of `pawl bench`.
#include <string>
#include <utility>
#include <vector>

#include "bench.pawl.h"
#include "bench_counts.h"
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
    const bench::CountRequest request;
    auto reply = co_await ok(bench_.count(request, kOptions));
    co_return sum_of(counts_of(reply), counts_of(node_.stats()));
  }

 private:
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
