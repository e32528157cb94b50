// SPDX-License-Identifier: Apache-2.0
#include "bench_iperf.h"

#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "bench_socket.h"
#include "child.h"

namespace pawl::tools {

namespace {

constexpr int kTries = 50;
constexpr Duration kTryStep = 20ms;

/// The number behind `key` and a colon, after the first `section`.
std::optional<double> number_in(const std::string& json, const char* section, const char* key) {
  const std::size_t begin = json.find(fmt::format("\"{}\"", section));
  if (begin == std::string::npos) return std::nullopt;
  const std::string quoted = fmt::format("\"{}\":", key);
  const std::size_t at = json.find(quoted, begin);
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(json.c_str() + at + quoted.size(), nullptr);
}

/// What it printed; nothing if it failed. `command` is this file's own: no quoting is needed.
std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t got = 0; (got = ::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), got);
  }
  if (::pclose(pipe) != 0) return std::nullopt;
  return text;
}

}  // namespace

std::string iperf_missing() {
  const char* const folders = std::getenv("PATH");
  std::istringstream path(folders != nullptr ? folders : "");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (::access((folder + "/iperf3").c_str(), X_OK) == 0) return {};
  }
  return "iperf3 is not installed";
}

Result<SampleResult> parse_iperf(const std::string& json) {
  const auto bytes = number_in(json, "sum_received", "bytes");
  const auto seconds = number_in(json, "sum_received", "seconds");
  const auto here = number_in(json, "cpu_utilization_percent", "host_total");
  const auto there = number_in(json, "cpu_utilization_percent", "remote_total");
  if (!bytes || !seconds || !here || !there) {
    return Status(Code::internal, "iperf3 printed something else than was expected");
  }
  SampleResult result;
  result.bytes = static_cast<std::uint64_t>(*bytes);
  result.elapsed = Duration(static_cast<std::int64_t>(*seconds * 1e9));
  const auto cpu = [&](double percent) {
    return Duration(static_cast<std::int64_t>(percent / 100 * *seconds * 1e9));
  };
  result.client_cpu = cpu(*here);
  result.server_cpu = cpu(*there);
  return result;
}

Result<SampleResult> run_iperf(const SampleSettings& settings) {
  const double run = std::chrono::duration<double>(settings.run).count();
  const int seconds = std::max(1, static_cast<int>(std::lround(run)));
  std::string port;
  {
    const Result<RawListener> free = RawListener::listen(0);
    if (!free.ok()) return free.status();
    port = free->address().substr(free->address().rfind(':') + 1);
  }
  const Result<Child> server =
      Child::start_program("iperf3 server", "iperf3",
                           {"-s", "-1", "--idle-timeout", "60", "-B", "127.0.0.1", "-p", port});
  if (!server.ok()) return server.status();
  const std::string cores =
      settings.server_core < 0
          ? ""
          : fmt::format(" -A {},{}", settings.client_core, settings.server_core);
  const std::string command =
      fmt::format("iperf3 -c 127.0.0.1 -p {} -l 1M -t {} -J{}{} 2>/dev/null", port, seconds, cores,
                  settings.shape == Shape::download ? " -R" : "");
  for (int attempt = 0; attempt < kTries; ++attempt) {
    pause_for(kTryStep);  // until it listens
    if (const auto printed = output_of(command)) return parse_iperf(*printed);
  }
  return Status(Code::internal, "iperf3 failed");
}

}  // namespace pawl::tools
