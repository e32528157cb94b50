// SPDX-License-Identifier: Apache-2.0
#include "bench_pairs.h"

#include <utility>

namespace pawl::tools {

Result<std::vector<BenchRow>> run_pairs(std::vector<Contender> contenders, std::uint32_t pairs) {
  std::vector<BenchRow> rows;
  for (const Contender& each : contenders) {
    BenchRow& row = rows.emplace_back();
    row.system = each.system;
    row.settings = each.settings;
    row.missing = each.missing;
  }
  for (std::uint32_t pair = 0; pair < pairs; ++pair) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t i = (turn + pair) % contenders.size();
      const Contender& contender = contenders[i];
      BenchRow& row = rows[i];
      if (!row.missing.empty()) continue;
      Result<SampleResult> sample = contender.sample(contender.settings);
      if (sample.ok()) {
        row.samples.push_back(*std::move(sample));
      } else if (contender.may_be_refused && row.samples.empty()) {
        row.missing = sample.status().what();
      } else {
        return sample.status();
      }
    }
  }
  return rows;
}

}  // namespace pawl::tools
