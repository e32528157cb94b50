// SPDX-License-Identifier: Apache-2.0
#include "bench_board.h"

#include <sched.h>
#include <unistd.h>

#include <utility>

namespace pawl::tools {

namespace {

/// Before there are threads. A core that is not there any more is no reason to stop.
void pin_to(std::int32_t core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

int exit_code(ProcessBoard& board, const Status& status) {
  board.say(status.ok() ? Stage::done : Stage::failed, status.to_string());
  return status.ok() ? 0 : 1;
}

}  // namespace

const char* name_of(System system) {
  switch (system) {
    case System::pawl:
      return "pawl";
    case System::raw:
      return "raw";
    case System::grpc:
      return "grpc";
  }
  return "";
}

Result<SharedBenchBoard> SharedBenchBoard::create(const SampleSettings& settings) {
  Result<SharedMemory> memory = SharedMemory::create("pawl-bench", sizeof(BenchBoard));
  if (!memory.ok()) return memory.status();
  SharedBenchBoard board(*std::move(memory));
  board->settings = settings;  // the rest is zero: valid counters, Stage::starting
  return board;
}

Result<SharedBenchBoard> SharedBenchBoard::attach(int fd) {
  Result<SharedMemory> memory = SharedMemory::attach(fd);
  if (!memory.ok()) return memory.status();
  if (memory->bytes().size() != sizeof(BenchBoard)) {
    return Status(Code::invalid_argument, "not the descriptor of a board");
  }
  return SharedBenchBoard(*std::move(memory));
}

int run_bench_server(int board_fd, BenchBody body) {
  Result<SharedBenchBoard> board = SharedBenchBoard::attach(board_fd);
  if (!board.ok()) return 1;
  pin_to((*board)->settings.server_core);
  (*board)->server_process = ::getpid();
  return exit_code((*board)->server, body(**board));
}

int run_bench_client(int board_fd, BenchBody body) {
  Result<SharedBenchBoard> board = SharedBenchBoard::attach(board_fd);
  if (!board.ok()) return 1;
  pin_to((*board)->settings.client_core);
  return exit_code((*board)->client, body(**board));
}

int run_bench_server(int board_fd) {
  return run_bench_server(board_fd, [](BenchBoard& board) {
    if (board.settings.held_percent > 0) return serve_storm(board);
    return board.settings.system == System::raw ? serve_raw(board) : serve_pawl(board);
  });
}

int run_bench_client(int board_fd) {
  return run_bench_client(board_fd, [](BenchBoard& board) {
    if (board.settings.held_percent > 0) return call_storm(board);
    return board.settings.system == System::raw ? call_raw(board) : call_pawl(board);
  });
}

}  // namespace pawl::tools
