// SPDX-License-Identifier: Apache-2.0
#include "bench_meter.h"

#include <time.h>

#include <algorithm>

#include "base/check.h"

namespace pawl::tools {

namespace {

constexpr std::uint64_t kWarmUpPart = 5;

Duration read(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Meter::Meter(std::uint64_t calls, std::uint64_t calls_min, Duration run, bool thorough)
    : calls_(calls),
      calls_min_(calls_min),
      run_(run),
      thorough_(thorough),
      start_(clock_.now()),
      last_(start_) {}

Meter Meter::measured(const SampleSettings& settings) {
  return {settings.calls, 1, settings.run, false};
}

Meter Meter::warm_up(const SampleSettings& settings) {
  // Each buffer of the measured part is used at least once.
  const std::uint64_t least = settings.outstanding * std::uint64_t{2};
  const std::uint64_t calls =
      settings.calls > 0 ? std::max(settings.calls / kWarmUpPart, least) : 0;
  return {calls, least, settings.run / static_cast<std::int64_t>(kWarmUpPart), true};
}

void Meter::write(std::uint64_t size, SampleResult& result) const {
  result.calls = times_.count();
  result.bytes = times_.count() * size;
  result.wrong_bytes = wrong_bytes_;
  result.elapsed = last_ - start_;
  result.times = times_;
}

CpuTimes::CpuTimes(pid_t server) {
  PAWL_CHECK(::clock_getcpuclockid(server, &server_clock_) == 0,
             "the server of a sample is gone before its measured part");
  server_before_ = read(server_clock_);
  client_before_ = read(CLOCK_PROCESS_CPUTIME_ID);
}

void CpuTimes::write(SampleResult& result) const {
  result.client_cpu = read(CLOCK_PROCESS_CPUTIME_ID) - client_before_;
  result.server_cpu = read(server_clock_) - server_before_;
}

}  // namespace pawl::tools
