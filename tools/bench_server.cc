// SPDX-License-Identifier: Apache-2.0
// Pawl's server process of `pawl bench`.
#include <utility>
#include <vector>

#include "bench.pawl.h"
#include "bench_counts.h"
#include "bench_idle.h"
#include "bench_node.h"
#include "bench_pattern.h"
#include "error_sink.h"
#include "pawl/blocking.h"
#include "pawl/node.h"

namespace pawl::tools {

namespace {

class BenchServer final : public bench::BenchService {
 public:
  explicit BenchServer(const SampleSettings& settings) : settings_(settings) {}

  Status hold_blocks(Node& node) {
    if (settings_.shape != Shape::download) return {};
    Result<std::vector<Block>> made = make_blocks(node, settings_.size);
    if (!made.ok()) return made.status();
    blocks_ = *std::move(made);
    return {};
  }

 private:
  Task<Result<bench::EchoReply>> echo(Call&, const bench::EchoRequest& request) override {
    bench::EchoReply reply;
    reply.set_data(request.data());
    co_return reply;
  }

  Task<Result<bench::GetReply>> get(Call&, const bench::GetRequest& request,
                                    Download& out) override {
    if (request.block() >= blocks_.size()) co_return Status(Code::not_found, "no such block");
    out.add(blocks_[request.block()]);
    co_return bench::GetReply();
  }

  Task<Result<bench::PutReply>> put(Call& call, const bench::PutRequest& request,
                                    Upload& in) override {
    auto buffer = co_await ok(in.pull(call.pool()));
    bench::PutReply reply;
    reply.set_wrong_bytes(wrong_bytes(request.block(), std::as_const(buffer).bytes(),
                                      settings_.size, request.thorough()));
    co_return reply;
  }

  Task<Result<bench::CountReply>> count(Call& call, const bench::CountRequest&) override {
    co_return reply_of(call.node().stats());
  }

  const SampleSettings& settings_;
  std::vector<Block> blocks_;
};

}  // namespace

Status serve_pawl(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  BenchServer service(settings);
  ErrorSink log;
  raise_file_limit();
  Node node(bench_node_options(settings, "bench server", log, settings.server_fabric.data()));
  if (Status up = node.status(); !up.ok()) return up;
  if (Status held = service.hold_blocks(node); !held.ok()) return held;
  Result<Server> serving = node.serve(settings.listen.data(), service);
  if (!serving.ok()) return serving.status();
  board.server.say(Stage::ready, serving->address());
  node.run();  // until the parent ends this process
  return {};
}

}  // namespace pawl::tools
