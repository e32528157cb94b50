// SPDX-License-Identifier: Apache-2.0
#include "demo_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pawl::tools {

namespace {

std::string scaled(double value, const std::array<const char*, 4>& units) {
  constexpr double kBase = 1000;
  std::size_t unit = 0;
  while (value >= kBase && unit + 1 < units.size()) {
    value /= kBase;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100 ? 0 : 1;
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}

}  // namespace

std::string grouped(std::uint64_t n) {
  std::string text = fmt::to_string(n);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string count_text(std::uint64_t n, std::size_t width) {
  std::string text = grouped(n);
  if (text.size() <= width) return text;
  return scaled(static_cast<double>(n) / 1e3, {"k", "M", "G", "T"});
}

std::string bytes_text(double bytes) { return scaled(bytes, {"B", "kB", "MB", "GB"}); }

std::string time_text(std::uint64_t ns) {
  return ns == 0 ? "-" : scaled(static_cast<double>(ns) / 1e3, {"us", "ms", "s", "ks"});
}

std::string wrapped(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::string_view rest = line;
    while (rest.size() > columns) {
      std::size_t blank = rest.rfind(' ', columns);
      if (blank == std::string_view::npos) blank = rest.find(' ');
      if (blank == std::string_view::npos) break;
      out.append(rest.substr(0, blank)).push_back('\n');
      rest.remove_prefix(blank + 1);
    }
    out.append(rest).push_back('\n');
  }
  return out;
}

}  // namespace pawl::tools
