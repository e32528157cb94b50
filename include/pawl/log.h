// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "pawl/time.h"

namespace pawl {

enum class Severity : std::uint8_t { debug = 0, info = 1, warning = 2, error = 3 };

std::string_view severity_name(Severity severity);

/// Where Pawl's log lines go. The library logs through nothing else. Any thread; `write` is called
/// with one line at a time per Logger and must not block for long: pollers call it.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// One line without a newline. `line` is valid during the call only.
  virtual void write(Severity severity, std::string_view line) noexcept = 0;
};

/// "pawl warning: line" on stderr, one write(2) per line.
class StderrSink final : public LogSink {
 public:
  void write(Severity severity, std::string_view line) noexcept override;
};

struct LoggerOptions {
  Severity least = Severity::info;      ///< lines below it are not written
  std::uint32_t lines_per_second = 20;  ///< per severity, so that a flood of one hides no other
  std::uint32_t burst_lines = 100;      ///< per severity
};

/// The rate limit in front of a sink. Made by whoever wires the program together and handed to the
/// parts that log; there is no global one. What was left out is counted, and the count is told in
/// front of the next line of the same severity. Any thread.
class Logger {
 public:
  /// Writes to stderr. `clock` must outlive the Logger.
  explicit Logger(const Clock& clock, LoggerOptions options = {});
  /// Writes to `sink`, which must outlive the Logger.
  Logger(const Clock& clock, LogSink& sink, LoggerOptions options = {});
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  void log(Severity severity, std::string_view line) noexcept;
  void debug(std::string_view line) noexcept { log(Severity::debug, line); }
  void info(std::string_view line) noexcept { log(Severity::info, line); }
  void warning(std::string_view line) noexcept { log(Severity::warning, line); }
  void error(std::string_view line) noexcept { log(Severity::error, line); }

  /// True if a line of this severity would be considered at all (before the rate limit).
  [[nodiscard]] bool enabled(Severity severity) const noexcept {
    return severity >= options_.least;
  }
  /// Lines that the rate limit left out so far.
  [[nodiscard]] std::uint64_t suppressed_lines() const noexcept {
    return suppressed_total_.load(std::memory_order_relaxed);
  }

 private:
  struct Bucket {
    std::int64_t tokens_ns = 0;  // credit in nanoseconds; one line costs 1 s / lines_per_second
    TimePoint filled;
    std::uint64_t left_out = 0;
  };

  bool admit(Bucket& bucket, TimePoint now) noexcept;

  const Clock& clock_;
  StderrSink stderr_;
  LogSink& sink_;
  const LoggerOptions options_;
  std::mutex mutex_;
  Bucket buckets_[4];
  std::atomic<std::uint64_t> suppressed_total_{0};
};

}  // namespace pawl
