// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/list.h"
#include "pawl/channel.h"
#include "pawl/timer.h"
#include "rpc/backoff.h"
#include "rpc/client_call.h"
#include "rpc/connection.h"

namespace pawl::rpc {

/// One poller's way to a channel's peer: the connection, the calls that wait for it, and when to
/// try again. Held by the channel and by its calls; its last holder lets it go on its poller.
/// Poller thread, but for construction and release.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  Lane(Engine& engine, const ChannelOptions& options) : engine_(engine), options_(options) {}
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Gives the call a connection: now, or when there is one.
  virtual void submit(ClientCall& call) = 0;
  /// A waiting call waits no more.
  virtual void unlist(ClientCall& call) = 0;
  /// A waiting call's deadline came: ends it with what is known of the connection.
  virtual void explain_wait(ClientCall& call) = 0;
  /// The channel's last handle is gone; calls under way go on.
  virtual void channel_gone() = 0;

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const ChannelOptions& options() const { return options_; }

 protected:
  Engine& engine_;
  const ChannelOptions options_;
};

/// A lane that connects, and connects again, to an address.
class ConnectingLane final : public Lane, public ConnectionOwner, public ListNode<struct LaneTag> {
 public:
  ConnectingLane(Engine& engine, const ChannelOptions& options, std::string target,
                 std::shared_ptr<const Registry> callbacks);
  ~ConnectingLane() override;

  void submit(ClientCall& call) override;
  void unlist(ClientCall& call) override;
  void explain_wait(ClientCall& call) override;
  void channel_gone() override;
  /// The engine ends: so does every call that waits here, and nothing begins any more.
  void shut_down(const Status& why);

  // ConnectionOwner
  void connection_ready(Connection& connection) override;
  void connection_over(Connection& connection, const Status& why) override;
  void connection_going_away(Connection& connection) override;
  void connection_drained(Connection& connection) override;

 private:
  using WaitingList = List<ClientCall, WaitingTag>;

  void connect();
  void connect_later();
  void let_go(Connection& connection);
  static void on_retry(void* lane);
  void fail_waiting(Status why, bool all);

  const std::string target_;
  const std::shared_ptr<const Registry> callbacks_;
  Ref<Connection> connection_;            // connecting or ready
  std::vector<Ref<Connection>> leaving_;  // the peer said GOAWAY; calls under way go on
  WaitingList waiting_;
  std::size_t waiting_count_ = 0;
  Timer retry_;
  Backoff backoff_;
  Status last_error_;
  bool wanted_ = false;  // somebody who does not wait would use a connection
  bool gone_ = false;
  bool ended_ = false;
};

/// A lane over a connection that the peer made: for reverse calls. It ends with the connection.
class ReverseLane final : public Lane {
 public:
  ReverseLane(Engine& engine, const ChannelOptions& options, Ref<Connection> connection);
  ~ReverseLane() override;

  void submit(ClientCall& call) override;
  void unlist(ClientCall&) override {}  // nothing waits here
  void explain_wait(ClientCall& call) override;
  void channel_gone() override {}

 private:
  Ref<Connection> connection_;
};

}  // namespace pawl::rpc
