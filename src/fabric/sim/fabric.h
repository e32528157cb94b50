// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/sim/endpoint.h"
#include "fabric/sim/memory.h"
#include "fabric/sim/network.h"

namespace pawl::fabric {

/// One node's device (or one poller's share of it) in a SimNetwork. Addresses are "name" or
/// "name:service"; "name:0" picks a free service. Destroying it is a crash of its node.
///
/// Split by what happens: fabric.cc calls, completions and events; connect.cc the handshake;
/// request.cc the requester's side of work; serve.cc the side that receives and is read from.
class SimFabric final : public Fabric {
 public:
  /// Joins the network under `name`, which no living node may have; it has no ':'.
  SimFabric(SimNetwork& network, std::string name);
  /// The same with other capabilities than SimOptions::capabilities.
  SimFabric(SimNetwork& network, std::string name, const Capabilities& capabilities);
  ~SimFabric() override;
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  std::string_view registrar_name() const override { return "sim"; }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override;
  Status deregister_memory(MemoryHandle handle) override;

  std::string_view name() const override { return "sim"; }
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<ListenerId> listen(std::string_view address) override;
  std::string listener_address(ListenerId listener) const override;
  void close_listener(ListenerId listener) override;
  Result<EndpointId> connect(std::string_view address, const EndpointOptions& options,
                             std::span<const std::byte> hello, TimePoint deadline) override;
  Status accept(EndpointId endpoint, const EndpointOptions& options,
                std::span<const std::byte> hello) override;
  void reject(EndpointId endpoint, std::span<const std::byte> hello) override;
  void set_error(EndpointId endpoint) override;
  void close(EndpointId endpoint) override;
  void close_group(PeerGroup group) override;
  Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                               std::uint64_t length) override;
  Result<WindowId> allocate_window() override;
  std::uint64_t next_window_key(WindowId window) const override;
  Status free_window(WindowId window) override;
  std::size_t post(EndpointId endpoint, std::span<const WorkRequest> chain, Status& why) override;
  std::size_t poll(TimePoint now, std::span<Completion> out) override;
  bool poll_event(Event& out) override;
  TimePoint next_event_time() const override;
  bool arm() override;
  int event_fd() const override { return -1; }
  Resources resources() const override;

  /// Takes one endpoint to ERR by itself, as a failing device would: for tests.
  void fail_endpoint(EndpointId endpoint);

  // --- for SimNetwork ----------------------------------------------------------------------
  [[nodiscard]] std::string_view node_name() const { return name_; }
  [[nodiscard]] bool ready_for(EndpointId endpoint, const SimPeer& peer) const;
  void suspect(EndpointId endpoint);
  void path_changed();
  void crashed();
  void node_vanished(std::uint64_t node);
  void fail_connections_to(std::uint64_t node);
  void device_event(Status status);

 private:
  struct QueuedEvent {
    Event event;
    std::uint64_t after = 0;  // completions that poll returns first
  };

  // fabric.cc
  SimEndpoint* find(EndpointId endpoint);
  SimEndpoint* find(EndpointId endpoint, const SimPeer& peer);
  SimEndpoint& add_endpoint(SimState state);
  EndpointOptions clamped(const EndpointOptions& options) const;
  Status check(const SimEndpoint& endpoint, const WorkRequest& work) const;
  void accept_work(SimEndpoint& endpoint, const WorkRequest& work);
  void push_completion(SimEndpoint& endpoint, const Completion& completion);
  void push_event(Event event, bool after_completions = false);
  void fail(SimEndpoint& endpoint, Status why, bool by_itself, bool announce);
  void flush(SimEndpoint& endpoint);
  void flush_due(EndpointId endpoint);
  void end(SimEndpoint& endpoint, Event last);
  void trace(const SimEndpoint& endpoint, std::string_view what, std::uint64_t number = 0);

  // connect.cc
  struct ConnectRequest {
    SimPeer from;
    std::string from_name;
    std::string address;
    std::vector<std::byte> hello;
  };
  void connect_requested(const ConnectRequest& request);
  void connect_accepted(EndpointId endpoint, const SimPeer& peer,
                        const std::vector<std::byte>& hello);
  void connect_refused(EndpointId endpoint, const Status& why, const std::vector<std::byte>& hello);
  void connect_confirmed(EndpointId endpoint, const SimPeer& peer);
  void connect_abandoned(const SimPeer& peer);
  void refuse(const SimPeer& peer, const Status& why, std::span<const std::byte> hello);
  void abandon(std::uint64_t node, EndpointId endpoint);
  void connect_failed(SimEndpoint& endpoint, Status why, std::vector<std::byte> hello = {});

  // request.cc
  void schedule_pump(SimEndpoint& endpoint, Duration delay);
  void pump(EndpointId endpoint);
  bool draw_loss(SimEndpoint& endpoint);
  void start_send(SimEndpoint& endpoint, std::uint64_t ticket);
  void start_read(SimEndpoint& endpoint, std::uint64_t ticket);
  void start_window(SimEndpoint& endpoint, std::uint64_t ticket);
  void window_done(EndpointId endpoint, std::uint64_t ticket);
  void release_window(SimRequest& request);
  void finish_later(SimEndpoint& endpoint, std::uint64_t ticket, bool at_once = false);
  void finish(SimEndpoint& endpoint, std::uint64_t ticket, CompletionStatus status);
  void answered(EndpointId endpoint, const SimPeer& peer, std::uint64_t ticket,
                CompletionStatus status);
  void read_landed(EndpointId endpoint, const SimPeer& peer, std::uint64_t ticket,
                   std::uint64_t offset, const std::vector<std::byte>& bytes);
  void read_complete(EndpointId endpoint, const SimPeer& peer, std::uint64_t ticket, bool at_once);
  void retry_over(EndpointId endpoint, std::uint64_t suspicion);

  // serve.cc
  void inbound_arrived(EndpointId endpoint, const SimPeer& peer, SimInbound inbound);
  void take_inbound(EndpointId endpoint);
  bool take_message(SimEndpoint& endpoint);
  void message_waits(SimEndpoint& endpoint);
  void serve_later(SimEndpoint& endpoint);
  void serve_packet(const std::shared_ptr<SimServing>& serving);
  void refuse_read(SimEndpoint& endpoint, SimServing& serving);
  void answer(SimEndpoint& endpoint, std::uint64_t ticket, CompletionStatus status,
              TimePoint* order = nullptr);
  void peer_failed(EndpointId endpoint, const SimPeer& peer);

  [[nodiscard]] SimPeer self(const SimEndpoint& endpoint) const { return {node_, endpoint.id}; }
  Random& random() { return network_.random(); }
  SimOptions& options() { return network_.options(); }

  SimNetwork& network_;
  const std::string name_;
  Capabilities capabilities_;
  std::uint64_t node_ = 0;
  bool crashed_ = false;
  SimMemory memory_;
  std::uint64_t next_endpoint_;
  std::uint64_t next_listener_ = 1;
  std::map<EndpointId, std::unique_ptr<SimEndpoint>> endpoints_;  // ordered: runs replay
  std::map<ListenerId, std::string> listeners_;
  std::deque<Completion> completions_;
  std::uint64_t completions_pushed_ = 0;
  std::uint64_t completions_returned_ = 0;
  std::deque<QueuedEvent> events_;
  std::uint64_t work_requests_ = 0;
};

}  // namespace pawl::fabric
