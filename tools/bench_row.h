// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_board.h"
#include "pawl/result.h"

namespace pawl::tools {

class JsonObject;

/// Of the samples of a row, or of the ratios of pairs of samples.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
  /// Of an even number of values the median is the mean of the middle two. All 0 if there is none.
  static Spread of(std::vector<double> values);
};

/// What is measured: one figure of each sample.
enum class Figure : std::uint32_t {
  p50_us,
  p99_us,
  p999_us,
  calls_per_s,
  goodput_bytes_per_s,
  client_cpu_ns_per_call,
  server_cpu_ns_per_call,
  cpu_ns_per_call,
  cpu_ns_per_byte,
  // Of connections that do nothing.
  connects_per_s,
  server_bytes_per_connection,
  client_bytes_per_connection,
  server_files_per_connection,
  server_idle_cpu_percent,
  client_idle_cpu_percent,
  // Of a storm.
  goodput_ratio,
  calm_p50_us,
  calm_p99_us,
  p99_to_calm,
  deadline_us,
  offered_calls_per_s,
};
double figure_of(const SampleResult& sample, Figure figure);
const char* name_of(Figure figure);

/// One line of a table: a system, in one configuration, sampled several times.
struct BenchRow {
  std::string system;
  SampleSettings settings{};
  std::string missing;  ///< why there are no figures; empty if there are
  std::vector<SampleResult> samples;

  /// Against a row whose samples were taken in turn with these.
  struct Ratios {
    std::string to;  ///< "raw": keys are p50_to_raw, …
    Spread p50;
    Spread calls;
    Spread goodput;
    Spread cpu;  ///< per byte of blocks, per call of messages
  };
  std::vector<Ratios> ratios;

  [[nodiscard]] bool bulk() const { return settings.shape != Shape::echo; }
  [[nodiscard]] bool storm() const { return settings.held_percent > 0; }
  /// In a storm without a guard wrong bytes are what is shown.
  [[nodiscard]] bool shows_wrong_bytes() const { return storm() && is_baseline(settings.guard); }
  [[nodiscard]] Spread spread(Figure figure) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t SampleCounts::*count) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t StormResult::*count) const;
  [[nodiscard]] std::uint64_t calls() const;
  [[nodiscard]] std::uint64_t wrong_bytes() const;
  /// Of both ends, for each call.
  [[nodiscard]] double messages_per_call() const;
  [[nodiscard]] double work_requests_per_call() const;
  /// One after the other: request and answer, the READs of a transfer as one, its check.
  [[nodiscard]] double round_trips_per_call() const;
  /// Nothing if either has no figures, or is Ratios of that name already.
  void compare(const std::string& to, const BenchRow& other);
  [[nodiscard]] const Ratios* ratios_to(const std::string& to) const;
};

const char* direction_of(Shape shape);
std::string json_of(const BenchRow& row);

}  // namespace pawl::tools
