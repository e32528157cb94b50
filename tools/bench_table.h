// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench_row.h"

namespace pawl::tools {

/// Columns of the text of one bench.
struct BenchColumn {
  std::string title;
  std::size_t width;
  std::function<std::string(const BenchRow&)> text;
};

std::vector<BenchColumn> echo_columns(bool against_grpc);
std::vector<BenchColumn> bulk_columns();
std::vector<BenchColumn> guard_columns();
std::vector<BenchColumn> connection_columns();
std::vector<BenchColumn> storm_columns();

/// One line each, with its end. A row without figures says why behind its first columns.
std::string header_of(const std::vector<BenchColumn>& columns);
std::string line_of(const std::vector<BenchColumn>& columns, const BenchRow& row);

}  // namespace pawl::tools
