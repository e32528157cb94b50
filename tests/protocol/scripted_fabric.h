// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
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
/// what arrives and completes. Nothing happens by itself but the completion of sends.
class ScriptedFabric final : public fabric::Fabric {
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
  struct Messages {
    std::uint32_t call = 0, session = 0;
  };
  std::map<std::uint64_t, Messages> messages;  ///< that were sent, by endpoint and class

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
    receives_.clear();
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
    std::erase_if(reads, [&](const Read& read) {
      if (read.endpoint != endpoint) return false;
      complete(read, fabric::CompletionStatus::flushed);
      return true;
    });
    flush_receives(endpoint);
    fabric::Event event;
    event.kind = fabric::EventKind::closed;
    event.endpoint = endpoint;
    events_.push_back(event);
  }
  void close_group(fabric::PeerGroup) override {}
  Result<fabric::RemoteAddress> expose(fabric::PeerGroup, MemoryHandle, std::byte* base,
                                       std::uint64_t) override {
    return fabric::RemoteAddress{7, reinterpret_cast<std::uint64_t>(base)};
  }
  Result<fabric::WindowId> allocate_window() override {
    return Status(Code::unimplemented, "no windows here");
  }
  std::uint64_t next_window_key(fabric::WindowId) const override { return 0; }
  Status free_window(fabric::WindowId) override { return {}; }

  std::size_t post(fabric::EndpointId endpoint, std::span<const fabric::WorkRequest> chain,
                   Status&) override {
    for (const fabric::WorkRequest& request : chain) {
      if (request.op == fabric::Opcode::receive) {
        receives_[endpoint.value].emplace_back(request.id, request.local[0]);
      } else if (request.op == fabric::Opcode::read) {
        reads.push_back(
            {endpoint, request.id, request.remote, {request.local.begin(), request.local.end()}});
      } else {
        take_message(endpoint, {request.local[0].address, request.local[0].length});
        fabric::Completion completion;
        completion.id = request.id;
        completion.endpoint = endpoint;
        completion.op = fabric::Opcode::send;
        completions_.push_back(completion);
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
  void complete(const Read& read, fabric::CompletionStatus status) {
    fabric::Completion completion;
    completion.id = read.id;
    completion.endpoint = read.endpoint;
    completion.op = fabric::Opcode::read;
    completion.status = status;
    completions_.push_back(completion);
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
  std::deque<fabric::Completion> completions_;
  std::deque<fabric::Event> events_;
};

/// Gives a node one scripted fabric, which the test keeps a pointer to.
class ScriptedSource final : public detail::FabricSource {
 public:
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    auto made = std::make_unique<ScriptedFabric>();
    fabric = made.get();
    return std::unique_ptr<fabric::Fabric>(std::move(made));
  }
  [[nodiscard]] const char* name() const override { return "scripted"; }

  ScriptedFabric* fabric = nullptr;
};

}  // namespace pawl::testing
