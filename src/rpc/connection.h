// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/list.h"
#include "base/ref_counted.h"
#include "bulk/lender.h"
#include "bulk/puller.h"
#include "fabric/fabric.h"
#include "pawl/service.h"
#include "pawl/timer.h"
#include "rpc/backoff.h"
#include "rpc/data_link.h"
#include "rpc/handshake.h"
#include "rpc/registry.h"
#include "rpc/session.h"
#include "rpc/wire.h"

namespace pawl::detail {
class ServerCall;
}

namespace pawl::rpc {

using detail::ServerCall;
class ClientCall;
class Connection;
class Engine;

/// Who wants to know what becomes of a connection: a channel's lane or a server. Poller thread.
class ConnectionOwner {
 public:
  virtual void connection_ready(Connection& connection) = 0;
  /// Once; `why` says what ended it, or why it never came about.
  virtual void connection_over(Connection& connection, const Status& why) = 0;
  /// The peer takes no new calls (GOAWAY).
  virtual void connection_going_away(Connection& connection) = 0;
  /// The last call and lease of a draining connection are over.
  virtual void connection_drained(Connection& connection) = 0;

 protected:
  ~ConnectionOwner() = default;
};

/// One connection with a peer, the same object at both ends: calls go both ways over it. It has a
/// control endpoint (messages) and at most one data endpoint for each direction of bulk (READs).
/// Frames and events in, frames and work requests out; nothing here waits. Lives on one poller.
///
/// The end of a connection goes in this order: leases end, nothing more is posted, endpoints go to
/// ERR and are closed, calls fail; the object goes when the fabric said `closed` for the last one
/// and no READ is outstanding.
class Connection final : public RefCounted<Connection>,
                         public FrameHandler,
                         public bulk::LendHost,
                         public bulk::PullHost,
                         public ListNode<struct DirtyTag>,
                         public ListNode<struct StarvedTag>,
                         public ListNode<struct NoWindowsTag>,
                         public ListNode<struct AllTag> {
 public:
  enum class State : std::uint8_t { connecting, ready, over };

  Connection(Engine& engine, bool connecting_side, std::shared_ptr<const Registry> registry);
  ~Connection();

  /// Whether a connection with a peer that offers this can work.
  static Status check_offer(const Handshake& peer, std::uint64_t own_guards);

  // --- life ---------------------------------------------------------------------------------

  /// Connecting side: starts, tells `owner` how it ended.
  Status connect(const std::string& address, ConnectionOwner& owner, TimePoint deadline,
                 Duration liveness);
  /// Accepting side: answers the peer's hello.
  Status accept(fabric::EndpointId endpoint, Handshake hello, std::vector<std::byte> hello_bytes,
                ConnectionOwner& owner);
  void set_peer_address(std::string address) { peer_address_ = std::move(address); }
  /// The owner is going: nobody is told any more.
  void forget_owner() { owner_ = nullptr; }
  /// Refuses new calls of the peer and says so; connection_drained follows.
  void drain();
  /// Ends it now.
  void fail(const Status& why);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool met_peer() const { return !peer_hello_.empty(); }  ///< its handshake was good
  [[nodiscard]] bool going_away() const { return going_away_; }
  [[nodiscard]] bool idle() const;
  [[nodiscard]] const std::string& peer_address() const override { return peer_address_; }
  [[nodiscard]] std::uint64_t peer_incarnation() const { return peer_.incarnation; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] std::uint64_t secret() const { return secret_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] bool guard_negotiated(Guard guard) const {
    return (own_.guards & peer_.guards & guard_bit(guard)) != 0;
  }
  /// Data endpoints carry messages with window keys.
  [[nodiscard]] bool windows_negotiated() const {
    return guard_negotiated(Guard::window) || guard_negotiated(Guard::window_verify);
  }
  /// The data endpoint over which the frame came that is being handled; nullptr: the control one.
  [[nodiscard]] const DataLink* receiving_link() const { return receiving_link_; }
  [[nodiscard]] std::size_t body_bytes_max() const { return session_.body_bytes_max(); }
  /// Calls of ours that wait or are under way.
  [[nodiscard]] std::size_t calls() const { return calls_.size(); }
  [[nodiscard]] bulk::LentList& lent() { return lent_; }

  /// The fabric was destroyed: no completion comes any more. After `fail`.
  void device_gone();
  /// Windows came back: calls that wait for them may go out.
  void serve_windowed();

  // --- what its calls use -------------------------------------------------------------------

  /// Sends a call of ours; it is known under a new id until `remove`.
  std::uint64_t add(ClientCall& call, bool express);
  /// The same for one that lends under a window guard.
  std::uint64_t add_windowed(ClientCall& call, bool express);
  void remove(ClientCall& call);
  void add_response(ServerCall& call, bool express);
  void add_windowed_response(ServerCall& call, bool express);
  void remove(ServerCall& call);
  void count_served_bytes(std::size_t before, std::size_t now) {
    served_bytes_ = served_bytes_ - before + now;
  }

  void send(FrameType type, std::uint64_t call, std::uint16_t attempt,
            std::span<const std::byte> body);
  template <class Body>
  void send_frame(FrameType type, std::uint64_t call, std::uint16_t attempt, const Body& body) {
    std::array<std::byte, 64> bytes;
    send(type, call, attempt, std::span(bytes).first(encode(body, bytes)));
  }
  void send_cancel(std::uint64_t call, std::uint16_t attempt, const Cancel& cancel);
  /// True if memory lent for a call is held until its windows are proven to have ended.
  bool window_held(std::uint64_t call, Operation<Status>& back);
  /// Something was lent to the peer, or will be read from it: opens the data endpoint for it.
  void expect_bulk(DataRole role);
  /// Why the data endpoint of this role is not open; ok while it is, or is opened the first time.
  [[nodiscard]] Status data_trouble(DataRole role) const {
    return data_[static_cast<std::size_t>(role)].trouble;
  }
  [[nodiscard]] DataRole role_we_read() const {
    return connecting_side_ ? DataRole::connecting_side_reads : DataRole::accepting_side_reads;
  }
  [[nodiscard]] DataRole role_peer_reads() const {
    return connecting_side_ ? DataRole::accepting_side_reads : DataRole::connecting_side_reads;
  }

  // --- from the engine ----------------------------------------------------------------------

  void on_completion(const fabric::Completion& completion);
  void on_event(fabric::Event& event);
  /// A data endpoint of this connection wants in; its hello was checked by id and secret.
  void accept_data(fabric::EndpointId endpoint, const Handshake& hello);
  bool flush();
  /// Nothing waits to go out, and the fabric has sent what was posted.
  [[nodiscard]] bool all_sent() const;
  [[nodiscard]] bool starved() const;
  void mark_dirty();

  // --- LendHost, PullHost -------------------------------------------------------------------

  [[nodiscard]] fabric::PeerGroup lend_group() const override { return {id_}; }
  void break_connection(const char* why) override;
  bool release_held(const bulk::LeaseName& name) override;
  bulk::DataEndpoint* reading_endpoint() override;
  bulk::TransferList& transfers() override { return transfers_; }
  [[nodiscard]] flow::PeerId flow_peer() const override { return {id_}; }
  void send_confirm(const bulk::LeaseName& lease, bool release, std::uint64_t call,
                    std::uint16_t attempt) override;
  void send_release(const bulk::LeaseName& lease, std::uint64_t call,
                    std::uint16_t attempt) override;
  void endpoint_lost(bulk::DataEndpoint& endpoint, const Status& why) override;
  [[nodiscard]] Status reading_trouble() const override { return data_trouble(role_we_read()); }

  static constexpr std::uint32_t kServedCallsMax = 65536;  ///< of one peer, not yet over
  /// Requests and replies of one peer's calls that are held here; beyond it requests are shed.
  static constexpr std::size_t kServedBytesMax = std::size_t{64} << 20;
  static constexpr std::size_t kConfirmsUnansweredMax = 4096;

 private:
  friend class DataLink;
  template <class Call>
  using CallMap =
      std::unordered_map<std::uint64_t, Call*, std::hash<std::uint64_t>, std::equal_to<>,
                         detail::FrameAllocator<std::pair<const std::uint64_t, Call*>>>;

  // FrameHandler
  Status admit_frame(const FrameHeader& header) override;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> body) override;
  void on_hint(std::uint64_t hint) override;
  [[nodiscard]] std::uint64_t hint_to_send() const override;

  [[nodiscard]] Status check_guard(const std::optional<LeaseDescriptor>& lease) const;
  [[nodiscard]] Status check_way(const std::optional<LeaseDescriptor>& lease) const;
  Status on_hello(std::span<const std::byte> body);
  Status on_request(const FrameHeader& header, std::span<const std::byte> body);
  Status on_response(const FrameHeader& header, std::span<const std::byte> body);
  Status on_confirm(const FrameHeader& header, std::span<const std::byte> body);
  Status on_confirm_answer(std::span<const std::byte> body);
  Status on_release(std::span<const std::byte> body);
  Status on_cancel(const FrameHeader& header, std::span<const std::byte> body);
  Status on_cancel_ack(const FrameHeader& header, std::span<const std::byte> body);
  Status on_data_lost(std::span<const std::byte> body);

  Status open_session(fabric::EndpointId endpoint);
  static Status refusal_of(const fabric::Event& event);
  void on_connected(fabric::Event& event);
  void on_closed(fabric::EndpointId endpoint);
  void say_hello();
  void check_liveness();
  void arm_liveness();
  void check_drained();
  void acknowledge_goaway();
  void maybe_gone();
  void open_data(DataRole role);
  void retry_data(DataRole role);
  Status on_data_frame(DataLink& link, const FrameHeader& header, std::span<const std::byte> body);
  void queue_windowed(WindowedFrame& frame, bool express);
  void unlist(WindowedFrame& frame);
  void take_back_unsent(DataLink& link);
  void tell_calls(const DataLink& link);
  template <class Fn>
  void for_each_window_end(Fn&& fn);
  void data_link_usable(DataLink& link);
  void data_link_over(DataLink& link, const Status& why);

  DataLink* link_of(fabric::EndpointId endpoint);
  [[nodiscard]] bool needs_data(DataRole role) const;

  Engine& engine_;
  const bool connecting_side_;
  const std::shared_ptr<const Registry> registry_;
  ConnectionOwner* owner_ = nullptr;
  State state_ = State::connecting;
  const std::uint64_t id_;      ///< unique in this process; the fabric's peer group
  const std::uint64_t secret_;  ///< that data endpoints of the peer must show
  std::string target_;          ///< connecting side: what was connected to
  std::string peer_address_;    ///< as the fabric sees the peer
  fabric::EndpointId control_;
  bool control_closed_ = true;
  Handshake own_, peer_;
  std::vector<std::byte> own_hello_, peer_hello_;
  bool hello_seen_ = false;
  bool broken_ = false;
  bool draining_ = false;
  bool going_away_ = false;
  bool goaway_ack_sent_ = false;
  bool goaway_acked_ = false;  // ours, by the peer

  Session session_;
  bulk::LentList lent_;
  bulk::TransferList transfers_;
  CallMap<ClientCall> calls_;
  CallMap<ServerCall> served_;
  std::size_t served_bytes_ = 0;
  std::uint64_t next_call_;
  List<WindowedFrame, WindowedTag> windowed_;  // they wait for windows, or for their data endpoint
  const DataLink* receiving_link_ = nullptr;

  struct DataRoleState {
    std::unique_ptr<DataLink> link;  ///< usable or being opened
    std::uint32_t incarnation = 0;
    Timer retry;
    Backoff backoff{std::chrono::milliseconds(1), std::chrono::seconds(1)};
    Status trouble;  ///< why the last one that was tried did not open
  };
  std::array<DataRoleState, 2> data_;
  std::vector<std::unique_ptr<DataLink>> closing_links_;

  Duration liveness_ = std::chrono::seconds(10);
  Timer liveness_timer_;
  TimePoint last_heard_;
};

}  // namespace pawl::rpc
