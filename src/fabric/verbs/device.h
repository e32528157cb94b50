// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "fabric/fabric.h"
#include "fabric/verbs/calls.h"
#include "fabric/verbs/discovery.h"
#include "fabric/verbs/verbs_fabric.h"
#include "pawl/result.h"

namespace pawl::fabric::verbs {

/// An open device with one of its ports: what all parts of a fabric share. It outlives everything
/// that is made from it. Any thread, but for its port, which is the poller's.
class Device {
 public:
  /// Opens it and finds out what it can: limits as the driver states them, and by trying where
  /// statements are known to be wrong (inline data, windows).
  static Result<std::unique_ptr<Device>> open(const Calls& calls, const VerbsOptions& options,
                                              Port port, AddressSource addresses);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Calls& calls() const { return calls_; }
  [[nodiscard]] const VerbsOptions& options() const { return options_; }
  [[nodiscard]] const Port& port() const { return port_; }
  /// Finds out what the port is like now: an address may have moved in its table, which is how a
  /// queue pair names it, or be another. On an error (it is down, has no address) it stays as it
  /// was known.
  Status look_at_port();
  [[nodiscard]] const std::string& name() const { return port_.device; }
  [[nodiscard]] const Capabilities& capabilities() const { return capabilities_; }
  /// READs outstanding that one endpoint of ours can serve.
  [[nodiscard]] std::uint32_t read_responder_max() const { return read_responder_max_; }
  [[nodiscard]] std::uint32_t completion_entries_max() const {
    return static_cast<std::uint32_t>(attributes_.max_cqe);
  }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_; }

 private:
  Device(const Calls& calls, const VerbsOptions& options, Port port, AddressSource addresses);
  Status start();
  Status probe_queue_pair();
  void probe_windows();

  const Calls& calls_;
  const VerbsOptions options_;
  const AddressSource addresses_;
  Port port_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_device_attr attributes_{};
  std::uint32_t read_responder_max_ = 1;
  Capabilities capabilities_;
};

}  // namespace pawl::fabric::verbs
