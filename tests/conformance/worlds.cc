// SPDX-License-Identifier: Apache-2.0
// The implementations that the suite runs over. A new one is a World and a line in kKinds;
// verbs is in the list where there is a device.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/world.h"
#include "fabric/faulty/faulty_fabric.h"
#include "fabric/sim/fabric.h"
#include "fabric/sim/network.h"
#include "fabric/tcp/tcp_fabric.h"
#include "fabric/verbs/verbs_fabric.h"
#include "support/loopback.h"

namespace pawl::fabric::conformance {
namespace {

constexpr std::array<const char*, kFabrics> kNames = {"a", "b", "c"};

class SimWorld : public World {
 public:
  explicit SimWorld(SimOptions options = {}) : network_(20260101, options) {
    for (std::size_t i = 0; i < kFabrics; ++i) {
      fabrics_[i] = std::make_unique<SimFabric>(network_, kNames[i]);
    }
  }

  Fabric& fabric(std::size_t index) override { return *fabrics_[index]; }
  std::string any_address(std::size_t index) override { return std::string(kNames[index]) + ":0"; }
  std::string dead_address() override { return "a:nobody"; }
  const Clock& clock() const override { return network_.clock(); }
  void wait(TimePoint until) override {
    TimePoint next = std::min(until, network_.next_event_time());
    for (std::size_t i = 0; i < kFabrics; ++i) {
      next = std::min(next, fabric(i).next_event_time());
    }
    network_.run_until(next);
  }
  bool block(std::size_t from, std::size_t to) override {
    network_.block(kNames[from], kNames[to]);
    return true;
  }
  bool unblock(std::size_t from, std::size_t to) override {
    network_.unblock(kNames[from], kNames[to]);
    return true;
  }
  bool vanish(std::size_t index) override {
    network_.block_node(kNames[index]);
    return true;
  }
  bool virtual_time() const override { return true; }

 protected:
  SimNetwork network_;

 private:
  std::array<std::unique_ptr<SimFabric>, kFabrics> fabrics_;
};

std::unique_ptr<World> make_sim() { return std::make_unique<SimWorld>(); }

/// Everything takes long and in a different order: the promises hold all the same.
std::unique_ptr<World> make_rough_sim() {
  SimOptions options;
  options.jitter = 50us;
  options.packet_bytes = 512;
  options.stall = {.probability = 0.3, .min = 10us, .max = 2ms};
  options.read_delay = {.probability = 0.5, .min = 10us, .max = 3ms};
  options.packet_stall = {.probability = 0.1, .min = 10us, .max = 1ms};
  options.completion_stall = {.probability = 0.3, .min = 1us, .max = 1ms};
  options.flush_delay_max = 1ms;
  options.window_time_max = 100us;
  return std::make_unique<SimWorld>(options);
}

/// A device with fewer abilities: keys of whole registrations, one segment a READ, nothing inline.
std::unique_ptr<World> make_plain_sim() {
  SimOptions options;
  options.capabilities.exact_keys = false;
  options.capabilities.read_segments_max = 1;
  options.capabilities.inline_bytes_max = 0;
  options.capabilities.windows = WindowSupport::none;
  return std::make_unique<SimWorld>(options);
}

/// Over every fabric of another world, a FaultyFabric.
class FaultyWorld final : public World {
 public:
  FaultyWorld(std::unique_ptr<World> inner, const FaultPlan& plan) : inner_(std::move(inner)) {
    for (std::size_t i = 0; i < kFabrics; ++i) {
      fabrics_[i] = std::make_unique<FaultyFabric>(inner_->fabric(i), plan);
    }
  }

  Fabric& fabric(std::size_t index) override { return *fabrics_[index]; }
  std::string any_address(std::size_t index) override { return inner_->any_address(index); }
  std::string dead_address() override { return inner_->dead_address(); }
  const Clock& clock() const override { return inner_->clock(); }
  void wait(TimePoint until) override {
    for (std::size_t i = 0; i < kFabrics; ++i) {
      until = std::min(until, fabric(i).next_event_time());
    }
    inner_->wait(until);
  }
  bool block(std::size_t from, std::size_t to) override { return inner_->block(from, to); }
  bool unblock(std::size_t from, std::size_t to) override { return inner_->unblock(from, to); }
  bool vanish(std::size_t index) override { return inner_->vanish(index); }
  bool virtual_time() const override { return inner_->virtual_time(); }

 private:
  std::unique_ptr<World> inner_;
  std::array<std::unique_ptr<FaultyFabric>, kFabrics> fabrics_;
};

/// A plan without faults: the decorator changes nothing.
std::unique_ptr<World> make_quiet_faulty() {
  return std::make_unique<FaultyWorld>(make_sim(), FaultPlan{});
}

/// Everything that may be slow is slow; nothing fails, so that the suite's expectations hold.
FaultPlan slow_plan() {
  return {.seed = 7,
          .hold_read = {.probability = 0.5, .min = 10us, .max = 4ms},
          .delay_send = {.probability = 0.3, .min = 10us, .max = 2ms},
          .delay_completion = {.probability = 0.3, .min = 1us, .max = 1ms}};
}
std::unique_ptr<World> make_faulty() {
  return std::make_unique<FaultyWorld>(make_sim(), slow_plan());
}
std::unique_ptr<World> make_faulty_rough() {
  return std::make_unique<FaultyWorld>(make_rough_sim(), slow_plan());
}

/// Fabrics in real time, with descriptors to sleep on.
class RealWorld : public World {
 public:
  Fabric& fabric(std::size_t index) override { return *fabrics_[index]; }
  std::string dead_address() override {
    if (dead_.empty()) {
      Fabric& fabric = *fabrics_[0];
      const ListenerId listener = fabric.listen(any_address(0)).value();
      dead_ = fabric.listener_address(listener);
      fabric.close_listener(listener);
    }
    return dead_;
  }
  const Clock& clock() const override { return clock_; }
  void wait(TimePoint until) override {
    std::array<pollfd, kFabrics> fds{};
    for (std::size_t i = 0; i < kFabrics; ++i) {
      if (!fabrics_[i]->arm()) return;
      fds[i] = {.fd = fabrics_[i]->event_fd(), .events = POLLIN, .revents = 0};
      until = std::min(until, fabrics_[i]->next_event_time());
    }
    const Duration left = until - clock_.now();
    if (left.count() <= 0) return;
    const timespec time{.tv_sec = left.count() / 1'000'000'000,
                        .tv_nsec = left.count() % 1'000'000'000};
    ::ppoll(fds.data(), fds.size(), &time, nullptr);
  }
  bool virtual_time() const override { return false; }

 protected:
  std::array<std::unique_ptr<Fabric>, kFabrics> fabrics_;

 private:
  SteadyClock clock_;
  std::string dead_;
};

/// Real sockets: loopback, ports that the system chooses.
class TcpWorld final : public RealWorld {
 public:
  explicit TcpWorld(const char* address) : address_(address) {
    for (auto& fabric : fabrics_) fabric = tcp::make_tcp_fabric().value();
  }
  std::string any_address(std::size_t) override {
    if (std::string_view(address_) != "unix") return address_;
    return "unix:@pawl-conformance-" + std::to_string(::getpid()) + "-" + std::to_string(++names_);
  }

 private:
  const char* address_;
  static inline int names_ = 0;
};

std::unique_ptr<World> make_tcp() { return std::make_unique<TcpWorld>("127.0.0.1:0"); }
std::unique_ptr<World> make_tcp6() { return std::make_unique<TcpWorld>("[::1]:0"); }
std::unique_ptr<World> make_unix() { return std::make_unique<TcpWorld>("unix"); }
std::unique_ptr<World> make_faulty_tcp() {
  return std::make_unique<FaultyWorld>(make_tcp(), slow_plan());
}

/// Real devices: the fabrics take the usable ports in turn, so that two ports are on the path where
/// there are two.
class VerbsWorld final : public RealWorld {
 public:
  VerbsWorld() {
    const std::vector<verbs::PortInfo> ports = verbs::list_ports().usable;
    for (std::size_t i = 0; i < kFabrics; ++i) {
      const verbs::PortInfo& port = ports[i % ports.size()];
      fabrics_[i] = verbs::make_verbs_fabric({.device = port.device, .port = port.port}).value();
    }
  }
  std::string any_address(std::size_t) override { return "127.0.0.1:0"; }
};

std::unique_ptr<World> make_verbs() { return std::make_unique<VerbsWorld>(); }
std::unique_ptr<World> make_faulty_verbs() {
  return std::make_unique<FaultyWorld>(make_verbs(), slow_plan());
}

constexpr std::array kKinds = {
    Kind{"sim", make_sim},
    Kind{"rough_sim", make_rough_sim},
    Kind{"plain_sim", make_plain_sim},
    Kind{"quiet_faulty_sim", make_quiet_faulty},
    Kind{"faulty_sim", make_faulty},
    Kind{"faulty_rough_sim", make_faulty_rough},
    Kind{"tcp", make_tcp},
    Kind{"tcp6", make_tcp6, testing::ipv6_missing},
    Kind{"unix", make_unix},
    Kind{"faulty_tcp", make_faulty_tcp},
};

}  // namespace

std::span<const Kind> kinds() {
  static const std::vector<Kind> kAll = [] {
    std::vector<Kind> all(kKinds.begin(), kKinds.end());
    if (!verbs::list_ports().usable.empty()) {
      all.push_back({"verbs", make_verbs});
      all.push_back({"faulty_verbs", make_faulty_verbs});
    }
    return all;
  }();
  return kAll;
}

}  // namespace pawl::fabric::conformance
