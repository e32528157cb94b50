// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pawl/channel.h"
#include "pawl/detail/frame_vector.h"
#include "rpc/lane.h"
#include "rpc/node_core.h"
#include "rpc/registry.h"

namespace pawl::detail {

/// What the copies of a Channel share: one lane for each poller that makes calls over it.
class ChannelCore {
 public:
  /// To an address.
  ChannelCore(std::shared_ptr<NodeCore> node, std::string target, const ChannelOptions& options,
              std::shared_ptr<const rpc::Registry> callbacks, Status refused);
  /// Back over a connection, on its poller's thread.
  ChannelCore(std::shared_ptr<NodeCore> node, std::size_t poller, std::shared_ptr<rpc::Lane> lane,
              std::string target);
  /// Any thread: lanes go on their pollers.
  ~ChannelCore();
  ChannelCore(const ChannelCore&) = delete;
  ChannelCore& operator=(const ChannelCore&) = delete;

  [[nodiscard]] NodeCore& node() { return *node_; }
  [[nodiscard]] const std::string& target() const { return target_; }
  /// Why no call can ever be made (its options, the callbacks' registry), else ok.
  [[nodiscard]] const Status& refused() const { return refused_; }
  /// The poller on which a call made here and now is to run.
  [[nodiscard]] std::size_t poller_for_call();
  /// On that poller's thread.
  std::shared_ptr<rpc::Lane> lane(std::size_t poller);

 private:
  std::shared_ptr<NodeCore> node_;
  const std::string target_;
  const ChannelOptions options_;
  const std::shared_ptr<const rpc::Registry> callbacks_;
  const Status refused_;
  bool reverse_ = false;
  std::size_t reverse_poller_ = 0;
  FrameVector<std::shared_ptr<rpc::Lane>> lanes_;  // each touched by its poller only
};

}  // namespace pawl::detail
