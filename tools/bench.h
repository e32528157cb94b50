// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_board.h"
#include "demo_places.h"
#include "pawl/guard.h"
#include "pawl/result.h"

namespace pawl::tools {

enum class BenchKind { echo, bulk, guards, conns, storm };
const char* name_of(BenchKind kind);

struct BenchOptions {
  BenchKind kind = BenchKind::echo;
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> outstanding;
  std::vector<std::uint32_t> connections;  ///< that do nothing; a row each, and one without
  std::vector<bool> spins;                 ///< modes: true is spin
  std::vector<Guard> guards{Guard::verify};
  std::vector<Shape> directions;     ///< of a storm: download, upload
  std::vector<std::uint32_t> helds;  ///< of a storm: percent of its calls, a row each
  std::vector<std::string> against;  ///< other systems: raw, iperf3, grpc
  std::uint32_t pairs = 9;
  double seconds = 0.5;     ///< of each sample
  std::uint64_t calls = 0;  ///< of each sample instead; 0: by time
  DemoPlaces places;        ///< the fabrics of the two processes
  std::string json;         ///< where to write the rows; empty: nowhere
};

/// The options of a command, from its words: "64,4K,1M", "1,64", "spin,block", …; each says by name
/// what it does not take.
Result<std::vector<std::uint64_t>> sizes_from(const std::string& words, std::uint64_t max);
Result<std::vector<std::uint32_t>> counts_from(const std::string& words, std::uint32_t max);
Result<std::vector<bool>> spins_from(const std::string& words);
Result<std::vector<Guard>> guards_from(const std::string& words);
Result<std::vector<Shape>> directions_from(const std::string& words);
/// Not all calls: there are some to look at beside those that are held.
Result<std::vector<std::uint32_t>> helds_from(const std::string& words);
Result<std::vector<std::string>> against_from(const std::string& words, BenchKind kind);

/// `pawl bench echo|bulk|guards|conns|storm`; gives the exit code.
int run_bench(const BenchOptions& options);

}  // namespace pawl::tools
