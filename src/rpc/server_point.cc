// SPDX-License-Identifier: Apache-2.0
#include "rpc/server_point.h"

#include <algorithm>
#include <utility>

#include "rpc/node_core.h"

namespace pawl::rpc {

ServerPoint::~ServerPoint() {
  for (const Ref<Connection>& connection : connections_) connection->forget_owner();
}

Status ServerPoint::listen(std::string_view address) {
  Result<fabric::ListenerId> listener = engine_.listen(address, *this);
  if (!listener.ok()) return listener.status();
  listener_ = *listener;
  address_ = engine_.fabric().listener_address(listener_);
  return {};
}

Status ServerPoint::admit() const {
  if (draining_) return {Code::unavailable, "the server is shutting down"};
  return {};
}

void ServerPoint::connection_over(Connection& connection, const Status&) {
  std::erase_if(connections_, [&](const auto& each) { return each.get() == &connection; });
  if (draining_ && connections_.empty()) finish({});
}

// The last answer and check may still be on their way out: the peer closes, or the grace ends it.
void ServerPoint::connection_drained(Connection& connection) {
  engine_.fail_after_flush(connection, {Code::unavailable, "the server was shut down"});
}

// It listens on: an accepted call may still need a data endpoint, which its caller opens. `admit`
// refuses everybody else.
void ServerPoint::drain() {
  if (draining_) return;
  draining_ = true;
  grace_.arm(engine_.poller(), engine_.poller().now() + engine_.context().options.drain_grace,
             &ServerPoint::on_grace_over, this);
  std::vector<Ref<Connection>> all = connections_;
  for (const Ref<Connection>& connection : all) connection->drain();
  if (connections_.empty()) finish({});
}

void ServerPoint::wait_drained(Waiter& waiter) {
  if (finished_) return waiter.drained(result_);
  waiters_.push_back(&waiter);
}

void ServerPoint::on_grace_over(void* context) {
  auto* self = static_cast<ServerPoint*>(context);
  std::vector<Ref<Connection>> all = std::exchange(self->connections_, {});
  for (const Ref<Connection>& connection : all) {
    connection->forget_owner();
    connection->fail({Code::unavailable, "the server was shut down"});
  }
  if (all.empty()) return self->finish({});
  self->finish(
      {Code::deadline,
       "calls were still running when drain_grace was over, or a peer had not acknowledged "
       "the goaway: they were ended with their connections"});
}

void ServerPoint::finish(Status status) {
  if (std::exchange(finished_, true)) return;
  grace_.cancel();
  if (listener_) engine_.close_listener(listener_);
  result_ = std::move(status);
  for (Waiter* waiter : std::exchange(waiters_, {})) waiter->drained(result_);
  node_.forget(*this);
}

}  // namespace pawl::rpc
