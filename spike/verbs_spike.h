// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/fabric.h"

namespace pawl::spike {

using namespace fabric;  // NOLINT(google-build-using-namespace): everything here is of the fabric

/// What the scenarios vary.
struct SpikeOptions {
  std::uint8_t rnr_retry = 7;  ///< 7 = for ever
  std::uint8_t retry_count = 6;
  std::uint8_t ack_timeout = 17;   ///< 4.096 us * 2^17 = 0.5 s: a busy machine is not a dead peer
  bool hang_up = true;             ///< the bootstrap socket tells the peer that this end is in ERR
  Duration hang_up_grace = 100ms;  ///< for work in flight to end by itself, with its own reason
};

/// The least that is a Fabric on real verbs: enough to try fabric.h, not to be used. Numeric
/// addresses, port 1, RoCE v2, one completion queue, polls its sockets at each turn.
class VerbsSpike final : public Fabric {
 public:
  explicit VerbsSpike(const char* device, SpikeOptions options = {});
  ~VerbsSpike() override;

  std::string_view name() const override { return "verbs"; }
  std::string_view registrar_name() const override { return registrar_name_; }
  const Capabilities& capabilities() const override { return capabilities_; }

  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override;
  Status deregister_memory(MemoryHandle handle) override;

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
  void close_group(PeerGroup) override {}  // the keys are the slabs'

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
  int event_fd() const override { return epoll_.get(); }
  Resources resources() const override;

  /// What only the report wants to know.
  std::vector<std::string> async_events;
  Duration last_destroy{};
  bool socket_seen = false;  ///< a peer's end was learnt of by its socket

 private:
  struct Greeting;
  struct Window {
    enum class State { idle, bound, unknown } state = State::idle;
    ibv_mw* mw = nullptr;
    std::uint32_t binds = 0;
    std::uint64_t through = 0;  ///< the endpoint of the last bind
  };
  struct Posted {
    std::uint64_t id = 0;
    Opcode op = Opcode::send;
    std::uint64_t window = 0;
    bool marker = false;  ///< the fabric's own, see to_error
  };
  struct Queue {
    std::deque<Posted> posted;
    std::uint64_t first = 0;  ///< number of the oldest that has not completed
    std::uint32_t unsignalled = 0;
  };
  struct Endpoint {
    enum class State { greeting, requested, connecting, accepting, connected, error };
    State state = State::greeting;
    std::uint64_t id = 0;
    EndpointOptions options;
    ibv_qp* qp = nullptr;
    UniqueFd socket;
    std::vector<std::byte> in, out;
    std::array<Queue, 2> queues;  ///< send, receive
    std::uint32_t psn = 0;
    bool announced = false;  ///< poll_event has returned `connected`, or it never will
    bool closing = false;
    bool gone = false;     ///< the queue pair is destroyed, or there was none
    bool hung_up = false;  ///< the peer's end is gone; `deadline` is the end of the grace
    Event last;            ///< closed, connect_failed
    TimePoint deadline = TimePoint::never();
    std::vector<Completion> held;
    std::vector<std::vector<ibv_sge>> early;  ///< receives posted before accept
    std::unique_ptr<Event> held_failure;
  };

  Endpoint* find(EndpointId id);
  Endpoint& make_endpoint(Endpoint::State state, UniqueFd socket, TimePoint deadline);
  Status make_qp(Endpoint& endpoint, const EndpointOptions& options);
  Status connect_qp(Endpoint& endpoint, const Greeting& peer);
  void say(Endpoint& endpoint, std::uint8_t kind, std::span<const std::byte> hello);
  void push_out(Endpoint& endpoint);
  void pull_in(Endpoint& endpoint);
  void heard(Endpoint& endpoint, const Greeting& peer, std::vector<std::byte> hello);
  void announce(Endpoint& endpoint, std::vector<std::byte> hello);
  void to_error(Endpoint& endpoint);
  void fail(Endpoint& endpoint, const char* why, int native);
  void end(Endpoint& endpoint, EventKind kind, Status status, std::vector<std::byte> hello = {});
  void expire(Endpoint& endpoint);
  void poll_sockets();
  void poll_async();
  void poll_cq();
  void complete(const ibv_wc& wc);
  void deliver(Endpoint& endpoint, const Posted& posted, CompletionStatus status,
               std::uint32_t bytes, int native);
  void advance_closing();
  Status check(Endpoint& endpoint, const WorkRequest& work, std::size_t ahead);
  int give_receive(Endpoint& endpoint, std::uint64_t number, std::vector<ibv_sge>& segments);
  void flush_rest(Endpoint& endpoint);
  std::size_t post_sends(Endpoint& endpoint, std::span<const WorkRequest> chain, Status& why);
  ibv_mr* region(MemoryHandle handle) const;

  SpikeOptions options_;
  std::string registrar_name_;
  Capabilities capabilities_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mtu mtu_ = IBV_MTU_1024;
  ibv_gid gid_{};
  int gid_index_ = -1;
  UniqueFd epoll_;
  bool armed_ = false;
  TimePoint now_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::unique_ptr<Endpoint>> endpoints_;
  std::map<std::uint64_t, UniqueFd> listeners_;
  std::map<std::uint64_t, Window> windows_;
  mutable std::mutex regions_mutex_;  ///< Registrar is called on any thread
  std::map<std::uint64_t, ibv_mr*> regions_;
  std::deque<Completion> ready_;
  std::deque<Event> events_;
};

}  // namespace pawl::spike
