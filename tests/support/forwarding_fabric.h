// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fabric/fabric.h"

namespace pawl::testing {

/// A fabric in all but what a test's own overrides.
class ForwardingFabric : public fabric::Fabric {
 public:
  explicit ForwardingFabric(std::unique_ptr<fabric::Fabric> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string_view registrar_name() const override {
    return inner_->registrar_name();
  }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory, MemoryKind& kind,
                                       MemoryUse use) override {
    return inner_->register_memory(memory, kind, use);
  }
  Status deregister_memory(MemoryHandle handle) override {
    return inner_->deregister_memory(handle);
  }
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const fabric::Capabilities& capabilities() const override {
    return inner_->capabilities();
  }
  Result<fabric::ListenerId> listen(std::string_view address) override {
    return inner_->listen(address);
  }
  [[nodiscard]] std::string listener_address(fabric::ListenerId listener) const override {
    return inner_->listener_address(listener);
  }
  void close_listener(fabric::ListenerId listener) override { inner_->close_listener(listener); }
  Result<fabric::EndpointId> connect(std::string_view address,
                                     const fabric::EndpointOptions& options,
                                     std::span<const std::byte> hello,
                                     TimePoint deadline) override {
    return inner_->connect(address, options, hello, deadline);
  }
  Status accept(fabric::EndpointId endpoint, const fabric::EndpointOptions& options,
                std::span<const std::byte> hello) override {
    return inner_->accept(endpoint, options, hello);
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
  [[nodiscard]] std::uint64_t next_window_key(fabric::WindowId window) const override {
    return inner_->next_window_key(window);
  }
  Status free_window(fabric::WindowId window) override { return inner_->free_window(window); }
  std::size_t post(fabric::EndpointId endpoint, std::span<const fabric::WorkRequest> chain,
                   Status& why) override {
    return inner_->post(endpoint, chain, why);
  }
  std::size_t poll(TimePoint now, std::span<fabric::Completion> out) override {
    return inner_->poll(now, out);
  }
  [[nodiscard]] std::uint64_t work_done() const override { return inner_->work_done(); }
  bool poll_event(fabric::Event& out) override { return inner_->poll_event(out); }
  [[nodiscard]] TimePoint next_event_time() const override { return inner_->next_event_time(); }
  bool arm() override { return inner_->arm(); }
  [[nodiscard]] int event_fd() const override { return inner_->event_fd(); }
  [[nodiscard]] Resources resources() const override { return inner_->resources(); }

 private:
  const std::unique_ptr<fabric::Fabric> inner_;
};

}  // namespace pawl::testing
