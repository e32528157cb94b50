// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "bench.h"
#include "bench_row.h"

namespace pawl::tools {

namespace {

constexpr std::uint32_t kHeldPercentMax = 90;

/// Reads the words between commas, each by `read`, which gives nothing for a word it does not take;
/// `what` says what it takes.
template <class T, class Read>
Result<std::vector<T>> list_from(const std::string& words, const std::string& what, Read read) {
  std::vector<T> list;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    const std::optional<T> value = read(word);
    if (!value) {
      return Status::with_detail(Code::invalid_argument,
                                 fmt::format("\"{}\" will not do: {}", word, what));
    }
    if (std::ranges::find(list, *value) != list.end()) {
      return Status::with_detail(Code::invalid_argument, fmt::format("{} is named twice", word));
    }
    list.push_back(*value);
  }
  if (list.empty()) return Status::with_detail(Code::invalid_argument, "nothing is named: " + what);
  return list;
}

/// "4096", "64K", "1M".
std::optional<std::uint64_t> bytes_from(const std::string& word) {
  std::uint64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || value > UINT32_MAX) return std::nullopt;
  if (at == end) return value;
  const int unit = std::toupper(static_cast<unsigned char>(*at));
  if (at + 1 != end || (unit != 'K' && unit != 'M')) return std::nullopt;
  return unit == 'K' ? value << 10 : value << 20;
}

}  // namespace

Result<std::vector<std::uint64_t>> sizes_from(const std::string& words, std::uint64_t max) {
  const std::string what = fmt::format("bytes, as 64, 4K or 1M, from 1 to {}", max);
  return list_from<std::uint64_t>(words, what,
                                  [max](const std::string& word) -> std::optional<std::uint64_t> {
                                    const auto bytes = bytes_from(word);
                                    if (!bytes || *bytes < 1 || *bytes > max) return std::nullopt;
                                    return bytes;
                                  });
}

Result<std::vector<std::uint32_t>> counts_from(const std::string& words, std::uint32_t max) {
  const std::string what = fmt::format("a number from 1 to {}", max);
  return list_from<std::uint32_t>(words, what,
                                  [max](const std::string& word) -> std::optional<std::uint32_t> {
                                    const auto count = bytes_from(word);
                                    if (!count || *count < 1 || *count > max) return std::nullopt;
                                    return static_cast<std::uint32_t>(*count);
                                  });
}

Result<std::vector<bool>> spins_from(const std::string& words) {
  return list_from<bool>(words, "spin or block",
                         [](const std::string& word) -> std::optional<bool> {
                           if (word == "spin") return true;
                           if (word == "block") return false;
                           return std::nullopt;
                         });
}

Result<std::vector<Guard>> guards_from(const std::string& words) {
  return list_from<Guard>(words, "a guard, such as verify or window",
                          [](const std::string& word) { return guard_from_name(word); });
}

Result<std::vector<Shape>> directions_from(const std::string& words) {
  return list_from<Shape>(words, "download or upload",
                          [](const std::string& word) -> std::optional<Shape> {
                            for (const Shape shape : {Shape::download, Shape::upload}) {
                              if (word == direction_of(shape)) return shape;
                            }
                            return std::nullopt;
                          });
}

Result<std::vector<std::uint32_t>> helds_from(const std::string& words) {
  const std::string what = fmt::format("a percentage from 1 to {}", kHeldPercentMax);
  return list_from<std::uint32_t>(
      words, what, [](const std::string& word) -> std::optional<std::uint32_t> {
        std::uint32_t percent = 0;
        const char* const end = word.data() + word.size();
        const auto [at, error] = std::from_chars(word.data(), end, percent);
        if (error != std::errc() || at != end || percent < 1 || percent > kHeldPercentMax) {
          return std::nullopt;
        }
        return percent;
      });
}

Result<std::vector<std::string>> against_from(const std::string& words, BenchKind kind) {
  if (words.empty() || words == "none") return std::vector<std::string>();
  const bool bulk = kind == BenchKind::bulk;
  return list_from<std::string>(words, bulk ? "raw, iperf3 or none" : "raw, grpc or none",
                                [bulk](const std::string& word) -> std::optional<std::string> {
                                  if (word == "raw" || word == (bulk ? "iperf3" : "grpc"))
                                    return word;
                                  return std::nullopt;
                                });
}

}  // namespace pawl::tools
