// SPDX-License-Identifier: Apache-2.0
#include "rpc/lane.h"

#include <algorithm>
#include <utility>

#include "rpc/engine.h"

namespace pawl::rpc {

ConnectingLane::ConnectingLane(Engine& engine, const ChannelOptions& options, std::string target,
                               std::shared_ptr<const Registry> callbacks)
    : Lane(engine, options),
      target_(std::move(target)),
      callbacks_(std::move(callbacks)),
      backoff_(options.reconnect_backoff_first, options.reconnect_backoff_max) {
  engine.add(*this);
}

ConnectingLane::~ConnectingLane() {
  if (connection_) let_go(*connection_);
  for (const Ref<Connection>& connection : leaving_) let_go(*connection);
}

// One-way calls are over before their messages are with the peer: those still go out.
void ConnectingLane::let_go(Connection& connection) {
  const Status why(Code::cancelled, "the channel was closed");
  connection.forget_owner();
  if (connection.state() != Connection::State::ready || connection.all_sent()) {
    return connection.fail(why);
  }
  engine().fail_after_flush(connection, why);
}

void ConnectingLane::submit(ClientCall& call) {
  if (ended_) return call.no_connection(last_error_);
  const std::size_t calls = waiting_count_ + (connection_ ? connection_->calls() : 0);
  if (calls >= options_.calls_max) {
    return call.no_connection({Code::resource_exhausted,
                               "calls_max calls of this channel wait or are under way: wait for "
                               "some to end, or raise ChannelOptions::calls_max"});
  }
  if (connection_ && connection_->state() == Connection::State::ready) {
    return call.connected(*connection_);
  }
  // Between two attempts the reason of the last one is the answer for who does not want to wait;
  // the next attempt is made all the same.
  if (!call.waits_for_connection() && !connection_ && retry_.armed()) {
    wanted_ = true;
    return call.no_connection(last_error_);
  }
  waiting_.push_back(call);
  ++waiting_count_;
  if (!connection_ && !retry_.armed()) connect();
}

void ConnectingLane::unlist(ClientCall& call) {
  waiting_.remove(call);
  --waiting_count_;
}

void ConnectingLane::connect() {
  Engine& engine = this->engine();
  auto connection = Ref<Connection>::adopt(new Connection(engine, true, callbacks_));
  const Status started = connection->connect(
      target_, *this, engine.poller().now() + options_.connect_timeout, options_.liveness);
  if (started.ok()) {
    connection_ = std::move(connection);
    return;
  }
  last_error_ = started;
  if (started.code() == Code::invalid_argument) {  // no later try can help
    return fail_waiting(started, true);
  }
  connect_later();
}

void ConnectingLane::connect_later() {
  const TimePoint now = engine().poller().now();
  retry_.arm(engine().poller(), now + backoff_.next(now, engine().random()),
             &ConnectingLane::on_retry, this);
  fail_waiting(Status(last_error_), false);
}

void ConnectingLane::on_retry(void* context) {
  auto* self = static_cast<ConnectingLane*>(context);
  const bool wanted = std::exchange(self->wanted_, false) || !self->waiting_.empty();
  if (!self->connection_ && wanted) self->connect();
}

// The calls that do not want to wait, or all. What is told of one may end others.
void ConnectingLane::fail_waiting(Status why, bool all) {
  const std::shared_ptr<Lane> self = shared_from_this();
  const auto next = [&]() -> ClientCall* {
    for (ClientCall& call : waiting_) {
      if (all || !call.waits_for_connection()) return &call;
    }
    return nullptr;
  };
  while (ClientCall* call = next()) call->no_connection(why);
}

void ConnectingLane::explain_wait(ClientCall& call) {
  if (last_error_.ok()) {
    return call.no_connection(Status::with_detail(
        Code::unavailable, "no connection to " + target_ +
                               " within the call's deadline: it is still being made; see that the "
                               "node there runs (Node::run_background)"));
  }
  call.no_connection(Status::with_detail(
      Code::unavailable,
      "no connection within the call's deadline: " + std::string(last_error_.what())));
}

void ConnectingLane::connection_ready(Connection& connection) {
  const std::shared_ptr<Lane> self = shared_from_this();
  backoff_.connected(engine().poller().now());
  last_error_ = Status();
  while (ClientCall* call = waiting_.front()) {
    unlist(*call);
    call->connected(connection);
    if (connection_.get() != &connection) return;
  }
}

void ConnectingLane::connection_over(Connection& connection, const Status& why) {
  if (connection_.get() != &connection) {
    std::erase_if(leaving_, [&](const auto& each) { return each.get() == &connection; });
    return;
  }
  connection_.reset();
  // For a call that comes now the loss is why there is no connection, not how it ended.
  const bool lost = why.code() == Code::connection_lost || why.code() == Code::cancelled;
  last_error_ = Status::with_detail(lost ? Code::unavailable : why.code(), std::string(why.what()));
  if (gone_ || ended_) return;
  const Code code = why.code();
  if (code == Code::invalid_argument || code == Code::unauthenticated ||
      code == Code::unimplemented || (code == Code::protocol_error && !connection.met_peer())) {
    fail_waiting(Status(why), true);  // no later try can help
  }
  connect_later();
}

void ConnectingLane::connection_going_away(Connection& connection) {
  if (connection_.get() != &connection) return;
  leaving_.push_back(std::exchange(connection_, nullptr));
  // New calls get a new connection; this one ends with its last call, by the peer.
}

void ConnectingLane::connection_drained(Connection&) {}

void ConnectingLane::channel_gone() {
  gone_ = true;
  retry_.cancel();
}

// Afterwards any thread may let it go: its timer is armed no more.
void ConnectingLane::shut_down(const Status& why) {
  const std::shared_ptr<Lane> self = shared_from_this();
  ended_ = true;
  last_error_ = why;
  retry_.cancel();
  fail_waiting(why, true);
}

ReverseLane::ReverseLane(Engine& engine, const ChannelOptions& options, Ref<Connection> connection)
    : Lane(engine, options), connection_(std::move(connection)) {}

ReverseLane::~ReverseLane() = default;

void ReverseLane::submit(ClientCall& call) {
  if (connection_->state() == Connection::State::ready) return call.connected(*connection_);
  call.no_connection({Code::unavailable, "the connection that this channel calls back over ended"});
}

void ReverseLane::explain_wait(ClientCall& call) {
  call.no_connection({Code::unavailable, "the connection that this channel calls back over ended"});
}

}  // namespace pawl::rpc
