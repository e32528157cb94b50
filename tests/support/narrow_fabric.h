// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "fabric/check_work.h"
#include "fabric/fabric.h"
#include "rpc/fabric_source.h"

namespace pawl::testing {

/// What a small device has; everything else is that of the fabric beneath.
struct Narrow {
  fabric::Capabilities most{.message_bytes_max = UINT32_MAX,
                            .inline_bytes_max = UINT32_MAX,
                            .send_segments_max = UINT32_MAX,
                            .receive_segments_max = UINT32_MAX,
                            .read_segments_max = UINT32_MAX,
                            .read_bytes_max = UINT32_MAX,
                            .read_depth_max = UINT32_MAX,
                            .send_depth_max = UINT32_MAX,
                            .receive_depth_max = UINT32_MAX};
  std::size_t poll_batch = SIZE_MAX;  ///< completions that one poll returns
};

/// What was seen to happen on it.
struct NarrowCounts {
  std::uint32_t reads_at_once = 0;  ///< on one endpoint
  std::uint32_t sends_at_once = 0;  ///< sends and READs, on one endpoint
  std::uint32_t read_bytes_most = 0;
  std::size_t completions_of_a_poll = 0;
};

/// A fabric of a small device over any other: says so in its capabilities, and holds everybody to
/// them. One thread.
class NarrowFabric final : public fabric::Fabric {
 public:
  NarrowFabric(std::unique_ptr<Fabric> inner, const Narrow& narrow, NarrowCounts& counts)
      : inner_(std::move(inner)),
        capabilities_(inner_->capabilities()),
        poll_batch_(narrow.poll_batch),
        counts_(counts) {
    const auto lower = [](std::uint32_t& mine, std::uint32_t most) { mine = std::min(mine, most); };
    lower(capabilities_.message_bytes_max, narrow.most.message_bytes_max);
    lower(capabilities_.inline_bytes_max, narrow.most.inline_bytes_max);
    lower(capabilities_.send_segments_max, narrow.most.send_segments_max);
    lower(capabilities_.receive_segments_max, narrow.most.receive_segments_max);
    lower(capabilities_.read_segments_max, narrow.most.read_segments_max);
    lower(capabilities_.read_bytes_max, narrow.most.read_bytes_max);
    lower(capabilities_.read_depth_max, narrow.most.read_depth_max);
    lower(capabilities_.send_depth_max, narrow.most.send_depth_max);
    lower(capabilities_.receive_depth_max, narrow.most.receive_depth_max);
  }

  std::string_view registrar_name() const override { return inner_->registrar_name(); }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override {
    return inner_->register_memory(memory, kind, use);
  }
  Status deregister_memory(MemoryHandle handle) override {
    return inner_->deregister_memory(handle);
  }
  std::string_view name() const override { return inner_->name(); }
  const fabric::Capabilities& capabilities() const override { return capabilities_; }
  Result<fabric::ListenerId> listen(std::string_view address) override {
    return inner_->listen(address);
  }
  std::string listener_address(fabric::ListenerId listener) const override {
    return inner_->listener_address(listener);
  }
  void close_listener(fabric::ListenerId listener) override { inner_->close_listener(listener); }
  Result<fabric::EndpointId> connect(std::string_view address,
                                     const fabric::EndpointOptions& options,
                                     std::span<const std::byte> hello,
                                     TimePoint deadline) override {
    return inner_->connect(address, clamped(options), hello, deadline);
  }
  Status accept(fabric::EndpointId endpoint, const fabric::EndpointOptions& options,
                std::span<const std::byte> hello) override {
    return inner_->accept(endpoint, clamped(options), hello);
  }
  void reject(fabric::EndpointId endpoint, std::span<const std::byte> hello) override {
    inner_->reject(endpoint, hello);
  }
  void set_error(fabric::EndpointId endpoint) override { inner_->set_error(endpoint); }
  void close(fabric::EndpointId endpoint) override { inner_->close(endpoint); }
  void close_group(fabric::PeerGroup group) override { inner_->close_group(group); }
  Result<fabric::RemoteAddress> expose(fabric::PeerGroup group, MemoryHandle memory,
                                       std::byte* base, std::uint64_t length) override {
    return inner_->expose(group, memory, base, length);
  }
  Result<fabric::WindowId> allocate_window() override { return inner_->allocate_window(); }
  std::uint64_t next_window_key(fabric::WindowId window) const override {
    return inner_->next_window_key(window);
  }
  Status free_window(fabric::WindowId window) override { return inner_->free_window(window); }

  std::size_t post(fabric::EndpointId endpoint, std::span<const fabric::WorkRequest> chain,
                   Status& why) override {
    Status refused;
    std::size_t good = 0;
    while (good < chain.size() && refused.ok()) {
      refused = check_work(capabilities_, chain[good]);
      if (refused.ok()) ++good;
    }
    const std::size_t posted = inner_->post(endpoint, chain.first(good), why);
    if (posted == good && !refused.ok()) why = refused;
    for (const fabric::WorkRequest& request : chain.first(posted)) count(endpoint, request);
    return posted;
  }
  std::size_t poll(TimePoint now, std::span<fabric::Completion> out) override {
    const std::size_t got = inner_->poll(now, out.first(std::min(out.size(), poll_batch_)));
    for (const fabric::Completion& completion : out.first(got)) {
      InUse& use = in_use_[completion.endpoint.value];
      if (completion.op == fabric::Opcode::read) --use.reads;
      if (completion.op != fabric::Opcode::receive) --use.sends;
    }
    counts_.completions_of_a_poll = std::max(counts_.completions_of_a_poll, got);
    return got;
  }
  std::uint64_t work_done() const override { return inner_->work_done(); }
  bool poll_event(fabric::Event& out) override { return inner_->poll_event(out); }
  TimePoint next_event_time() const override { return inner_->next_event_time(); }
  bool arm() override { return inner_->arm(); }
  int event_fd() const override { return inner_->event_fd(); }
  Resources resources() const override { return inner_->resources(); }

 private:
  struct InUse {
    std::uint32_t reads = 0, sends = 0;
  };

  fabric::EndpointOptions clamped(fabric::EndpointOptions options) const {
    options.send_depth = std::min(options.send_depth, capabilities_.send_depth_max);
    options.receive_depth = std::min(options.receive_depth, capabilities_.receive_depth_max);
    options.read_depth = std::min(options.read_depth, capabilities_.read_depth_max);
    return options;
  }
  void count(fabric::EndpointId endpoint, const fabric::WorkRequest& request) {
    if (request.op == fabric::Opcode::receive) return;
    InUse& use = in_use_[endpoint.value];
    counts_.sends_at_once = std::max(counts_.sends_at_once, ++use.sends);
    if (request.op != fabric::Opcode::read) return;
    counts_.reads_at_once = std::max(counts_.reads_at_once, ++use.reads);
    std::uint32_t bytes = 0;
    for (const fabric::LocalSegment& segment : request.local) bytes += segment.length;
    counts_.read_bytes_most = std::max(counts_.read_bytes_most, bytes);
  }

  const std::unique_ptr<Fabric> inner_;
  fabric::Capabilities capabilities_;
  const std::size_t poll_batch_;
  NarrowCounts& counts_;
  std::map<std::uint64_t, InUse> in_use_;  // by endpoint
};

/// Makes them.
class NarrowSource final : public detail::FabricSource {
 public:
  using Make = std::function<Result<std::unique_ptr<fabric::Fabric>>()>;
  NarrowSource(Make make, const Narrow& narrow) : make_(std::move(make)), narrow_(narrow) {}

  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    Result<std::unique_ptr<fabric::Fabric>> inner = make_();
    if (!inner.ok()) return inner;
    return std::unique_ptr<fabric::Fabric>(
        std::make_unique<NarrowFabric>(*std::move(inner), narrow_, counts_));
  }
  [[nodiscard]] const char* name() const override { return "narrow"; }
  [[nodiscard]] const Narrow& narrow() const { return narrow_; }
  /// While the node does not run.
  [[nodiscard]] const NarrowCounts& counts() const { return counts_; }

 private:
  const Make make_;
  const Narrow narrow_;
  NarrowCounts counts_;
};

}  // namespace pawl::testing
