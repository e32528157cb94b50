// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "fabric/fabric.h"
#include "fabric/faulty/fault_plan.h"
#include "fabric/faulty/reuse_oracle.h"
#include "fabric/signal_order.h"

namespace pawl::fabric {

/// A decorator that injects faults over any fabric, in real or virtual time (which it knows from
/// poll). The promises of fabric.h hold through it: what is held counts in the depth of its queue,
/// is flushed exactly once, and `closed` still comes last; but a READ that is held takes no place
/// of the read depth and holds up nothing behind it. One thread, as the fabric beneath; both
/// outlive it.
///
/// faulty_fabric.cc: connections, events, time. held_work.cc: what is posted, held and completed.
class FaultyFabric final : public Fabric {
 public:
  FaultyFabric(Fabric& inner, const FaultPlan& plan, ReuseOracle* oracle = nullptr);
  ~FaultyFabric() override = default;

  // --- what the test or demonstration does --------------------------------------------------

  FaultPlan& plan() { return plan_; }
  [[nodiscard]] const FaultCounters& counters() const { return counters_; }
  /// Holds every READ from now on, until released. Ending it does not release those held.
  void hold_reads(bool on) { hold_reads_ = on; }
  /// Gives the `count` oldest held READs to the device at the next poll; returns how many.
  std::size_t release_reads(std::size_t count = ~std::size_t{0});
  [[nodiscard]] std::size_t reads_held() const { return held_reads_.size(); }
  /// Holds every completion from now on (or those of one opcode), until released or until its
  /// endpoint is closed.
  void hold_completions(bool on, std::optional<Opcode> only = std::nullopt) {
    hold_completions_ = on;
    hold_completions_of_ = only;
  }
  std::size_t release_completions(std::size_t count = ~std::size_t{0});
  [[nodiscard]] std::size_t completions_held() const { return held_completions_.size(); }
  /// Holds every send from now on, until released, and what is posted behind it.
  void hold_sends(bool on) { hold_sends_ = on; }
  /// Gives what stands in the send queues to the device, in its order; returns how many.
  std::size_t release_sends();
  [[nodiscard]] std::size_t sends_held() const;
  /// Takes an endpoint to ERR by itself, as a failing device would.
  void fail_endpoint(EndpointId endpoint);

  // --- Fabric -------------------------------------------------------------------------------

  std::string_view registrar_name() const override { return inner_.registrar_name(); }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override {
    return inner_.register_memory(memory, kind, use);
  }
  Status deregister_memory(MemoryHandle handle) override {
    return inner_.deregister_memory(handle);
  }
  std::string_view name() const override { return inner_.name(); }
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<ListenerId> listen(std::string_view address) override { return inner_.listen(address); }
  std::string listener_address(ListenerId listener) const override {
    return inner_.listener_address(listener);
  }
  void close_listener(ListenerId listener) override { inner_.close_listener(listener); }
  Result<EndpointId> connect(std::string_view address, const EndpointOptions& options,
                             std::span<const std::byte> hello, TimePoint deadline) override;
  Status accept(EndpointId endpoint, const EndpointOptions& options,
                std::span<const std::byte> hello) override;
  void reject(EndpointId endpoint, std::span<const std::byte> hello) override;
  void set_error(EndpointId endpoint) override;
  void close(EndpointId endpoint) override;
  void close_group(PeerGroup group) override { inner_.close_group(group); }
  Result<RemoteAddress> expose(PeerGroup group, MemoryHandle memory, std::byte* base,
                               std::uint64_t length) override;
  Result<WindowId> allocate_window() override { return inner_.allocate_window(); }
  std::uint64_t next_window_key(WindowId window) const override {
    return inner_.next_window_key(window);
  }
  Status free_window(WindowId window) override;
  std::size_t post(EndpointId endpoint, std::span<const WorkRequest> chain, Status& why) override;
  std::size_t poll(TimePoint now, std::span<Completion> out) override;
  std::uint64_t work_done() const override { return inner_.work_done(); }
  bool poll_event(Event& out) override;
  TimePoint next_event_time() const override;
  bool arm() override;
  int event_fd() const override { return inner_.event_fd(); }
  Resources resources() const override;

 private:
  /// A request that was accepted and has not completed. Its number is the id that the device sees,
  /// and the order of acceptance.
  struct Work {
    WorkRequest request;  // its spans name the vectors below
    std::vector<LocalSegment> local;
    std::vector<std::byte> inline_bytes;
    EndpointId endpoint;
    std::uint64_t user_id = 0;
    std::uint64_t ticket = 0;  // in the endpoint's SignalOrder; not for receives
    TimePoint accepted;
    TimePoint due;
    std::uint64_t oracle_state = 0;
  };
  struct Endpoint {
    std::uint32_t send_depth = 1;
    std::uint32_t sends_held = 0;   // accepted and not returned by poll
    std::uint64_t outstanding = 0;  // all requests, likewise
    SignalOrder signals;
    std::deque<std::uint64_t> queue;  // delayed sends and what waits behind them, in order
    std::set<std::uint64_t> held_reads;
    TimePoint send_order{INT64_MIN};
    TimePoint receive_order{INT64_MIN};
    TimePoint deadline = TimePoint::never();  // of connect
    std::uint32_t receives_delayed = 0;       // their completions wait; later ones stay behind them
    bool connected = false;
    bool error = false;
    bool failed = false;    // `failed` was given out
    bool closing = false;   // close was called by the user
    bool rejected = false;  // no event follows
    bool refused = false;   // refuse_connect: ends at the next poll
    bool lose = false;      // lose_connected: when it comes
    bool lost = false;      // it came and was lost; ends at `deadline`
    bool ended = false;     // of the two: the device was told to close it
  };
  struct QueuedEvent {
    Event event;
    std::uint64_t after = 0;  // completions that poll returns first
  };
  using TimedKey = std::pair<TimePoint, std::uint64_t>;

  // faulty_fabric.cc
  Endpoint* find(EndpointId endpoint);
  bool take_inner_event();
  void take_failed(Endpoint& endpoint, Event event);
  void take_last(Endpoint& endpoint, Event event);
  void push_event(Event event, bool after_completions);
  void end_faulty_connects();
  void goes_to_error(Endpoint& endpoint);
  void fail(EndpointId id, Endpoint& endpoint, Status why);

  // held_work.cc
  Status check(const Endpoint& endpoint, const WorkRequest& request);
  bool take_work(EndpointId id, Endpoint& endpoint, const WorkRequest& request, Status& why);
  bool must_hold(Endpoint& endpoint, const WorkRequest& request, TimePoint& due);
  Work& keep(EndpointId id, const WorkRequest& request);
  bool give_to_device(const Work& work, Status& why);
  void release_due_reads();
  void execute_read(std::uint64_t number);
  void advance_queue(Endpoint& endpoint);
  void flush_held(Endpoint& endpoint);
  [[nodiscard]] bool holds_completion(Opcode op) const {
    return hold_completions_ && (!hold_completions_of_ || *hold_completions_of_ == op);
  }
  void take_completion(const Completion& completion);
  void complete(const Completion& completion);
  void release_completion(std::map<TimedKey, Completion>::iterator held);
  void release_due_completions();
  void release_completions_of(EndpointId endpoint);
  void hand_out(const Completion& completion);

  Fabric& inner_;
  const Capabilities capabilities_;
  FaultPlan plan_;
  ReuseOracle* oracle_;
  Random random_;
  FaultCounters counters_;
  bool hold_reads_ = false;
  bool hold_completions_ = false;
  std::optional<Opcode> hold_completions_of_;
  bool hold_sends_ = false;
  TimePoint now_{0};  // of the last poll
  std::uint64_t next_work_ = 1;
  std::uint64_t next_held_ = 1;
  std::map<EndpointId, Endpoint> endpoints_;
  std::unordered_map<std::uint64_t, Work> work_;
  std::set<TimedKey> held_reads_;                    // when to execute, number of the work
  std::map<TimedKey, Completion> held_completions_;  // when to hand out, order
  std::deque<Completion> ready_;
  std::uint64_t ready_pushed_ = 0;
  std::uint64_t ready_returned_ = 0;
  std::deque<QueuedEvent> events_;
};

}  // namespace pawl::fabric
