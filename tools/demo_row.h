// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "demo_board.h"
#include "demo_corpus.h"
#include "pawl/result.h"

namespace pawl::tools {

/// One row of the table: what a run under one guard came to, of both processes together.
struct Row {
  Guard guard = Guard::verify;
  std::string server_fabric;  ///< "tcp", "verbs:rxe0"
  std::string client_fabric;
  std::uint64_t calls = 0;
  std::uint64_t ok = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t failed = 0;
  std::uint64_t late_reads = 0;
  std::uint64_t late_reads_reused = 0;
  std::uint64_t stale_refused = 0;
  std::uint64_t wrong_bytes = 0;
  std::uint64_t wrong_transfers = 0;
  std::uint64_t connections_lost = 0;
  std::uint64_t good_bytes = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t p999_ns = 0;
  std::uint64_t p99_small_deadline_ns = 0;
  double seconds = 0;

  [[nodiscard]] double goodput_bytes_per_s() const {
    return seconds > 0 ? static_cast<double>(good_bytes) / seconds : 0;
  }
};

/// Runs a server and a client process under one guard. `show` is called with the numbers so far,
/// several times a second; it returns false to end the run (Code::cancelled). A process that fails,
/// crashes or hangs ends it, with a sentence that names it.
Result<Row> run_row(const RowSettings& settings, const Corpus& corpus,
                    const std::function<bool(const Row&)>& show);

}  // namespace pawl::tools
