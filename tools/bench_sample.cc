// SPDX-License-Identifier: Apache-2.0
#include "bench_sample.h"

#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <optional>
#include <string>
#include <utility>

#include "child.h"

namespace pawl::tools {

namespace {

constexpr Duration kStartStep = 1ms;
constexpr Duration kStartLimit = 30s;
constexpr Duration kEndLimit = 60s;       // beyond the time of the sample
constexpr Duration kConnectLimit = 20ms;  // of each idle connection

Status named(const Child& child, const std::string& what) {
  return Status::with_detail(Code::internal, fmt::format("the {}: {}", child.name(), what));
}

Result<Child> start(const SharedBenchBoard& board, const char* role) {
  const System system = board->settings.system;
  const std::string name = fmt::format("{} process ({})", role, name_of(system));
  const std::string parent = fmt::to_string(::getpid());
  const std::string fd = fmt::to_string(board.fd());
  if (system == System::grpc) return Child::start_program(name, grpc_program(), {role, parent, fd});
  return Child::start(name, {"bench", "child", role, "--parent", parent, "--board-fd", fd});
}

/// What a process that ended says of itself, else how it ended.
Status end_of(const Child& child, const ProcessBoard& board, const Status& end) {
  if (board.stage.load(std::memory_order_acquire) != Stage::failed) return end;
  return named(child, board.words());
}

Status until_ready(Child& server, const ProcessBoard& board) {
  for (Duration waited{0}; waited < kStartLimit; waited += kStartStep) {
    if (board.stage.load(std::memory_order_acquire) == Stage::ready) return {};
    if (const std::optional<Status> end = server.ended()) {
      const Status why = end_of(server, board, *end);
      return why.ok() ? named(server, "it ended before it was told to") : why;
    }
    pause_for(kStartStep);
  }
  return named(server, "it does not start");
}

Duration limit_of(const SampleSettings& settings) {
  return settings.run * 4 + kEndLimit + kConnectLimit * static_cast<std::int64_t>(settings.idle);
}

Status counts_add_up(const SampleSettings& settings, const SampleResult& result) {
  // In a storm calls fail, before or after the server served them.
  const StormResult& storm = result.storm;
  const std::uint64_t ok = result.calls - storm.timed_out - storm.stale - storm.failed;
  const bool served =
      settings.held_percent > 0 ? ok <= result.counts.served : ok == result.counts.served;
  if (served && result.calls > 0 && (settings.calls == 0 || settings.calls == result.calls)) {
    return {};
  }
  return Status::with_detail(
      Code::internal, fmt::format("the counts do not add up: {} calls were to be made, {} were, {} "
                                  "were served",
                                  settings.calls, result.calls, result.counts.served));
}

}  // namespace

std::string grpc_program() {
  std::string path(PATH_MAX, '\0');
  const ssize_t bytes = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  return path.substr(0, path.rfind('/') + 1) + "pawl-bench-grpc";
}

std::string grpc_missing() {
  if (::access(grpc_program().c_str(), X_OK) == 0) return {};
  return "not built: install libgrpc++-dev and protobuf-compiler-grpc, build pawl-bench-grpc";
}

Result<SampleResult> run_sample(const SampleSettings& settings) {
  Result<SharedBenchBoard> board = SharedBenchBoard::create(settings);
  if (!board.ok()) return board.status();
  Result<Child> server = start(*board, "server");
  if (!server.ok()) return server.status();
  if (Status up = until_ready(*server, (*board)->server); !up.ok()) return up;
  Result<Child> client = start(*board, "client");
  if (!client.ok()) return client.status();
  const std::optional<Status> end = client->wait(limit_of(settings));
  if (!end) return named(*client, "it does not end");
  if (Status ended = end_of(*client, (*board)->client, *end); !ended.ok()) return ended;
  const SampleResult result = (*board)->result;
  if (Status good = counts_add_up(settings, result); !good.ok()) return good;
  return result;
}

}  // namespace pawl::tools
