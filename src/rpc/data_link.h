// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "bulk/puller.h"
#include "fabric/fabric.h"
#include "guard/window_end.h"
#include "pawl/timer.h"
#include "rpc/handshake.h"
#include "rpc/session.h"

namespace pawl::rpc {

class Connection;

/// A data endpoint of a connection, from connect or accept to `closed`: carries a hello each way,
/// then READs of one side. Either side sees the other's READs only in its fabric. With window
/// guards the side that lends sends the messages over it that carry window keys. Poller thread.
class DataLink final : public FrameHandler, public guard::WindowEnd::Host {
 public:
  DataLink(Connection& connection, DataRole role, std::uint32_t incarnation,
           fabric::EndpointId endpoint);
  ~DataLink();
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;

  /// Sizes of such an endpoint. `windows`: window guards were negotiated.
  static fabric::EndpointOptions options(Connection& connection, bool windows);

  /// A device's queues have room for what window guards put on a data endpoint.
  static bool windows_fit(const fabric::Capabilities& device);

  /// Posts the receives. Before accept, or right after connect.
  Status post_receives();
  /// Both fabrics are connected: our hello goes out.
  Status connected(std::uint32_t peer_read_depth);
  /// A completion of this endpoint. A status that is not ok ends the link.
  Status on_completion(const fabric::Completion& completion);

  /// To ERR and to be destroyed; completions come until `closed`. Every lease that was bound to
  /// windows through it has ended.
  void close();
  /// The fabric was destroyed.
  void device_gone();

  [[nodiscard]] bool usable() const { return endpoint_.usable; }
  [[nodiscard]] bulk::DataEndpoint& endpoint() { return endpoint_; }
  [[nodiscard]] fabric::EndpointId id() const { return endpoint_.id; }
  [[nodiscard]] DataRole role() const { return role_; }
  [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }

  // --- with window guards ---------------------------------------------------------------------

  /// nullptr without.
  [[nodiscard]] Session* session() { return session_ ? &*session_ : nullptr; }
  /// Where this side lends; nullptr at the reading end, and without window guards.
  [[nodiscard]] guard::WindowEnd* windows() { return windows_ ? &*windows_ : nullptr; }
  /// A cancel came before its request: `call`, in message `message`, will be refused.
  Status cancelled_early(std::uint64_t call, std::uint32_t message);
  /// True once for a call that was cancelled before it came.
  bool was_cancelled(std::uint64_t call);

 private:
  struct EarlyCancel {
    std::uint64_t call;
    std::uint32_t message;
  };
  static constexpr std::size_t kEarlyCancelsMax = 4096;

  // FrameHandler
  Status admit_frame(const FrameHeader& header) override;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> body) override;
  void on_hint(std::uint64_t hint) override;
  [[nodiscard]] std::uint64_t hint_to_send() const override;
  // WindowEnd::Host
  void break_endpoint(const char* why) override;
  void windows_back() override;
  [[nodiscard]] const std::string& peer_address() const override;

  [[nodiscard]] Hello own_hello() const;
  Status post_hello_receive();
  Status send_hello();
  Status on_message(const fabric::Completion& completion);
  Status on_hello_message(const fabric::Completion& completion);
  Status on_hello(std::span<const std::byte> body);
  void close_when_idle();
  static void on_hello_timeout(void* link);

  Connection& connection_;
  const DataRole role_;
  const std::uint32_t incarnation_;
  bulk::DataEndpoint endpoint_;
  Timer hello_timeout_;
  bool connected_ = false;
  bool hello_seen_ = false;
  bool hello_sent_ = false;  // the peer acknowledged it
  bool closing_ = false;
  bool closed_ = false;
  std::optional<guard::WindowEnd> windows_;
  std::optional<Session> session_;
  detail::FrameVector<EarlyCancel> early_cancels_;
};

}  // namespace pawl::rpc
