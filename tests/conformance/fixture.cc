// SPDX-License-Identifier: Apache-2.0
#include "conformance/fixture.h"

#include <algorithm>
#include <set>

namespace pawl::fabric::conformance {
namespace {

template <std::size_t... I>
std::array<std::unique_ptr<Side>, kFabrics> make_sides(World& world, std::index_sequence<I...>) {
  return {std::make_unique<Side>(world.fabric(I), world.clock(), 1 + 1'000'000 * I)...};
}

std::string why_not(const Side& side, EndpointId endpoint) {
  const Event* const failed = side.event(EventKind::connect_failed, endpoint);
  return failed == nullptr ? "" : failed->status.to_string() + "\n";
}

}  // namespace

Conformance::Conformance()
    : world_(GetParam().make()),
      sides_(make_sides(*world_, std::make_index_sequence<kFabrics>())),
      a_(*sides_[0]),
      b_(*sides_[1]),
      c_(*sides_[2]) {
  const char* const missing = GetParam().missing();
  if (missing != nullptr) [missing] { GTEST_SKIP() << missing; }();
}

bool Conformance::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = world_->now() + limit;
  for (;;) {
    bool progress = false;
    for (auto& side : sides_) progress = side->turn(batch_) || progress;
    if (done()) return true;
    if (world_->now() >= end) return false;
    if (!progress) world_->wait(end);
  }
}

void Conformance::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

std::string Conformance::address(Side& side) {
  const auto found = listening_.find(&side);
  if (found != listening_.end()) return found->second.address;
  const std::size_t index = &side == &a_ ? 0 : &side == &b_ ? 1 : 2;
  const Result<ListenerId> listener = side.fabric().listen(world_->any_address(index));
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  if (!listener.ok()) return {};
  const std::string address = side.fabric().listener_address(*listener);
  listening_[&side] = {.id = *listener, .address = address};
  return address;
}

const Event* Conformance::next_request(Side& side) {
  std::size_t& taken = listening_[&side].requests_taken;
  const auto arrived = [&] { return side.count(EventKind::connect_request) > taken; };
  EXPECT_TRUE(run_until(arrived)) << "no connect_request";
  return arrived() ? side.events(EventKind::connect_request)[taken++] : nullptr;
}

Link Conformance::connect(Side& from, Side& to, const EndpointOptions& from_options,
                          const EndpointOptions& to_options) {
  const Result<EndpointId> endpoint =
      from.fabric().connect(address(to), from_options, hello("hello"), soon());
  EXPECT_TRUE(endpoint.ok()) << endpoint.status().to_string();
  if (!endpoint.ok()) return {};
  const Event* request = next_request(to);
  if (request == nullptr) return {};
  const Link link{.a = *endpoint, .b = request->endpoint};
  const Status accepted = to.fabric().accept(link.b, to_options, hello("welcome"));
  EXPECT_TRUE(accepted.ok()) << accepted.to_string();
  const bool connected = run_until([&] {
    return from.event(EventKind::connected, link.a) != nullptr &&
           to.event(EventKind::connected, link.b) != nullptr;
  });
  EXPECT_TRUE(connected) << why_not(from, link.a) << why_not(to, link.b);
  return link;
}

RemoteAddress Conformance::expose(Side& side, Area& area, std::size_t offset, std::size_t bytes,
                                  PeerGroup group) {
  const Result<RemoteAddress> remote =
      side.fabric().expose(group, area.handle(), area.at(offset), bytes);
  EXPECT_TRUE(remote.ok()) << remote.status().to_string();
  return remote.ok() ? *remote : RemoteAddress{};
}

void Conformance::close_all() {
  for (auto& side : sides_) {
    std::set<EndpointId> endpoints;
    for (const EventKind kind : {EventKind::connect_request, EventKind::connected}) {
      for (const Event* event : side->events(kind)) endpoints.insert(event->endpoint);
    }
    for (const EndpointId endpoint : endpoints) side->fabric().close(endpoint);
    const auto listening = listening_.find(side.get());
    if (listening != listening_.end()) side->fabric().close_listener(listening->second.id);
    for (std::uint64_t group = 1; group <= 4; ++group) side->fabric().close_group({group});
  }
}

void Conformance::TearDown() {
  close_all();
  EXPECT_TRUE(run_until([&] {
    return std::all_of(sides_.begin(), sides_.end(),
                       [](const auto& side) { return side->fabric().resources().endpoints == 0; });
  })) << "endpoints are left";
  run_for(1ms);
  for (auto& side : sides_) {
    EXPECT_EQ(side->outstanding(), 0u);
    const Fabric::Resources left = side->fabric().resources();
    EXPECT_EQ(left.endpoints, 0u);
    EXPECT_EQ(left.listeners, 0u);
    if (side->fabric().capabilities().exact_keys) {
      EXPECT_EQ(left.keys, 0u);  // else they live as long as their registrations
    }
    EXPECT_EQ(left.windows, 0u);
    EXPECT_EQ(left.work_requests, 0u);
  }
  std::vector<Fabric*> fabrics;
  for (auto& side : sides_) {
    fabrics.push_back(&side->fabric());
    side.reset();
  }
  for (Fabric* fabric : fabrics) {
    EXPECT_EQ(fabric->resources().registrations, 0u);
    EXPECT_EQ(fabric->resources().keys, 0u);
  }
}

}  // namespace pawl::fabric::conformance
