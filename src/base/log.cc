// SPDX-License-Identifier: Apache-2.0
#include "pawl/log.h"

#include <unistd.h>

#include <algorithm>
#include <string>

namespace pawl {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::debug:
      return "debug";
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "unknown";
}

void StderrSink::write(Severity severity, std::string_view line) noexcept {
  std::string text = "pawl ";
  text.reserve(line.size() + 20);
  text += severity_name(severity);
  text += ": ";
  text += line;
  text += '\n';
  // A line that stderr does not take is lost: there is nowhere to say so.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

Logger::Logger(const Clock& clock, LoggerOptions options)
    : clock_(clock), sink_(stderr_), options_(options) {}

Logger::Logger(const Clock& clock, LogSink& sink, LoggerOptions options)
    : clock_(clock), sink_(sink), options_(options) {}

bool Logger::admit(Bucket& bucket, TimePoint now) noexcept {
  const std::int64_t cost = kSecondNs / std::max<std::uint32_t>(options_.lines_per_second, 1);
  const std::int64_t full = cost * std::max<std::uint32_t>(options_.burst_lines, 1);
  if (bucket.filled == TimePoint{}) {
    bucket.tokens_ns = full;
  } else {
    const std::int64_t passed = std::max<std::int64_t>((now - bucket.filled).count(), 0);
    bucket.tokens_ns = passed >= full ? full : std::min(full, bucket.tokens_ns + passed);
  }
  bucket.filled = now;
  if (bucket.tokens_ns < cost) return false;
  bucket.tokens_ns -= cost;
  return true;
}

void Logger::log(Severity severity, std::string_view line) noexcept {
  if (!enabled(severity)) return;
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_[static_cast<std::size_t>(severity)];
  if (!admit(bucket, now)) {
    ++bucket.left_out;
    suppressed_total_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (bucket.left_out == 0) return sink_.write(severity, line);
  std::string text = "(" + std::to_string(bucket.left_out) + " lines left out) ";
  text += line;
  bucket.left_out = 0;
  sink_.write(severity, text);
}

}  // namespace pawl
