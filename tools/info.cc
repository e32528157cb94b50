// SPDX-License-Identifier: Apache-2.0
#include "info.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "exit_code.h"
#include "fabric/verbs/verbs_fabric.h"
#include "json.h"
#include "pawl/version.h"
#include "rpc/system_fabric.h"

namespace pawl::tools {

namespace {

struct Limit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return {limit.rlim_cur, limit.rlim_max};
}

constexpr std::uint64_t kUnlimited = RLIM_INFINITY;
std::string limit_text(std::uint64_t n) {
  return n == kUnlimited ? "unlimited" : fmt::to_string(n);
}

/// A line "Name:   123 kB" of /proc/meminfo; 0 if there is none.
std::uint64_t meminfo(const std::string& name) {
  std::ifstream in("/proc/meminfo");
  std::string word;
  while (in >> word) {
    std::uint64_t value = 0;
    if (word == name + ":" && in >> value) return value;
  }
  return 0;
}

/// What is in brackets: "always [madvise] never".
std::string transparent_huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string word;
  while (in >> word) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "unavailable";
}

/// Those that a node could use now.
std::vector<std::string> fabrics() {
  std::vector<std::string> names;
  for (const char* name : {"verbs", "tcp"}) {
    if (rpc::make_system_source(name).ok()) names.emplace_back(name);
  }
  return names;
}

std::string line_of(const fabric::verbs::PortInfo& port) {
  return fmt::format("{} port {}, {}, {}{}{}, GID {}, MTU {}", port.device, port.port,
                     port.ethernet ? "RoCE v2" : "InfiniBand", port.address,
                     port.netdev.empty() ? "" : " of ", port.netdev, port.gid_index,
                     port.mtu_bytes);
}

JsonObject json_of(const fabric::verbs::PortInfo& port) {
  JsonObject object;
  object.add("device", port.device).add("port", port.port);
  object.add("link", port.ethernet ? "RoCE v2" : "InfiniBand");
  object.add("address", port.address).add("interface", port.netdev);
  object.add("gid_index", static_cast<std::uint32_t>(port.gid_index));
  object.add("mtu_bytes", port.mtu_bytes);
  return object;
}

JsonObject json_of(const fabric::verbs::PortList& ports) {
  std::vector<std::string> usable;
  std::vector<std::string> refused;
  for (const auto& port : ports.usable) usable.push_back(json_of(port).text());
  for (const std::string& why : ports.refused) {
    refused.push_back(JsonObject().add("why", why).text());
  }
  JsonObject object;
  object.add_list("usable", usable).add_list("refused", refused);
  return object;
}

JsonObject json_of(const Limit& limit) {
  JsonObject object;
  for (const auto& [key, value] : {std::pair{"soft", limit.soft}, {"hard", limit.hard}}) {
    if (value == kUnlimited) {
      object.add(key, "unlimited");
    } else {
      object.add(key, value);
    }
  }
  return object;
}

}  // namespace

int run_info(bool json) {
  const Limit files = limit_of(RLIMIT_NOFILE);
  const Limit locked = limit_of(RLIMIT_MEMLOCK);
  const std::uint64_t total = meminfo("HugePages_Total");
  const std::uint64_t free = meminfo("HugePages_Free");
  const std::uint64_t page_kib = meminfo("Hugepagesize");
  const std::string transparent = transparent_huge_pages();
  const fabric::verbs::PortList ports = fabric::verbs::list_ports();
  if (json) {
    std::vector<std::string> names;
    for (const std::string& name : fabrics()) names.push_back(fmt::format("\"{}\"", name));
    JsonObject huge;
    huge.add("total", total).add("free", free).add("bytes_each", page_kib * 1024);
    huge.add("transparent", transparent);
    JsonObject all;
    all.add("version", kVersion).add_list("fabrics", names);
    all.add_object("rdma_ports", json_of(ports));
    all.add_object("nofile", json_of(files)).add_object("memlock_bytes", json_of(locked));
    all.add_object("huge_pages", huge);
    fmt::print("{}\n", all.text());
    return kDone;
  }
  fmt::print("pawl        {}\n", kVersion);
  fmt::print("fabrics     {}\n", fmt::join(fabrics(), ", "));
  for (const auto& port : ports.usable) fmt::print("RDMA port   {}\n", line_of(port));
  for (const std::string& why : ports.refused) fmt::print("RDMA        not usable: {}\n", why);
  fmt::print("open files  {} (hard limit {})\n", limit_text(files.soft), limit_text(files.hard));
  fmt::print("memlock     {} bytes (hard limit {})\n", limit_text(locked.soft),
             limit_text(locked.hard));
  fmt::print("huge pages  {} of {} free, {} KiB each; transparent: {}\n", free, total, page_kib,
             transparent);
  return kDone;
}

}  // namespace pawl::tools
