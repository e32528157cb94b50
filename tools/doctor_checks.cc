// SPDX-License-Identifier: Apache-2.0
// What the files of the system, the RDMA ports and this process's limits say.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "doctor.h"
#include "pawl/pool.h"
#include "pawl/version.h"

namespace pawl::tools {

namespace {

using Level = Finding::Level;

constexpr std::uint64_t kOpenFilesFew = 4096;     // a connection with bulk takes three
constexpr std::uint64_t kMappingsFew = 65530;     // the kernel's default
constexpr std::uint64_t kNetdevMtuOf4096 = 4200;  // 4096 bytes and their headers
constexpr std::uint32_t kMtuLargest = 4096;

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit.rlim_cur;
}

std::uint64_t number(const std::optional<std::string>& line, std::uint64_t otherwise) {
  std::uint64_t value = otherwise;
  if (line) (void)std::from_chars(line->data(), line->data() + line->size(), value);
  return value;
}

std::string amount(std::uint64_t n) { return n == RLIM_INFINITY ? "unlimited" : fmt::to_string(n); }

class Checks {
 public:
  explicit Checks(const Machine& machine) : machine_(machine) {}

  Findings run() {
    add("version", Level::ok,
        fmt::format("pawl {}, {} libibverbs", kVersion,
                    machine_.verbs_built_in ? "built with" : "built without"));
    if (rdma()) {
      ports();
      memlock();
    }
    open_files();
    mappings();
    huge_pages();
    governor();
    return std::move(findings_);
  }

 private:
  void add(std::string check, Level level, std::string evidence, std::string mend = "") {
    findings_.push_back({std::move(check), level, std::move(evidence), std::move(mend)});
  }

  /// True if there is something of RDMA here to be looked at.
  bool rdma() {
    const std::vector<std::string> devices = machine_.names("sys/class/infiniband");
    if (devices.empty()) {
      add("rdma", Level::ok,
          "none: tcp is used. For RDMA: a device and its kernel driver (ls /sys/class/infiniband), "
          "the modules ib_core and ib_uverbs, and the packages libibverbs1 and ibverbs-providers");
      return false;
    }
    const std::string names = fmt::format("{}", fmt::join(devices, ", "));
    if (!machine_.verbs_built_in) {
      add("rdma", Level::failure, names + ", but this build has no libibverbs",
          "apt-get install libibverbs-dev ibverbs-providers, and build again");
      return false;
    }
    if (machine_.names("sys/class/infiniband_verbs").empty()) {
      add("rdma", Level::failure, names + ", but programs cannot use them: ib_uverbs is not loaded",
          "modprobe ib_uverbs");
      return false;
    }
    if (machine_.names("dev/infiniband").empty()) {
      add("rdma", Level::failure, names + ", but there is no /dev/infiniband",
          "in a container: start it with --device /dev/infiniband");
      return false;
    }
    add("rdma", Level::ok, names);
    for (const std::string& device : devices) driver(device);
    return true;
  }

  void driver(const std::string& device) {
    const std::string folder = "sys/class/infiniband/" + device;
    if (device.starts_with("erdma")) {
      const auto mode = machine_.line("sys/module/erdma/parameters/compat_mode");
      const bool set = mode && (*mode == "Y" || *mode == "1");
      add("driver", set ? Level::ok : Level::failure,
          fmt::format("erdma compat_mode is {}{}", mode.value_or("not there"),
                      set ? "" : ": queue pairs are not connected without it"),
          set ? ""
              : "echo 'options erdma compat_mode=Y' > /etc/modprobe.d/erdma.conf, and load the "
                "module anew");
    }
    const auto node = machine_.line(folder + "/device/numa_node");
    const bool several = machine_.names("sys/devices/system/node").size() > 1 &&
                         machine_.line("sys/devices/system/node/node1/cpulist").has_value();
    if (several && node && *node != "-1") {
      const auto cpus = machine_.line("sys/devices/system/node/node" + *node + "/cpulist");
      add("numa", Level::ok,
          fmt::format("{} is at node {}: its pollers run best on CPUs {}", device, *node,
                      cpus.value_or("of that node")));
    }
  }

  void ports() {
    for (const fabric::verbs::PortInfo& port : machine_.ports.usable) {
      add("port", Level::ok,
          fmt::format("{} port {}, {}, {}{}{}, GID {}, MTU {}", port.device, port.port,
                      port.ethernet ? "RoCE v2" : "InfiniBand", port.address,
                      port.netdev.empty() ? "" : " of ", port.netdev, port.gid_index,
                      port.mtu_bytes));
      mtu(port);
    }
    const Level level = machine_.ports.usable.empty() ? Level::failure : Level::warning;
    for (const std::string& why : machine_.ports.refused) add("port", level, "not usable: " + why);
    if (machine_.ports.usable.empty() && machine_.ports.refused.empty()) {
      add("port", Level::failure, "no port can be used",
          "see that libibverbs knows the device: package ibverbs-providers, command ibv_devinfo");
    }
  }

  // A packet's size follows the interface's when the port comes up.
  void mtu(const fabric::verbs::PortInfo& port) {
    if (!port.ethernet || port.netdev.empty() || port.mtu_bytes >= kMtuLargest) return;
    const std::uint64_t netdev = number(machine_.line("sys/class/net/" + port.netdev + "/mtu"), 0);
    add("mtu", Level::warning,
        fmt::format("{} sends packets of {} bytes, because {} has an MTU of {}: 4096 cost less",
                    port.device, port.mtu_bytes, port.netdev, netdev),
        netdev < kNetdevMtuOf4096
            ? fmt::format("ip link set dev {} mtu {}, at every hop", port.netdev, kNetdevMtuOf4096)
            : fmt::format("ip link set dev {0} down && ip link set dev {0} up", port.netdev));
  }

  void memlock() {
    const std::uint64_t wanted = PoolOptions().bytes_max;
    const bool enough = machine_.may_lock || machine_.memlock_bytes >= wanted;
    add("memlock", enough ? Level::ok : Level::failure,
        fmt::format("{} bytes{}", amount(machine_.memlock_bytes),
                    machine_.may_lock ? ", not a limit for who has CAP_IPC_LOCK"
                    : enough          ? ""
                                      : fmt::format(": a pool registers up to {} bytes "
                                                             "(PoolOptions::bytes_max)",
                                                    wanted)),
        enough ? "" : "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
  }

  void open_files() {
    const bool enough = machine_.open_files >= kOpenFilesFew;
    add("open files", enough ? Level::ok : Level::warning, amount(machine_.open_files),
        enough ? "" : "ulimit -n 65536: a connection that moves bulk takes three");
  }

  void mappings() {
    const std::uint64_t most = number(machine_.line("proc/sys/vm/max_map_count"), kMappingsFew);
    if (most < kMappingsFew) {
      add("mappings", Level::warning, fmt::format("at most {} for each process", most),
          fmt::format("sysctl vm.max_map_count={}", kMappingsFew));
    }
  }

  void huge_pages() {
    const std::string transparent =
        machine_.line("sys/kernel/mm/transparent_hugepage/enabled").value_or("[never]");
    const bool never = transparent.find("[never]") != std::string::npos;
    const std::uint64_t pages = number(machine_.line("proc/sys/vm/nr_hugepages"), 0);
    const bool none = never && pages == 0;
    add("huge pages", none ? Level::warning : Level::ok,
        fmt::format("{} reserved, transparent: {}", pages, transparent),
        none ? "sysctl vm.nr_hugepages=512, or echo madvise > "
               "/sys/kernel/mm/transparent_hugepage/enabled"
             : "");
  }

  void governor() {
    const auto governor = machine_.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (!governor) return;
    const bool fast = *governor == "performance";
    add("cpu", fast ? Level::ok : Level::warning, "frequency governor " + *governor,
        fast ? "" : "cpupower frequency-set -g performance, where latency counts");
  }

  const Machine& machine_;
  Findings findings_;
};

}  // namespace

// In a container root may be without it.
bool may_lock_memory(const std::string& status) {
  constexpr int kIpcLock = 14;  // CAP_IPC_LOCK of capabilities(7)
  constexpr std::string_view kEffective = "\nCapEff:";
  const std::size_t at = status.find(kEffective);
  if (at == std::string::npos) return false;
  const std::uint64_t set = std::strtoull(status.c_str() + at + kEffective.size(), nullptr, 16);
  return ((set >> kIpcLock) & 1) != 0;
}

Machine Machine::here() {
  Machine machine;
  machine.verbs_built_in = fabric::verbs::built_in();
  machine.ports = fabric::verbs::list_ports();
  machine.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  machine.open_files = limit_of(RLIMIT_NOFILE);
  std::ifstream status("/proc/self/status");
  machine.may_lock = may_lock_memory({std::istreambuf_iterator<char>(status), {}});
  return machine;
}

std::optional<std::string> Machine::line(const std::string& path) const {
  std::ifstream in(std::filesystem::path(root) / path);
  std::string first;
  if (!std::getline(in, first)) return std::nullopt;
  return first;
}

std::vector<std::string> Machine::names(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(root) / path, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

Findings look_at(const Machine& machine) { return Checks(machine).run(); }

}  // namespace pawl::tools
