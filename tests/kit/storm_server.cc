// SPDX-License-Identifier: Apache-2.0
#include "kit/storm_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "support/function_service.h"
#include "support/gauges.h"
#include "support/mixed_load.h"
#include "support/process_use.h"

namespace pawl::kit {

namespace {

class Quiet final : public LogSink {
 public:
  void write(Severity, std::string_view) noexcept override {}
};

LogSink& quiet() {
  static Quiet sink;
  return sink;
}

class StormServer {
 public:
  explicit StormServer(std::string address)
      : address_(std::move(address)), node_(storm_node_options()) {
    load_.serve(service_);
    node_.run_background();
  }

  /// A connection that comes and goes, so that what its end starts has been started.
  void warm_up() {
    const Result<Server> serving = node_.serve("127.0.0.1:0", service_);
    Node other(storm_node_options());
    other.run_background();
    (void)block(other.channel(serving->address()).connect());
  }
  bool serve() {
    Result<Server> serving = node_.serve(address_, service_);
    if (!serving.ok()) {
      std::cout << "error " << serving.status().to_string() << std::endl;
      return false;
    }
    serving_.emplace(*std::move(serving));
    address_ = serving_->address();
    std::cout << "ready " << address_ << std::endl;
    return true;
  }
  bool obey(const std::string& line) {
    if (line == "serve") return serve();
    if (line == "drain") {
      const Status status = block(serving_->drain());
      serving_.reset();
      std::cout << "drained " << code_name(status.code()) << std::endl;
    } else if (line == "settle") {
      while (!testing::what_is_left(node_.stats()).empty()) std::this_thread::yield();
      const NodeStats stats = node_.stats();
      std::cout << "settled " << testing::open_files() << ' ' << testing::threads() << ' '
                << stats.connections_live << ' ' << stats.data_endpoints_live << ' '
                << stats.pool.bytes_total << ' ' << stats.pool.leases_ended_for_room << std::endl;
    }
    return true;
  }

 private:
  std::string address_;
  testing::MixedLoad load_{{}};
  testing::FunctionService service_;
  Node node_;
  std::optional<Server> serving_;
};

}  // namespace

NodeOptions storm_node_options() {
  NodeOptions options;
  options.log = &quiet();
  options.pool.bytes_max = options.pool.bytes_at_start = std::size_t{32} << 20;
  options.pool.slab_bytes = std::size_t{1} << 20;
  return options;
}

int run_storm_server(const std::string& address, int parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 1;
  StormServer server(address);
  server.warm_up();
  if (!server.serve()) return 1;
  for (std::string line; std::getline(std::cin, line);) {
    if (!server.obey(line)) return 1;
  }
  return 0;
}

}  // namespace pawl::kit
