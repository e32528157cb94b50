// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pawl/operation.h"
#include "pawl/poller.h"
#include "rpc/node_core.h"
#include "rpc/server_point.h"

namespace pawl::rpc {

/// What a Server holds: dropped on any thread, it starts the drain on the point's poller.
class ServerHandle {
 public:
  ServerHandle(std::shared_ptr<detail::NodeCore> node, std::shared_ptr<ServerPoint> point)
      : node_(std::move(node)), point_(std::move(point)) {}
  ~ServerHandle();
  ServerHandle(const ServerHandle&) = delete;
  ServerHandle& operator=(const ServerHandle&) = delete;

  Operation<Status> drain();
  /// Drops a point after the code of its own that is running now.
  static void let_go_later(Poller& poller, std::shared_ptr<ServerPoint> point);

 private:
  const std::shared_ptr<detail::NodeCore> node_;
  const std::shared_ptr<ServerPoint> point_;
};

}  // namespace pawl::rpc
