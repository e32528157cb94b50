// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "demo_memory.h"
#include "pawl/guard.h"
#include "pawl/result.h"
#include "pawl/time.h"

namespace pawl::tools {

/// How often a process writes to the board, and the board is looked at.
inline constexpr Duration kTick = std::chrono::milliseconds(50);

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free, "counters are shared between processes");

enum class Stage : std::uint32_t { starting, ready, done, failed };

/// What a process of the demo shows to the others. Written by that process.
struct ProcessBoard {
  std::atomic<Stage> stage;
  std::array<char, 256> text;  ///< before `ready`: where it listens; before `failed`: why
  Counter heartbeats;          ///< of its poller
  Counter late_reads;          ///< executed after the use of the buffer they are of was over
  Counter late_reads_reused;   ///< of these, when the buffer held something else already
  Counter stale;               ///< transfers that the guard's check refused
  Counter wrong_bytes;         ///< accepted, although they are not the file's
  Counter wrong_transfers;     ///< with at least one of them

  void say(Stage stage_now, std::string_view words);
  [[nodiscard]] std::string words() const;
};

/// What the client alone counts. Calls that ended, all of them; times of those that were ok.
struct CallBoard {
  Counter calls;
  Counter ok;
  Counter timed_out;
  Counter failed;  ///< neither, nor stale
  Counter good_bytes;
  Counter connections_lost;
  Counter elapsed_ns;
  Counter p50_ns;
  Counter p99_ns;
  Counter p999_ns;
  Counter p99_small_deadline_ns;  ///< of small_deadline_for(each call)
};

/// What the parent asks for.
struct RowSettings {
  Guard guard;
  std::array<char, 64> server_fabric;  ///< names for NodeOptions::fabric
  std::array<char, 64> client_fabric;
  std::array<char, 64> listen;  ///< where the server listens
  std::uint64_t seed;
  Duration run;
  Duration deadline;  ///< of a small call; longer for what is large
  bool hold;          ///< READs are held, for up to 5 deadlines
  bool large_only;    ///< there are no small files
  bool large_shows;   ///< small files cannot show a wrong byte, so large ones must
};

/// The shared memory of one row of the table. All zero at first.
struct Board {
  RowSettings settings;
  ProcessBoard server;
  ProcessBoard client;
  CallBoard calls;
  std::atomic<bool> stop_server;
};

/// A Board and the descriptor that child processes find it by.
class SharedBoard {
 public:
  static Result<SharedBoard> create(const RowSettings& settings);
  static Result<SharedBoard> attach(int fd);

  [[nodiscard]] int fd() const { return memory_.fd(); }
  [[nodiscard]] Board* operator->() const { return board_; }
  [[nodiscard]] Board& operator*() const { return *board_; }

 private:
  explicit SharedBoard(SharedMemory memory);
  SharedMemory memory_;
  Board* board_;
};

inline void add(Counter& counter, std::uint64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}
inline std::uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

}  // namespace pawl::tools
