// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <utility>

#include "fabric/sim/fabric.h"
#include "fabric/sim/loop.h"
#include "fabric/sim/network.h"
#include "pawl/testing.h"
#include "rpc/fabric_source.h"

namespace pawl::testing {

namespace {

class SimSource final : public pawl::detail::FabricSource {
 public:
  SimSource(fabric::SimNetwork& network, std::string name)
      : network_(network), name_(std::move(name)) {}
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t poller) override {
    if (poller != 0) {
      return Status(Code::invalid_argument, "a simulated node has one poller");
    }
    return std::unique_ptr<fabric::Fabric>(std::make_unique<fabric::SimFabric>(network_, name_));
  }
  [[nodiscard]] const char* name() const override { return "sim"; }
  [[nodiscard]] const char* reason() const override { return "a simulated world"; }

 private:
  fabric::SimNetwork& network_;
  const std::string name_;
};

class Quiet final : public LogSink {
 public:
  void write(Severity, std::string_view) noexcept override {}
};

struct Inhabitant {
  std::string name;
  std::unique_ptr<SimSource> source;
  std::unique_ptr<Node> node;
  std::uint64_t participant = 0;
};

}  // namespace

struct World::Impl {
  explicit Impl(std::uint64_t seed) : network(seed), loop(network) {}

  Quiet quiet;
  fabric::SimNetwork network;
  fabric::SimLoop loop;
  std::map<std::string, Inhabitant, std::less<>> nodes;
  std::uint64_t nodes_made = 0;
};

World::World(std::uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}
World::~World() {
  while (!impl_->nodes.empty()) crash(impl_->nodes.begin()->first);
}

std::uint64_t World::seed() const { return impl_->network.seed(); }
TimePoint World::now() const { return impl_->network.now(); }
const Clock& World::clock() const { return impl_->network.clock(); }

Node& World::add(std::string_view name, NodeOptions options) {
  Inhabitant& made = impl_->nodes[std::string(name)];
  pawl::detail::require(made.node == nullptr, "World::add: there is a node of that name");
  made.name = std::string(name);
  made.source = std::make_unique<SimSource>(impl_->network, made.name);
  options.name = made.name;
  if (options.log == nullptr) options.log = &impl_->quiet;  // what is simulated is not news
  options.clock = &impl_->network.clock();
  options.fabric_source = made.source.get();
  options.pool.grow_inline = true;
  options.seed = impl_->network.seed() * 1000 + ++impl_->nodes_made;
  made.node = std::make_unique<Node>(options);
  Node* node = made.node.get();
  made.participant =
      impl_->loop.add([node] { return node->run_once(); }, [node] { return node->next_timer(); });
  return *node;
}

void World::crash(std::string_view name) {
  const auto found = impl_->nodes.find(name);
  pawl::detail::require(found != impl_->nodes.end(), "World::crash: there is no such node");
  impl_->network.crash(name);
  impl_->loop.remove(found->second.participant);
  impl_->nodes.erase(found);
}

void World::set_faults(const Faults& faults) {
  fabric::SimOptions& options = impl_->network.options();
  options.read_delay = {faults.read_delay, Duration{0}, faults.read_delay_max};
  options.stall = {faults.stall, Duration{0}, faults.stall_max};
  options.packet_stall = {faults.packet_stall, Duration{0}, faults.packet_stall_max};
  options.endpoint_loss = faults.endpoint_loss;
  options.connection_loss = faults.connection_loss;
  options.connect_refused = faults.connect_refused;
}

void World::cut(std::string_view a, std::string_view b) { impl_->network.block_link(a, b); }
void World::mend(std::string_view a, std::string_view b) { impl_->network.unblock_link(a, b); }
void World::cut(std::string_view node) { impl_->network.block_node(node); }
void World::mend(std::string_view node) { impl_->network.unblock_node(node); }
void World::fail_connections(std::string_view a, std::string_view b) {
  impl_->network.fail_connections(a, b);
}
void World::trace(std::function<void(std::string_view)> sink) {
  impl_->network.set_trace(std::move(sink));
}

void World::run_for(Duration duration) { impl_->loop.run_for(duration); }
bool World::run_until(const std::function<bool()>& done, Duration limit) {
  return impl_->loop.run_until(done, limit);
}

}  // namespace pawl::testing
