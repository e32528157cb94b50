// SPDX-License-Identifier: Apache-2.0
// pawl-bench-grpc ROLE PARENT BOARD: the two processes of `pawl bench echo --against grpc`, over
// the callback API of gRPC and one connection without encryption.
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bench.grpc.pb.h"
#include "bench_board.h"
#include "bench_meter.h"
#include "bench_pattern.h"
#include "child.h"

namespace pawl::tools {

namespace {

class GrpcServer final : public bench::Bench::CallbackService {
 public:
  explicit GrpcServer(BenchBoard& board) : board_(board) {}

 private:
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context,
                                 const bench::EchoRequest* request,
                                 bench::EchoReply* reply) override {
    reply->set_data(request->data());
    add(board_.served);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  BenchBoard& board_;
};

Status serve(BenchBoard& board) {
  GrpcServer service(board);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return Status(Code::unavailable, "gRPC cannot listen");
  board.server.say(Stage::ready, "127.0.0.1:" + std::to_string(port));
  server->Wait();  // until the parent ends this process
  return {};
}

/// A phase: as many lanes as calls are outstanding. Callbacks come on gRPC's threads.
class Lanes {
 public:
  Lanes(bench::Bench::Stub& stub, const SampleSettings& settings, Meter& meter)
      : stub_(stub), meter_(meter), lanes_(settings.outstanding) {
    for (Lane& lane : lanes_) lane.request.mutable_data()->resize(settings.size);
  }

  /// All calls that the meter wants; what the first one that failed said.
  Status run() {
    live_ = lanes_.size();
    for (Lane& lane : lanes_) next(lane, meter_.now());
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return live_ == 0; });
    if (failed_.ok()) return {};
    return Status::with_detail(Code::unavailable, "gRPC: " + failed_.error_message());
  }

 private:
  struct Lane {
    std::unique_ptr<grpc::ClientContext> context;
    bench::EchoRequest request;
    bench::EchoReply reply;
    TimePoint began;
  };

  void next(Lane& lane, TimePoint now) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failed_.ok() || !meter_.begin(now)) {
        if (--live_ == 0) done_.notify_one();
        return;
      }
      fill_pattern(meter_.begun(), std::as_writable_bytes(std::span(*lane.request.mutable_data())));
    }
    lane.began = now;
    lane.context = std::make_unique<grpc::ClientContext>();
    stub_.async()->Echo(lane.context.get(), &lane.request, &lane.reply,
                        [this, &lane](const grpc::Status& status) { end(lane, status); });
  }

  void end(Lane& lane, const grpc::Status& status) {
    const TimePoint now = meter_.now();
    const std::size_t size = lane.request.data().size();
    {
      const std::scoped_lock lock(mutex_);
      if (status.ok()) {
        meter_.end(lane.began, now, lane.reply.data() == lane.request.data() ? 0 : size);
      } else {
        failed_ = status;
      }
    }
    next(lane, now);
  }

  bench::Bench::Stub& stub_;
  std::mutex mutex_;
  std::condition_variable done_;
  Meter& meter_;
  std::vector<Lane> lanes_;
  std::size_t live_ = 0;
  grpc::Status failed_;
};

Status call(BenchBoard& board) {
  const SampleSettings& settings = board.settings;
  const auto stub = bench::Bench::NewStub(
      grpc::CreateChannel(board.server.words(), grpc::InsecureChannelCredentials()));
  const auto phase = [&](Meter& meter) { return Lanes(*stub, settings, meter).run(); };
  Meter warm = Meter::warm_up(settings);
  if (Status status = phase(warm); !status.ok()) return status;
  const std::uint64_t served_before = get(board.served);
  Meter meter = Meter::measured(settings);
  const CpuTimes cpu(board.server_process);
  if (Status status = phase(meter); !status.ok()) return status;
  cpu.write(board.result);
  meter.write(settings.size, board.result);
  board.result.wrong_bytes += warm.wrong_bytes();
  board.result.counts.served = get(board.served) - served_before;
  return {};
}

int run(int argc, char** argv) {
  if (argc != 4) return 64;
  end_with_parent(static_cast<pid_t>(std::strtol(argv[2], nullptr, 10)));
  const int board = static_cast<int>(std::strtol(argv[3], nullptr, 10));
  return std::string_view(argv[1]) == "server" ? run_bench_server(board, &serve)
                                               : run_bench_client(board, &call);
}

}  // namespace

}  // namespace pawl::tools

int main(int argc, char** argv) { return pawl::tools::run(argc, argv); }
