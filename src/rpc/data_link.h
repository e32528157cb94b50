// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bulk/puller.h"
#include "fabric/fabric.h"
#include "pawl/timer.h"
#include "rpc/handshake.h"

namespace pawl::rpc {

class Connection;

/// A data endpoint of a connection, from connect or accept to `closed`: carries a hello each way,
/// then READs of one side. Either side sees the other's READs only in its fabric. Poller thread.
class DataLink {
 public:
  DataLink(Connection& connection, DataRole role, std::uint32_t incarnation,
           fabric::EndpointId endpoint);
  ~DataLink();
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;

  /// Posts the receive for the peer's hello. Before accept, or right after connect.
  Status post_receive();
  /// Both fabrics are connected: our hello goes out.
  Status connected(std::uint32_t peer_read_depth);
  /// A completion of this endpoint. A status that is not ok ends the link.
  Status on_completion(const fabric::Completion& completion);

  /// To ERR and to be destroyed; completions come until `closed`.
  void close();

  [[nodiscard]] bool usable() const { return endpoint_.usable; }
  [[nodiscard]] bulk::DataEndpoint& endpoint() { return endpoint_; }
  [[nodiscard]] fabric::EndpointId id() const { return endpoint_.id; }
  [[nodiscard]] DataRole role() const { return role_; }
  [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }

 private:
  Status on_hello(const fabric::Completion& completion);
  static void on_hello_timeout(void* link);

  Connection& connection_;
  const DataRole role_;
  const std::uint32_t incarnation_;
  bulk::DataEndpoint endpoint_;
  Timer hello_timeout_;
  bool connected_ = false;
  bool hello_seen_ = false;
  bool closing_ = false;
};

}  // namespace pawl::rpc
