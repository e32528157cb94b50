// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/socket/listen_socket.h"
#include "fabric/socket/resolver.h"
#include "fabric/socket/slot_table.h"
#include "fabric/verbs/completion_list.h"
#include "fabric/verbs/completion_queues.h"
#include "fabric/verbs/device.h"
#include "fabric/verbs/endpoint.h"
#include "fabric/verbs/regions.h"
#include "fabric/verbs/windows.h"

namespace pawl::fabric::verbs {

/// The files follow what happens: fabric.cc (turns, memory), connecting.cc and accepting.cc (the
/// two ends of becoming connected), hearing.cc (the bootstrap connection), posting.cc,
/// completing.cc, ending.cc, device_events.cc.
class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(std::unique_ptr<Device> device, UniqueFd epoll, UniqueFd wake);
  ~VerbsFabric() override;
  /// Watches what the fabric itself waits for.
  Status start();

  [[nodiscard]] std::string_view registrar_name() const override { return registrar_name_; }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override;
  Status deregister_memory(MemoryHandle handle) override;

  [[nodiscard]] std::string_view name() const override { return "verbs"; }
  [[nodiscard]] const Capabilities& capabilities() const override {
    return device_->capabilities();
  }
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
  void close_group(PeerGroup) override {}  // the keys are the registrations'

  Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                               std::uint64_t length) override;
  Result<WindowId> allocate_window() override;
  [[nodiscard]] std::uint64_t next_window_key(WindowId window) const override;
  Status free_window(WindowId window) override;

  std::size_t post(EndpointId endpoint, std::span<const WorkRequest> chain, Status& why) override;
  std::size_t poll(TimePoint now, std::span<Completion> out) override;
  [[nodiscard]] std::uint64_t work_done() const override { return work_done_; }
  bool poll_event(Event& out) override;
  [[nodiscard]] TimePoint next_event_time() const override { return next_deadline_; }
  bool arm() override;
  [[nodiscard]] int event_fd() const override { return epoll_.get(); }
  [[nodiscard]] Resources resources() const override;

 private:
  struct Listener {
    ListenSocket socket;
    bool paused = false;  // no room or no descriptor: looked at again at `accept_retry_`
  };

  // fabric.cc
  Endpoint* find(EndpointId endpoint);  // those that the application knows
  Endpoint* find_any(EndpointId endpoint);
  Result<Endpoint*> add_endpoint(State state);
  void erase(EndpointId endpoint);
  void set_deadline(Endpoint& endpoint, TimePoint deadline);
  void fire_deadlines();
  void deadline_passed(Endpoint& endpoint);
  void look();
  void push_event(Endpoint& endpoint, Event event);
  Status watch(int fd, std::uint64_t tag);
  void watch_bootstrap(Endpoint& endpoint);

  // connecting.cc
  void take_answers();
  void start_attempt(Endpoint& endpoint);
  bool try_address(Endpoint& endpoint, const SocketAddress& address);
  void socket_connected(Endpoint& endpoint);
  void attempt_timed_out(Endpoint& endpoint);
  void accepted(Endpoint& endpoint, std::vector<std::byte> hello);

  // accepting.cc
  void accept_from(ListenerId id, Listener& listener);
  void pause(ListenerId id, Listener& listener);
  void resume_listeners();
  void adopt(ListenerId id, const Listener& listener, UniqueFd fd, const SocketAddress& peer);
  void requested(Endpoint& endpoint, std::vector<std::byte> hello);
  Status make_queue_pair(Endpoint& endpoint, const EndpointOptions& options);
  void drop_queue_pair(Endpoint& endpoint);
  Status reach(Endpoint& endpoint);
  Status give_early_receives(Endpoint& endpoint);

  // hearing.cc
  void bootstrap_event(Endpoint& endpoint);
  void hear(Endpoint& endpoint);
  void heard(Endpoint& endpoint, const Greeting& greeting, std::vector<std::byte> hello);
  void peer_gone(Endpoint& endpoint, Code code, const std::string& why);
  void hung_up(Endpoint& endpoint, const std::string& why);
  void announce(Endpoint& endpoint, std::vector<std::byte> hello);
  void tell_end(Endpoint& endpoint, EndReason reason);

  // posting.cc
  Status check(const Endpoint& endpoint, const WorkRequest& work, std::size_t ahead) const;
  std::size_t post_sends(Endpoint& endpoint, std::span<const WorkRequest> chain, Status& why);
  std::size_t post_receives(Endpoint& endpoint, std::span<const WorkRequest> chain, Status& why);
  Status fill(Endpoint& endpoint, const WorkRequest& work, ibv_send_wr& wr, ibv_sge* segments);

  // completing.cc
  std::size_t poll_queues(std::size_t most);
  void complete(const ibv_wc& wc);
  void deliver(Endpoint& endpoint, const Posted& posted, CompletionStatus status,
               std::uint32_t bytes, std::int32_t native);
  void flush_rest(Endpoint& endpoint);

  // ending.cc
  void to_error(Endpoint& endpoint, EndReason reason);
  void fail(Endpoint& endpoint, EndReason reason, Status why);
  void end(Endpoint& endpoint, EventKind kind, Status status, std::vector<std::byte> hello = {});
  void connect_failed(Endpoint& endpoint, Code code, const std::string& why,
                      std::vector<std::byte> hello = {});
  void end_silently(Endpoint& endpoint);
  void advance_ending();
  bool advance(Endpoint& endpoint);
  bool destroy(Endpoint& endpoint);
  void post_marker(Endpoint& endpoint);
  void list_ending(Endpoint& endpoint);

  // device_events.cc
  void take_device_events();
  void device_event(const ibv_async_event& event);
  Status look_at_port();
  void device_failed(const std::string& why);
  void report(Code code, std::string text);

  const std::unique_ptr<Device> device_;
  const std::string registrar_name_;
  Regions regions_;
  Windows windows_;
  CompletionQueues queues_;
  UniqueFd epoll_;
  UniqueFd wake_;  // an eventfd: free_window on another thread may let an endpoint end
  TimePoint now_;
  TimePoint next_look_;
  TimePoint next_deadline_ = TimePoint::never();
  TimePoint accept_retry_ = TimePoint::never();
  bool armed_ = false;
  bool dead_ = false;          // the device is gone
  bool port_changed_ = false;  // perhaps: it is looked at before the next connection
  std::uint64_t work_done_ = 0;
  std::uint64_t work_requests_ = 0;  // accepted and not completed
  std::size_t half_open_ = 0;
  bool descriptors_short_ = false;  // said so in an event
  CompletionList ready_;
  std::deque<Event> events_;
  std::vector<EndpointId> ending_;
  SlotTable<std::unique_ptr<Endpoint>> endpoints_;
  SlotTable<Listener> listeners_;
  Resolver resolver_{look_up_by_system};
};

}  // namespace pawl::fabric::verbs
