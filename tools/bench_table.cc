// SPDX-License-Identifier: Apache-2.0
#include "bench_table.h"

#include <fmt/format.h>

namespace pawl::tools {

namespace {

/// Three digits or more.
std::string number(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string with_spread(const Spread& spread, double unit = 1) {
  return fmt::format("{} ({}-{})", number(spread.median / unit), number(spread.min / unit),
                     number(spread.max / unit));
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

BenchColumn figure(const char* title, std::size_t width, Figure which, double unit, bool spread) {
  return {title, width, [=](const BenchRow& row) {
            const Spread found = row.spread(which);
            return spread ? with_spread(found, unit) : number(found.median / unit);
          }};
}

BenchColumn ratio(const char* title, std::size_t width, const char* to,
                  Spread BenchRow::Ratios::*which) {
  return {title, width, [=](const BenchRow& row) {
            const BenchRow::Ratios* ratios = row.ratios_to(to);
            return ratios == nullptr ? std::string("-") : with_spread(ratios->*which);
          }};
}

/// Nothing for a stream, which has no calls.
BenchColumn of_calls(BenchColumn column) {
  return {column.title, column.width, [text = column.text](const BenchRow& row) {
            return row.calls() == 0 ? std::string("-") : text(row);
          }};
}

const BenchColumn kSystem{"system", 8, [](const BenchRow& row) { return row.system; }};
const BenchColumn kMode{"mode", 6, [](const BenchRow& row) {
                          return std::string(row.settings.spin ? "spin" : "block");
                        }};
const BenchColumn kGuard{"guard", 13, [](const BenchRow& row) {
                           return std::string(row.bulk() ? guard_name(row.settings.guard) : "-");
                         }};
const BenchColumn kDirection{"direction", 9,
                             [](const BenchRow& row) { return direction_of(row.settings.shape); }};
const BenchColumn kSize{"size", 8,
                        [](const BenchRow& row) { return bytes_text(row.settings.size); }};
const BenchColumn kOutstanding{
    "out", 4, [](const BenchRow& row) { return fmt::to_string(row.settings.outstanding); }};
const BenchColumn kWrong{"wrong bytes", 11,
                         [](const BenchRow& row) { return fmt::to_string(row.wrong_bytes()); }};

}  // namespace

std::vector<BenchColumn> echo_columns(bool against_grpc) {
  std::vector<BenchColumn> columns{
      kSystem,
      kMode,
      kSize,
      kOutstanding,
      figure("p50 us", 18, Figure::p50_us, 1, true),
      figure("p99 us", 7, Figure::p99_us, 1, false),
      figure("p99.9 us", 8, Figure::p999_us, 1, false),
      figure("calls/s", 8, Figure::calls_per_s, 1, false),
      figure("client us", 9, Figure::client_cpu_ns_per_call, 1000, false),
      figure("server us", 9, Figure::server_cpu_ns_per_call, 1000, false),
      ratio("p50 to raw", 16, "raw", &BenchRow::Ratios::p50),
      ratio("calls/s to raw", 16, "raw", &BenchRow::Ratios::calls),
      kWrong};
  if (against_grpc) {
    columns.insert(columns.end() - 1,
                   ratio("calls/s to grpc", 16, "grpc", &BenchRow::Ratios::calls));
  }
  return columns;
}

std::vector<BenchColumn> bulk_columns() {
  return {kSystem,
          kMode,
          kDirection,
          kSize,
          kOutstanding,
          of_calls(figure("p50 us", 7, Figure::p50_us, 1, false)),
          of_calls(figure("p99 us", 7, Figure::p99_us, 1, false)),
          figure("MB/s", 18, Figure::goodput_bytes_per_s, 1e6, true),
          figure("CPU ns/KiB", 10, Figure::cpu_ns_per_byte, 1.0 / 1024, false),
          ratio("MB/s to raw", 16, "raw", &BenchRow::Ratios::goodput),
          ratio("CPU to raw", 16, "raw", &BenchRow::Ratios::cpu),
          kWrong};
}

std::vector<BenchColumn> guard_columns() {
  const auto count = [](const char* title, std::size_t width, double (BenchRow::*which)() const) {
    return BenchColumn{title, width, [=](const BenchRow& row) { return number((row.*which)()); }};
  };
  return {kGuard,
          kDirection,
          kSize,
          figure("p50 us", 18, Figure::p50_us, 1, true),
          figure("p99 us", 7, Figure::p99_us, 1, false),
          count("messages", 8, &BenchRow::messages_per_call),
          count("trips", 6, &BenchRow::round_trips_per_call),
          count("work requests", 13, &BenchRow::work_requests_per_call),
          ratio("p50 to call", 16, "call", &BenchRow::Ratios::p50),
          ratio("p50 to verify", 16, "verify", &BenchRow::Ratios::p50),
          kWrong};
}

std::vector<BenchColumn> connection_columns() {
  const auto of_each = [](BenchColumn column) {
    return BenchColumn{column.title, column.width, [text = column.text](const BenchRow& row) {
                         return row.settings.idle == 0 ? std::string("-") : text(row);
                       }};
  };
  return {{"idle", 6, [](const BenchRow& row) { return fmt::to_string(row.settings.idle); }},
          figure("p50 us", 18, Figure::p50_us, 1, true),
          figure("p99 us", 7, Figure::p99_us, 1, false),
          ratio("p50 to none", 16, "none", &BenchRow::Ratios::p50),
          of_each(figure("connects/s", 10, Figure::connects_per_s, 1, false)),
          of_each(figure("server KiB each", 15, Figure::server_bytes_per_connection, 1024, false)),
          of_each(figure("client KiB each", 15, Figure::client_bytes_per_connection, 1024, false)),
          of_each(figure("files each", 10, Figure::server_files_per_connection, 1, false)),
          figure("server idle CPU %", 17, Figure::server_idle_cpu_percent, 1, true),
          kWrong};
}

std::vector<BenchColumn> storm_columns() {
  const auto count = [](const char* title, std::size_t width, auto which) {
    return BenchColumn{title, width,
                       [=](const BenchRow& row) { return fmt::to_string(row.sum(which)); }};
  };
  return {
      kGuard,
      kDirection,
      {"held %", 6, [](const BenchRow& row) { return fmt::to_string(row.settings.held_percent); }},
      kSize,
      figure("goodput", 16, Figure::goodput_ratio, 1, true),
      figure("p50 us", 7, Figure::p50_us, 1, false),
      figure("p99 us", 7, Figure::p99_us, 1, false),
      figure("calm p99", 8, Figure::calm_p99_us, 1, false),
      figure("p99 to calm", 16, Figure::p99_to_calm, 1, true),
      figure("deadline us", 11, Figure::deadline_us, 1, false),
      count("timed out", 9, &StormResult::timed_out),
      count("late READs", 10, &StormResult::late_reads),
      count("stale", 7, &SampleCounts::stale),
      count("lost conns", 10, &SampleCounts::connections_lost),
      count("lost qps", 8, &SampleCounts::queue_pairs_lost),
      kWrong};
}

std::string header_of(const std::vector<BenchColumn>& columns) {
  std::string line;
  for (const BenchColumn& column : columns) {
    line += fmt::format("{:<{}}  ", column.title, column.width);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string line_of(const std::vector<BenchColumn>& columns, const BenchRow& row) {
  constexpr std::size_t kOfMissing = 3;  // columns that a row without figures has
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!row.missing.empty() && i == kOfMissing) {
      line += row.missing;
      break;
    }
    line += fmt::format("{:<{}}  ", columns[i].text(row), columns[i].width);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace pawl::tools
