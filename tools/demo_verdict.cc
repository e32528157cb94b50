// SPDX-License-Identifier: Apache-2.0
#include "demo_verdict.h"

#include <fmt/format.h>

#include <optional>

#include "demo_text.h"
#include "json.h"

namespace pawl::tools {

namespace {

constexpr const char* kMore =
    "give it more --seconds (a busy machine needs more), or with --dir more files of similar size, "
    "or smaller ones";

std::string names(Guard guard) { return fmt::format("`{}`", guard_name(guard)); }

/// "`none` accepted 12 MB of wrong bytes in 34 transfers", and what the remedy cost.
std::string account(const Row& row) {
  std::string text = names(row.guard);
  if (row.wrong_bytes == 0) {
    text += " accepted no wrong byte";
  } else {
    text +=
        fmt::format(" accepted {} of wrong bytes in {} transfers",
                    bytes_text(static_cast<double>(row.wrong_bytes)), grouped(row.wrong_transfers));
  }
  if (row.guard == Guard::verify) {
    text +=
        fmt::format(", though {} late READs hit reused buffers", grouped(row.late_reads_reused));
  }
  if (row.connections_lost > 0) {
    text += fmt::format(", lost {} connections, and {} of its {} calls failed",
                        grouped(row.connections_lost), grouped(row.failed), grouped(row.calls));
  }
  return text;
}

Verdict proved_nothing(const std::string& why, const char* what_to_do = kMore) {
  return {false, fmt::format("FAILED: the run proved nothing: {}; {}.", why, what_to_do)};
}

/// What this row lacks.
std::optional<Verdict> lacking(const Row& row) {
  if (row.ok == 0) {
    return proved_nothing(
        fmt::format("of {} calls under {} none was ok", grouped(row.calls), names(row.guard)),
        "give it more --seconds or a longer --deadline-ms");
  }
  switch (row.guard) {
    case Guard::none:
      if (row.late_reads_reused >= kReusedReadsMin && row.wrong_bytes > 0) return std::nullopt;
      return proved_nothing(
          fmt::format("without a guard {} late READs hit reused buffers (at "
                      "least {} are needed) and {} wrong bytes were accepted "
                      "(at least 1)",
                      grouped(row.late_reads_reused), kReusedReadsMin, grouped(row.wrong_bytes)));
    case Guard::disconnect:
      if (row.connections_lost > 0) return std::nullopt;
      return proved_nothing(fmt::format("{} lost no connection, so that its remedy was never used",
                                        names(row.guard)));
    default:
      if (row.late_reads_reused >= kReusedReadsMin) return std::nullopt;
      return proved_nothing(
          fmt::format("{} late READs hit reused buffers under {} (at least {} are needed)",
                      grouped(row.late_reads_reused), names(row.guard), kReusedReadsMin));
  }
}

}  // namespace

Verdict judge(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.guard == Guard::verify && row.wrong_bytes > 0) {
      return {false, fmt::format("FAILED: {} accepted {} wrong bytes in {} transfers: its promise "
                                 "is broken.",
                                 names(row.guard), grouped(row.wrong_bytes),
                                 grouped(row.wrong_transfers))};
    }
  }
  for (const Row& row : rows) {
    if (std::optional<Verdict> verdict = lacking(row)) return *std::move(verdict);
  }
  if (rows.empty()) return proved_nothing("no guard was run");
  std::string sentence = "passed: ";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sentence += (i == 0 ? "" : "; ") + account(rows[i]);
  }
  return {true, sentence + "."};
}

std::string to_json(const std::vector<Row>& rows, const Verdict& verdict, std::uint64_t seed) {
  JsonObject all;
  all.add("seed", seed).add("passed", verdict.passed).add("sentence", verdict.sentence);
  std::vector<std::string> list;
  for (const Row& row : rows) {
    JsonObject one;
    one.add("guard", guard_name(row.guard))
        .add("fabric", row.server_fabric.substr(0, row.server_fabric.find(':')));
    one.add("server_fabric", row.server_fabric).add("client_fabric", row.client_fabric);
    one.add("calls", row.calls).add("ok", row.ok).add("timed_out", row.timed_out);
    one.add("failed", row.failed).add("late_reads", row.late_reads);
    one.add("late_reads_reused", row.late_reads_reused).add("stale_refused", row.stale_refused);
    one.add("wrong_bytes", row.wrong_bytes).add("wrong_transfers", row.wrong_transfers);
    one.add("connections_lost", row.connections_lost);
    one.add("goodput_bytes_per_s", row.goodput_bytes_per_s());
    one.add("p50_us", static_cast<double>(row.p50_ns) / 1e3);
    one.add("p99_us", static_cast<double>(row.p99_ns) / 1e3);
    one.add("p999_us", static_cast<double>(row.p999_ns) / 1e3);
    one.add("seconds", row.seconds);
    list.push_back(one.text());
  }
  all.add_list("rows", list);
  return all.text() + "\n";
}

}  // namespace pawl::tools
