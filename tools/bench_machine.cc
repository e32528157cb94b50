// SPDX-License-Identifier: Apache-2.0
#include "bench_machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "child.h"

namespace pawl::tools {

namespace {

constexpr double kBusyPercent = 3;

std::string content(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

CpuTicks ticks_now() { return CpuTicks::parse(content("/proc/stat")).value_or(CpuTicks()); }

std::string model_of_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

/// CPU seconds of this process and of those of its children that it waited for.
double own_seconds() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    }
  }
  return seconds;
}

/// The first and the last that this process may use: most likely not two threads of one core.
std::vector<int> two_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  if (cores.size() < 2) return {};
  return {cores.front(), cores.back()};
}

double percent(double part, double all) { return all <= 0 ? 0 : part / all * 100; }

}  // namespace

std::optional<CpuTicks> CpuTicks::parse(const std::string& text) {
  std::istringstream in(text);
  std::string name;
  // user nice system idle iowait irq softirq steal; guest time is in user already
  std::uint64_t fields[8] = {};
  if (!(in >> name) || name != "cpu") return std::nullopt;
  CpuTicks ticks;
  for (std::uint64_t& field : fields) {
    if (!(in >> field)) return std::nullopt;
    ticks.all += field;
  }
  ticks.programs = fields[0] + fields[1] + fields[2];
  return ticks;
}

BenchMachine BenchMachine::look(Duration look) {
  BenchMachine machine;
  machine.cores_ = two_cores();
  machine.model_ = model_of_cpu();
  machine.cpus_ = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  utsname names{};
  if (::uname(&names) == 0) machine.kernel_ = fmt::format("{} {}", names.sysname, names.release);
  const CpuTicks before = ticks_now();
  pause_for(look);
  machine.ticks_at_start_ = ticks_now();
  machine.own_seconds_at_start_ = own_seconds();
  const CpuTicks& after = machine.ticks_at_start_;
  machine.busy_percent_ = percent(static_cast<double>(after.programs - before.programs),
                                  static_cast<double>(after.all - before.all));
  return machine;
}

std::string BenchMachine::pinning() const {
  if (cores_.empty()) return "not pinned: there is one core";
  return fmt::format("server on core {}, client on core {}", cores_[0], cores_[1]);
}

double BenchMachine::others_percent() const {
  const CpuTicks now = ticks_now();
  const double own =
      (own_seconds() - own_seconds_at_start_) * static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double programs = static_cast<double>(now.programs - ticks_at_start_.programs);
  return std::max(0.0, percent(programs - own, static_cast<double>(now.all - ticks_at_start_.all)));
}

bool BenchMachine::busy() const {
  return busy_percent_ > kBusyPercent || others_percent() > kBusyPercent;
}

}  // namespace pawl::tools
