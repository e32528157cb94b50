// SPDX-License-Identifier: Apache-2.0
#include "bench_idle.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "bench_meter.h"
#include "pawl/deadline.h"
#include "pawl/task_group.h"

namespace pawl::tools {

namespace {

constexpr std::size_t kLanes = 64;  // that connect at the same time
constexpr Duration kConnectDeadline = 30s;

std::int64_t resident_bytes(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::int64_t all = 0;
  std::int64_t resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::int64_t open_files(pid_t process) {
  std::error_code error;
  std::int64_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), error)) {
    files += entry.path().empty() ? 0 : 1;
  }
  return files;
}

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Status IdleConnections::open() {
  IdleResult& result = board_.result.idle;
  const NodeOptions defaults;
  result.connections = board_.settings.idle;
  result.receive_bytes = std::uint64_t{defaults.receive_messages} * defaults.receive_bytes;
  const pid_t server = board_.server_process;
  const std::int64_t server_bytes = resident_bytes(server);
  const std::int64_t client_bytes = resident_bytes(::getpid());
  const std::int64_t server_files = open_files(server);
  channels_.reserve(board_.settings.idle);
  const SteadyClock clock;
  const TimePoint start = clock.now();
  if (Status up = node_.block_on(connect_all()); !up.ok()) return up;
  result.connecting = clock.now() - start;
  result.server_bytes = resident_bytes(server) - server_bytes;
  result.client_bytes = resident_bytes(::getpid()) - client_bytes;
  result.server_files = open_files(server) - server_files;
  return {};
}

Task<Status> IdleConnections::connect_all() {
  TaskGroup lanes(kLanes);
  for (std::size_t i = 0; i < kLanes; ++i) co_await ok(lanes.spawn(lane()));
  co_return co_await lanes.join();
}

Task<Status> IdleConnections::lane() {
  while (channels_.size() < board_.settings.idle) {
    channels_.push_back(node_.channel(board_.server.words()));
    const Channel channel = channels_.back();
    co_await ok(channel.connect(kConnectDeadline));
  }
  co_return Status();
}

Status IdleConnections::rest() {
  const SteadyClock clock;
  const TimePoint start = clock.now();
  const CpuTimes cpu(board_.server_process);
  node_.block_on(sleep_for(board_.settings.run));
  SampleResult idle;
  cpu.write(idle);
  board_.result.idle.client_cpu = idle.client_cpu;
  board_.result.idle.server_cpu = idle.server_cpu;
  board_.result.idle.elapsed = clock.now() - start;
  const std::uint64_t live = node_.stats().connections_live;
  if (live == board_.settings.idle + std::uint64_t{1}) return {};
  return Status::with_detail(
      Code::internal, fmt::format("of {} connections {} are left", board_.settings.idle + 1, live));
}

}  // namespace pawl::tools
