// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pawl/operation.h"
#include "pawl/timer.h"
#include "rpc/engine.h"

namespace pawl::detail {
class NodeCore;
}

namespace pawl::rpc {

/// What stands behind a Server: its listener and its connections. Poller 0.
class ServerPoint final : public AcceptPoint {
 public:
  ServerPoint(detail::NodeCore& node, Engine& engine, std::shared_ptr<const Registry> registry)
      : node_(node), engine_(engine), registry_(std::move(registry)) {}
  ~ServerPoint();

  Status listen(std::string_view address);
  [[nodiscard]] const std::string& address() const { return address_; }

  /// Waits for the end of a drain.
  class Waiter {
   public:
    virtual void drained(Status status) = 0;

   protected:
    ~Waiter() = default;
  };
  /// Refuses new connections and calls; ends when the last accepted call and lease are over, or
  /// after drain_grace, whichever is first.
  void drain();
  void wait_drained(Waiter& waiter);
  void forget(Waiter& waiter) { std::erase(waiters_, &waiter); }

  // AcceptPoint
  [[nodiscard]] std::shared_ptr<const Registry> registry() const override { return registry_; }
  [[nodiscard]] Status admit() const override;
  void accepted(Connection& connection) override { connections_.emplace_back(&connection); }
  void connection_ready(Connection&) override {}
  void connection_over(Connection& connection, const Status& why) override;
  void connection_going_away(Connection&) override {}
  void connection_drained(Connection& connection) override;

 private:
  void finish(Status status);
  static void on_grace_over(void* point);

  detail::NodeCore& node_;
  Engine& engine_;
  const std::shared_ptr<const Registry> registry_;
  fabric::ListenerId listener_;
  std::string address_;
  std::vector<Ref<Connection>> connections_;
  bool draining_ = false;
  bool finished_ = false;
  Status result_;
  Timer grace_;
  std::vector<Waiter*> waiters_;
};

}  // namespace pawl::rpc
