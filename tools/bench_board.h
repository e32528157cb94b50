// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/histogram.h"
#include "demo_board.h"
#include "demo_memory.h"
#include "pawl/guard.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::tools {

/// What is called: messages, or blocks that are pulled.
enum class Shape : std::uint32_t { echo, download, upload };

/// Who calls whom.
enum class System : std::uint32_t { pawl, raw, grpc };
const char* name_of(System system);

/// One sample of one system: a fresh server process and a fresh client process.
struct SampleSettings {
  System system;
  Shape shape;
  bool spin;  ///< both ends; else they sleep in the kernel when there is nothing to do
  std::uint64_t size;
  std::uint32_t outstanding;
  std::uint64_t calls;  ///< so many; 0: as many as begin in `run`
  Duration run;
  std::int32_t server_core;  ///< -1: not pinned
  std::int32_t client_core;
  // Of Pawl.
  Guard guard;
  bool inline_off;                     ///< blocks of any size are pulled
  std::array<char, 64> server_fabric;  ///< names for NodeOptions::fabric
  std::array<char, 64> client_fabric;
  std::array<char, 64> listen;
  std::uint32_t idle;          ///< connections beside the one that is used
  bool look_at_idle;           ///< they, or their absence, are what is measured
  std::uint32_t held_percent;  ///< of the calls, whose READs come late; 0: this is no storm
  // Of raw.
  std::uint32_t socket_buffer_bytes;  ///< 0: what the system gives
};

/// Of both ends together, in the measured part of a sample. Plain data.
struct SampleCounts {
  std::uint64_t served = 0;  ///< by the server, which counts for itself
  std::uint64_t messages = 0;
  std::uint64_t transfers = 0;
  std::uint64_t reads = 0;
  std::uint64_t confirms = 0;
  std::uint64_t binds = 0;
  std::uint64_t invalidates = 0;
  std::uint64_t stale = 0;
  std::uint64_t connections_lost = 0;
  std::uint64_t queue_pairs_lost = 0;
};

/// What connections cost that do nothing. Plain data.
struct IdleResult {
  std::uint64_t connections = 0;
  Duration connecting{0};         ///< all of them
  std::int64_t server_bytes = 0;  ///< resident memory that came with them
  std::int64_t client_bytes = 0;
  std::int64_t server_files = 0;    ///< descriptors
  std::uint64_t receive_bytes = 0;  ///< that each has for messages, by the options of its node
  Duration elapsed{0};              ///< without a call
  Duration client_cpu{0};           ///< in that time
  Duration server_cpu{0};
};

/// A storm: calls at a rate, some of which have READs that are held. Plain data.
struct StormResult {
  double calls_per_s = 0;  ///< that were begun
  Duration deadline{0};    ///< of each
  Histogram calm;          ///< of the same load, nothing held
  std::uint64_t calm_failed = 0;
  // What became of the calls.
  std::uint64_t held = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t stale = 0;
  std::uint64_t failed = 0;  ///< otherwise
  // Of those that were not held.
  std::uint64_t offered_bytes = 0;
  std::uint64_t good_bytes = 0;
  // Of both ends.
  std::uint64_t late_reads = 0;
};

/// What the client measured. Plain data.
struct SampleResult {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t wrong_bytes = 0;
  Duration elapsed{0};
  Duration client_cpu{0};
  Duration server_cpu{0};
  Histogram times;
  SampleCounts counts;
  IdleResult idle;
  StormResult storm;  ///< then `calls` and `wrong_bytes` are all, `times` those not held
};

/// Shared by the processes of one sample. Each member is written by one of them.
struct BenchBoard {
  SampleSettings settings;
  ProcessBoard server;
  ProcessBoard client;
  std::atomic<pid_t> server_process;
  Counter served;  ///< by a server that is not Pawl's
  SampleResult result;
};

/// A BenchBoard and the descriptor that child processes find it by.
class SharedBenchBoard {
 public:
  static Result<SharedBenchBoard> create(const SampleSettings& settings);
  static Result<SharedBenchBoard> attach(int fd);

  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] BenchBoard* operator->() const { return board_; }
  [[nodiscard]] BenchBoard& operator*() const { return *board_; }

 private:
  explicit SharedBenchBoard(SharedMemory memory)
      : memory_(std::move(memory)), board_(reinterpret_cast<BenchBoard*>(memory_.bytes().data())) {}
  SharedMemory memory_;
  BenchBoard* board_;
};

using BenchBody = Status (*)(BenchBoard& board);

/// A child process: pins it and runs its body; gives the exit code.
int run_bench_server(int board_fd, BenchBody body);
int run_bench_client(int board_fd, BenchBody body);
/// With the bodies of the systems that this command has itself.
int run_bench_server(int board_fd);
int run_bench_client(int board_fd);

// These.
Status serve_pawl(BenchBoard& board);
Status serve_raw(BenchBoard& board);
Status serve_storm(BenchBoard& board);
Status call_pawl(BenchBoard& board);
Status call_raw(BenchBoard& board);
Status call_storm(BenchBoard& board);

}  // namespace pawl::tools
