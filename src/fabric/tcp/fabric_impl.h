// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/socket/listen_socket.h"
#include "fabric/socket/resolver.h"
#include "fabric/socket/slot_table.h"
#include "fabric/socket/socket.h"
#include "fabric/tcp/core.h"
#include "fabric/tcp/endpoint.h"

namespace pawl::fabric::tcp {

/// fabric.cc: turns, completions, events. connector.cc and listener.cc: the two ends of becoming
/// connected.
class TcpFabric final : public Fabric {
 public:
  TcpFabric(const TcpOptions& options, UniqueFd epoll);
  ~TcpFabric() override;
  /// Watches what the fabric itself waits for.
  Status start();

  [[nodiscard]] std::string_view registrar_name() const override { return "tcp"; }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override;
  Status deregister_memory(MemoryHandle handle) override;

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Result<ListenerId> listen(std::string_view address) override;
  [[nodiscard]] std::string listener_address(ListenerId listener) const override;
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
  [[nodiscard]] std::uint64_t next_window_key(WindowId window) const override;
  Status free_window(WindowId window) override;
  std::size_t post(EndpointId endpoint, std::span<const WorkRequest> chain, Status& why) override;
  std::size_t poll(TimePoint now, std::span<Completion> out) override;
  [[nodiscard]] std::uint64_t work_done() const override { return core_.work_done; }
  bool poll_event(Event& out) override;
  [[nodiscard]] TimePoint next_event_time() const override;
  bool arm() override;
  [[nodiscard]] int event_fd() const override { return epoll_.get(); }
  [[nodiscard]] Resources resources() const override;

 private:
  struct Listener {
    ListenSocket socket;
    bool ready = false;                    // edge-triggered: connections may wait
    TimePoint retry = TimePoint::never();  // with `ready`: not before; never: in the ready list
  };
  struct HalfOpen {
    EndpointId endpoint;
    TimePoint since;
  };

  // fabric.cc
  Endpoint* find(EndpointId endpoint);
  EndpointId add_endpoint();
  Status watch(int fd, std::uint64_t tag);
  void take_system_events();
  void turn(Endpoint& endpoint);
  void run_active();
  void fire_deadlines();
  void deadline_passed(Endpoint& endpoint);
  std::size_t collect(std::span<Completion> out);

  // connector.cc
  void take_answers();
  void start_attempt(Endpoint& endpoint);
  bool try_address(Endpoint& endpoint, const SocketAddress& address);
  void connect_turn(Endpoint& endpoint);
  void greeting_turn(Endpoint& endpoint);
  void attempt_timed_out(Endpoint& endpoint);
  static void address_failed(Endpoint& endpoint, const SocketAddress& address,
                             const std::string& why);
  void give_up(Endpoint& endpoint, const char* why);

  // listener.cc
  void accept_all();
  bool accept_from(ListenerId id, Listener& listener);
  bool room_for_handshake(TimePoint& retry);
  void adopt(ListenerId id, UniqueFd fd, const SocketAddress& peer, const Listener& listener);
  void no_descriptor(const Listener& listener, int error);
  void retry_later(Listener& listener, TimePoint retry);
  void retry_listeners();
  void handshake_over(EndpointId endpoint);
  void drop_handshake(Endpoint& endpoint);
  void incoming_turn(Endpoint& endpoint);

  Core core_;
  Capabilities capabilities_;
  UniqueFd epoll_;
  SlotTable<std::unique_ptr<Endpoint>> endpoints_;
  SlotTable<Listener> listeners_;
  std::vector<ListenerId> ready_listeners_;
  std::deque<HalfOpen> half_open_;  // oldest first
  bool descriptors_short_ = false;  // said so in an event
  Resolver resolver_;
  std::vector<EndpointId> turn_list_;  // scratch of a turn
  std::vector<EndpointId> timed_list_;
};

/// What epoll says with an event: endpoints by their id, listeners with this bit.
inline constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kResolverTag = 0;

}  // namespace pawl::fabric::tcp
