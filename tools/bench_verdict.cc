// SPDX-License-Identifier: Apache-2.0
#include "bench_verdict.h"

#include <fmt/format.h>

#include "json.h"

namespace pawl::tools {

namespace {

constexpr double kVerifyGoodput = 0.95;
constexpr double kVerifyP99ToCalm = 1.5;
constexpr double kWindowGoodput = 0.8;
constexpr std::uint32_t kWindowHeldPercent = 5;

std::string name_of(const BenchRow& row) {
  return fmt::format("{}, {}, {} % held", guard_name(row.settings.guard),
                     direction_of(row.settings.shape), row.settings.held_percent);
}

StormTarget target_of(const BenchRow& row, Figure figure, double limit, bool at_least) {
  return {&row, name_of(figure), row.spread(figure).median, limit, at_least};
}

}  // namespace

std::vector<StormTarget> storm_targets(const std::vector<BenchRow>& rows) {
  std::vector<StormTarget> targets;
  for (const BenchRow& row : rows) {
    const bool verify = row.settings.guard == Guard::verify;
    const bool window = row.settings.guard == Guard::window;
    if (row.samples.empty() || !(verify || window)) continue;
    if (verify) {
      targets.push_back(target_of(row, Figure::goodput_ratio, kVerifyGoodput, true));
      targets.push_back(target_of(row, Figure::p99_to_calm, kVerifyP99ToCalm, false));
    } else if (row.settings.held_percent == kWindowHeldPercent) {
      targets.push_back(target_of(row, Figure::goodput_ratio, kWindowGoodput, true));
    }
    const auto lost = static_cast<double>(row.sum(&SampleCounts::connections_lost));
    targets.push_back({&row, "connections_lost", lost, 0, false});
  }
  return targets;
}

std::string sentence_of(const StormTarget& target) {
  return fmt::format("{}: {} is {:.3g} ({} {:g}): {}", name_of(*target.row), target.figure,
                     target.value, target.at_least ? "at least" : "at most", target.limit,
                     target.met() ? "met" : "missed");
}

std::string json_of(const StormTarget& target) {
  const SampleSettings& settings = target.row->settings;
  JsonObject object;
  object.add("guard", guard_name(settings.guard)).add("direction", direction_of(settings.shape));
  object.add("size", settings.size).add("held_percent", settings.held_percent);
  object.add("figure", target.figure).add("value", target.value);
  object.add(target.at_least ? "at_least" : "at_most", target.limit).add("met", target.met());
  return object.text();
}

std::vector<std::string> proved_nothing(const std::vector<BenchRow>& rows) {
  std::vector<std::string> sentences;
  for (const BenchRow& row : rows) {
    if (row.samples.empty() || row.settings.guard != Guard::none || row.wrong_bytes() > 0) continue;
    sentences.push_back(fmt::format(
        "{}: the run proved nothing: of {} late READs none brought wrong bytes that were accepted; "
        "give it more --seconds",
        name_of(row), row.sum(&StormResult::late_reads)));
  }
  return sentences;
}

}  // namespace pawl::tools
