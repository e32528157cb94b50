// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "rpc/fabric_source.h"
#include "rpc/handshake.h"
#include "rpc/wire.h"

namespace pawl::testing {

/// A frame that the code under test sent.
struct SentFrame {
  fabric::EndpointId endpoint;
  rpc::FrameHeader header;
  std::vector<std::byte> body;
};

/// A fabric whose other end is the test: it sees every frame and READ that is posted, and says
/// what arrives and completes. Nothing happens by itself but the completion of sends, unless the
/// test says that a peer is silent.
class ScriptedFabric : public fabric::Fabric {
 public:
  // --- for the test -------------------------------------------------------------------------

  std::deque<SentFrame> sent;
  struct Read {
    fabric::EndpointId endpoint;
    std::uint64_t id = 0;
    fabric::RemoteAddress remote;
    std::vector<fabric::LocalSegment> local;
  };
  std::deque<Read> reads;
  std::vector<std::vector<std::byte>> connects;  ///< hellos of our connects, oldest first
  std::vector<fabric::EndpointId> connecting;
  std::map<std::uint64_t, std::vector<std::byte>> accepted;  ///< reply hello by endpoint
  std::map<std::uint64_t, bool> errored, closed_endpoints;
  std::size_t fewest_receives = SIZE_MAX;  ///< that were posted when a message went out
  std::vector<std::size_t> read_chains, receive_chains;  ///< lengths of what was posted at once
  std::map<const std::byte*, std::uint64_t> exposed;     ///< what has a key: base and bytes
  std::set<std::uint64_t> exposed_groups, closed_groups;
  struct Messages {
    std::uint32_t call = 0, session = 0;
  };
  std::map<std::uint64_t, Messages> messages;  ///< that were sent, by endpoint and class
  /// A device that gives nothing up: what is closed is neither flushed nor said to be closed.
  bool stuck = false;
  void unstick() {
    stuck = false;
    for (const fabric::EndpointId endpoint : std::exchange(stuck_, {})) finish_close(endpoint);
  }
  std::set<std::uint64_t> silent;  ///< endpoints whose peer acknowledges nothing: no work completes
  std::map<std::uint64_t, Status> refused_sends;        ///< by endpoint: why it takes none
  std::map<std::uint64_t, Status> refused_window_work;  ///< the same for what stands behind a bind

  void connected(fabric::EndpointId endpoint, std::vector<std::byte> hello) {
    fabric::Event event;
    event.kind = fabric::EventKind::connected;
    event.endpoint = endpoint;
    event.peer_address = "peer";
    event.hello = std::move(hello);
    events_.push_back(std::move(event));
  }
  /// The endpoint went to ERR by itself, after it was connected.
  void failed(fabric::EndpointId endpoint) {
    fabric::Event event;
    event.kind = fabric::EventKind::failed;
    event.endpoint = endpoint;
    event.status = Status(Code::connection_lost, "the test ended the endpoint");
    events_.push_back(std::move(event));
  }
  /// In place of `connected`: the endpoint is gone.
  void connect_failed(fabric::EndpointId endpoint, std::vector<std::byte> hello) {
    if (std::exchange(closed_endpoints[endpoint.value], true)) return;
    flush_receives(endpoint);
    fabric::Event event;
    event.kind = fabric::EventKind::connect_failed;
    event.endpoint = endpoint;
    event.hello = std::move(hello);
    event.status = Status(Code::unavailable, "the test refuses the endpoint");
    events_.push_back(std::move(event));
  }
  /// What is kept about endpoints that are over; none may be left.
  void forget() {
    sent.clear();
    connects.clear();
    connecting.clear();
    accepted.clear();
    errored.clear();
    closed_endpoints.clear();
    messages.clear();
    silent.clear();
    refused_sends.clear();
    refused_window_work.clear();
    receives_.clear();
    held_.clear();
  }
  fabric::EndpointId connect_request(std::vector<std::byte> hello) {
    fabric::Event event;
    event.kind = fabric::EventKind::connect_request;
    event.endpoint = {++next_};
    event.listener = {1};
    event.peer_address = "peer";
    event.hello = std::move(hello);
    events_.push_back(event);
    return event.endpoint;
  }
  /// A message arrives in the oldest receive. False if none is posted, or it is too short.
  bool arrive(fabric::EndpointId endpoint, std::span<const std::byte> message) {
    auto& queue = receives_[endpoint.value];
    if (queue.empty() || queue.front().second.length < message.size()) return false;
    const auto [id, segment] = queue.front();
    queue.pop_front();
    std::copy(message.begin(), message.end(), segment.address);
    fabric::Completion completion;
    completion.id = id;
    completion.endpoint = endpoint;
    completion.op = fabric::Opcode::receive;
    completion.bytes = static_cast<std::uint32_t>(message.size());
    completions_.push_back(completion);
    return true;
  }
  void complete_read(fabric::CompletionStatus status = fabric::CompletionStatus::success) {
    complete(reads.front(), status);
    reads.pop_front();
  }
  /// The peer of a silent endpoint acknowledges the oldest `count` of what it was sent.
  void acknowledge(fabric::EndpointId endpoint, std::size_t count = SIZE_MAX) {
    complete_held(endpoint, count, fabric::CompletionStatus::success);
  }
  /// What a silent endpoint in ERR had to do comes back undone.
  void flush(fabric::EndpointId endpoint) {
    complete_held(endpoint, SIZE_MAX, fabric::CompletionStatus::flushed);
  }
  /// Before the node starts: it has memory windows, whose work completes by itself.
  void have_windows(bool calls_block = false) {
    capabilities_.windows = fabric::WindowSupport::exact;
    capabilities_.window_calls_block = calls_block;
  }
  /// Before the node connects.
  void set_read_depth(std::uint32_t depth) { capabilities_.read_depth_max = depth; }
  [[nodiscard]] std::size_t receives(fabric::EndpointId endpoint) {
    return receives_[endpoint.value].size();
  }

  // --- Fabric -------------------------------------------------------------------------------

  std::string_view registrar_name() const override { return "scripted"; }
  Result<MemoryHandle> register_memory(std::span<std::byte>, MemoryKind&, MemoryUse) override {
    return MemoryHandle{++next_};
  }
  Status deregister_memory(MemoryHandle) override { return {}; }
  std::string_view name() const override { return "scripted"; }
  const fabric::Capabilities& capabilities() const override { return capabilities_; }
  Result<fabric::ListenerId> listen(std::string_view) override { return fabric::ListenerId{1}; }
  std::string listener_address(fabric::ListenerId) const override { return "scripted"; }
  void close_listener(fabric::ListenerId) override {}
  Result<fabric::EndpointId> connect(std::string_view, const fabric::EndpointOptions&,
                                     std::span<const std::byte> hello, TimePoint) override {
    connects.emplace_back(hello.begin(), hello.end());
    connecting.push_back({++next_});
    return connecting.back();
  }
  Status accept(fabric::EndpointId endpoint, const fabric::EndpointOptions&,
                std::span<const std::byte> hello) override {
    if (gone(endpoint)) return {Code::invalid_argument, "the test ended the endpoint"};
    accepted[endpoint.value].assign(hello.begin(), hello.end());
    connected(endpoint, {});
    return {};
  }
  void reject(fabric::EndpointId endpoint, std::span<const std::byte>) override {
    closed_endpoints[endpoint.value] = true;
  }
  void set_error(fabric::EndpointId endpoint) override { errored[endpoint.value] = true; }
  void close(fabric::EndpointId endpoint) override {
    if (std::exchange(closed_endpoints[endpoint.value], true)) return;
    if (stuck) {
      stuck_.push_back(endpoint);
    } else {
      finish_close(endpoint);
    }
  }
  void close_group(fabric::PeerGroup group) override { closed_groups.insert(group.value); }
  Result<fabric::RemoteAddress> expose(fabric::PeerGroup group, MemoryHandle, std::byte* base,
                                       std::uint64_t length) override {
    exposed_groups.insert(group.value);
    std::uint64_t& exposed_bytes = exposed[base];
    exposed_bytes = std::max(exposed_bytes, length);
    return fabric::RemoteAddress{7, reinterpret_cast<std::uint64_t>(base)};
  }
  Result<fabric::WindowId> allocate_window() override { return fabric::WindowId{++next_}; }
  std::uint64_t next_window_key(fabric::WindowId window) const override { return window.value; }
  Status free_window(fabric::WindowId) override { return {}; }

  std::size_t post(fabric::EndpointId endpoint, std::span<const fabric::WorkRequest> chain,
                   Status& why) override {
    if (gone(endpoint)) {
      why = {Code::failed_precondition, "the endpoint is gone"};
      return 0;
    }
    if (const auto refusal = refused_sends.find(endpoint.value);
        refusal != refused_sends.end() && chain[0].op == fabric::Opcode::send) {
      why = refusal->second;
      return 0;
    }
    if (const auto refusal = refused_window_work.find(endpoint.value);
        refusal != refused_window_work.end() &&
        (chain[0].op == fabric::Opcode::bind || chain[0].op == fabric::Opcode::invalidate)) {
      why = refusal->second;
      return 0;
    }
    if (chain[0].op == fabric::Opcode::read) read_chains.push_back(chain.size());
    if (chain[0].op == fabric::Opcode::receive) receive_chains.push_back(chain.size());
    for (const fabric::WorkRequest& request : chain) {
      if (request.op == fabric::Opcode::receive) {
        receives_[endpoint.value].emplace_back(request.id, request.local[0]);
      } else if (request.op == fabric::Opcode::read) {
        reads.push_back(
            {endpoint, request.id, request.remote, {request.local.begin(), request.local.end()}});
      } else if (request.op != fabric::Opcode::send) {
        fabric::Completion completion;
        completion.id = request.id;
        completion.endpoint = endpoint;
        completion.op = request.op;
        (silent.contains(endpoint.value) ? held_[endpoint.value] : completions_)
            .push_back(completion);
      } else {
        take_message(endpoint, {request.local[0].address, request.local[0].length});
        fabric::Completion completion;
        completion.id = request.id;
        completion.endpoint = endpoint;
        completion.op = fabric::Opcode::send;
        if (silent.contains(endpoint.value)) {
          held_[endpoint.value].push_back(completion);
        } else {
          completions_.push_back(completion);
        }
      }
    }
    return chain.size();
  }
  std::size_t poll(TimePoint, std::span<fabric::Completion> out) override {
    std::size_t count = 0;
    while (count < out.size() && !completions_.empty()) {
      out[count++] = completions_.front();
      completions_.pop_front();
    }
    return count;
  }
  bool poll_event(fabric::Event& out) override {
    if (events_.empty() || !completions_.empty()) return false;
    out = std::move(events_.front());
    events_.pop_front();
    return true;
  }
  TimePoint next_event_time() const override { return TimePoint::never(); }
  bool arm() override { return completions_.empty() && events_.empty(); }
  int event_fd() const override { return -1; }
  Resources resources() const override { return {}; }

 private:
  void finish_close(fabric::EndpointId endpoint) {
    std::erase_if(reads, [&](const Read& read) {
      if (read.endpoint != endpoint) return false;
      complete(read, fabric::CompletionStatus::flushed);
      return true;
    });
    flush_receives(endpoint);
    complete_held(endpoint, SIZE_MAX, fabric::CompletionStatus::flushed);
    fabric::Event event;
    event.kind = fabric::EventKind::closed;
    event.endpoint = endpoint;
    events_.push_back(event);
  }
  void complete(const Read& read, fabric::CompletionStatus status) {
    fabric::Completion completion;
    completion.id = read.id;
    completion.endpoint = read.endpoint;
    completion.op = fabric::Opcode::read;
    completion.status = status;
    completions_.push_back(completion);
  }
  [[nodiscard]] bool gone(fabric::EndpointId endpoint) const {
    const auto found = closed_endpoints.find(endpoint.value);
    return found != closed_endpoints.end() && found->second;
  }
  void complete_held(fabric::EndpointId endpoint, std::size_t count,
                     fabric::CompletionStatus status) {
    auto& held = held_[endpoint.value];
    for (; count > 0 && !held.empty(); --count) {
      held.front().status = status;
      completions_.push_back(held.front());
      held.pop_front();
    }
  }
  void flush_receives(fabric::EndpointId endpoint) {
    for (const auto& [id, segment] : receives_[endpoint.value]) {
      fabric::Completion completion;
      completion.id = id;
      completion.endpoint = endpoint;
      completion.op = fabric::Opcode::receive;
      completion.status = fabric::CompletionStatus::flushed;
      completions_.push_back(completion);
    }
    receives_.erase(endpoint.value);
  }
  void take_message(fabric::EndpointId endpoint, std::span<const std::byte> message) {
    const bool call = message[0] == std::byte{1};
    ++(call ? messages[endpoint.value].call : messages[endpoint.value].session);
    fewest_receives = std::min(fewest_receives, receives_[endpoint.value].size());
    std::span<const std::byte> rest = message.subspan(rpc::MessageHeader::kBytes);
    while (!rest.empty()) {
      SentFrame frame;
      std::span<const std::byte> body;
      const char* why = nullptr;
      if (!rpc::next_frame(rest, frame.header, body, why)) return;
      frame.endpoint = endpoint;
      frame.body.assign(body.begin(), body.end());
      sent.push_back(std::move(frame));
    }
  }

  fabric::Capabilities capabilities_{.message_bytes_max = 65536,
                                     .inline_bytes_max = 64,
                                     .send_segments_max = 4,
                                     .receive_segments_max = 4,
                                     .read_segments_max = 4,
                                     .read_bytes_max = 1 << 30,
                                     .read_depth_max = 16,
                                     .send_depth_max = 256,
                                     .receive_depth_max = 256};
  std::uint64_t next_ = 100;
  std::map<std::uint64_t, std::deque<std::pair<std::uint64_t, fabric::LocalSegment>>> receives_;
  std::map<std::uint64_t, std::deque<fabric::Completion>> held_;  // sends of silent endpoints
  std::deque<fabric::Completion> completions_;
  std::deque<fabric::Event> events_;
  std::vector<fabric::EndpointId> stuck_;
};

/// Gives a node one scripted fabric, which the test keeps a pointer to.
class ScriptedSource final : public detail::FabricSource {
 public:
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    auto made = std::make_unique<ScriptedFabric>();
    fabric = made.get();
    if (windows) fabric->have_windows();
    return std::unique_ptr<fabric::Fabric>(std::move(made));
  }
  [[nodiscard]] const char* name() const override { return "scripted"; }

  ScriptedFabric* fabric = nullptr;
  bool windows = false;
};

}  // namespace pawl::testing
