// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pawl/operation.h"
#include "pawl/testing.h"

namespace pawl::testing {

namespace {

constexpr Duration kBetweenBlows = std::chrono::milliseconds(20);
constexpr Duration kFairWeather = std::chrono::seconds(10);

Faults draw_faults(Random& random) {
  Faults faults;
  faults.read_delay = random.unit() * 0.5;
  faults.read_delay_max = Duration(random.between(1, 100'000'000));
  faults.stall = random.unit() * 0.02;
  faults.stall_max = Duration(random.between(1, 50'000'000));
  faults.packet_stall = random.unit() * 0.05;
  faults.packet_stall_max = Duration(random.between(1, 5'000'000));
  if (random.chance(0.5)) faults.endpoint_loss = 0.005;
  if (random.chance(0.3)) faults.connection_loss = 0.002;
  if (random.chance(0.2)) faults.connect_refused = 0.2;
  return faults;
}

/// What should be zero once everybody is done.
Status find_leftovers(std::string_view node, const NodeStats& stats) {
  const std::pair<const char*, std::uint64_t> gauges[] = {
      {"calls_live", stats.calls_live},
      {"served_live", stats.served_live},
      {"transfers_live", stats.transfers_live},
      {"reads outstanding", stats.reads_posted - stats.reads_completed - stats.reads_failed},
      {"leases_live", stats.pool.leases_live},
      {"bytes_landing", stats.pool.bytes_landing},
      {"bytes_quarantined", stats.pool.bytes_quarantined},
      {"buffers_quarantined", stats.pool.buffers_quarantined},
      {"bytes_in_use", stats.pool.bytes_in_use},
  };
  for (const auto& [name, value] : gauges) {
    if (value == 0) continue;
    return Status::with_detail(Code::internal, std::string(node) + ": " + name + " is " +
                                                   std::to_string(value) + " after the storm");
  }
  return {};
}

}  // namespace

struct Storm::Impl {
  Impl(std::uint64_t seed, Service& served, StormOptions storm_options)
      : random(seed), world(seed), service(served), options(storm_options) {}

  Status start_server() {
    server = &world.add("server", options.server);
    Result<Server> started = server->serve("server:1", service);
    if (!started.ok()) return started.status();
    serving.emplace(*std::move(started));
    return {};
  }

  Status restart_server() {
    ++restarts;
    if (forget) forget();
    serving.reset();
    world.crash("server");
    return start_server();
  }

  // Once in a while something larger than a fault of one message happens.
  Status strike() {
    const std::string victim =
        clients.empty() ? "server" : "client" + std::to_string(random.below(clients.size()));
    switch (random.below(8)) {
      case 0:
        world.fail_connections(victim, "server");
        return {};
      case 1:
        world.cut(victim, "server");
        world.run_for(Duration(random.between(1, 100'000'000)));
        world.mend(victim, "server");
        return {};
      case 2:
        return restarts < options.restarts_max ? restart_server() : Status();
      default:
        return {};
    }
  }

  Status run(const Load& load) {
    world.set_faults(draw_faults(random));
    std::vector<Started> running;
    std::size_t over = 0;
    for (Node* client : clients) {
      const Poller::Scope scope(client->poller());
      running.push_back(pawl::start(
          pawl::detail::to_operation(load(*client, client->channel("server:1", options.channel))),
          Callback<Unit>{[](void* count, Unit) { ++*static_cast<std::size_t*>(count); }, &over}));
    }
    const TimePoint end = world.now() + options.limit;
    Status status;
    while (over < clients.size() && status.ok()) {
      if (world.run_until([&] { return over == clients.size(); }, kBetweenBlows)) break;
      status = strike();
      if (status.ok() && world.now() > end) {
        status = {Code::deadline, "a load of the storm did not end within its limit"};
      }
    }
    world.set_faults({});
    for (std::size_t i = 0; i < running.size(); ++i) {
      const Poller::Scope scope(clients[i]->poller());
      running[i].drop();
    }
    world.run_for(kFairWeather);
    if (forget) forget();
    return status.ok() ? check_quiet() : status;
  }

  Status check_quiet() const {
    Status status = find_leftovers("server", server->stats());
    for (std::size_t i = 0; i < clients.size() && status.ok(); ++i) {
      status = find_leftovers("client" + std::to_string(i), clients[i]->stats());
    }
    return status;
  }

  Random random;
  World world;
  Service& service;
  const StormOptions options;
  std::function<void()> forget;
  Status ready;
  Node* server = nullptr;
  std::optional<Server> serving;
  std::vector<Node*> clients;
  std::uint32_t restarts = 0;
};

Storm::Storm(std::uint64_t seed, Service& service, StormOptions options)
    : impl_(std::make_unique<Impl>(seed, service, options)) {
  impl_->ready = impl_->start_server();
  for (std::uint32_t i = 0; i < options.clients; ++i) {
    impl_->clients.push_back(&impl_->world.add("client" + std::to_string(i), options.client));
  }
}
Storm::~Storm() = default;

void Storm::before_crash(std::function<void()> forget) { impl_->forget = std::move(forget); }

Status Storm::run(const Load& load) { return impl_->ready.ok() ? impl_->run(load) : impl_->ready; }

World& Storm::world() { return impl_->world; }
Node& Storm::server() { return *impl_->server; }
Node& Storm::client(std::size_t index) { return *impl_->clients.at(index); }

}  // namespace pawl::testing
