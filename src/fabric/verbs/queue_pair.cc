// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "fabric/verbs/call_error.h"
#include "fabric/verbs/limits.h"

namespace pawl::fabric::verbs {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;

std::string at(const Device& device) {
  return device.name() + " port " + std::to_string(device.port().number);
}

ibv_ah_attr path_to(const Device& device, const Greeting& peer, const GidEntry& source) {
  const Port& port = device.port();
  ibv_ah_attr path{};
  path.port_num = static_cast<std::uint8_t>(port.number);
  path.sl = device.options().service_level;
  path.dlid = peer.lid;
  // Within one InfiniBand subnet the LID is enough.
  const bool same_subnet = std::equal(peer.gid.begin(), peer.gid.begin() + 8, source.gid.begin());
  if (port.ethernet || port.grh_required || !same_subnet || peer.lid == 0) {
    path.is_global = 1;
    std::memcpy(path.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    path.grh.sgid_index = static_cast<std::uint8_t>(source.index);
    path.grh.hop_limit = kHopLimit;
    path.grh.traffic_class = device.options().traffic_class;
  }
  return path;
}

}  // namespace

EndpointOptions clamp_options(const Device& device, const EndpointOptions& options) {
  const Capabilities& can = device.capabilities();
  EndpointOptions out = options;
  out.send_depth = std::clamp(options.send_depth, 1U, can.send_depth_max);
  out.receive_depth = std::clamp(options.receive_depth, 1U, can.receive_depth_max);
  out.read_depth = std::clamp(options.read_depth, 1U, can.read_depth_max);
  return out;
}

std::uint32_t completion_entries(const EndpointOptions& options) {
  return options.send_depth + kMarkers + options.receive_depth;
}

Status QueuePair::create(const Device& device, ibv_cq* cq, const EndpointOptions& options,
                         std::uint64_t user) {
  const Capabilities& can = device.capabilities();
  ibv_qp_init_attr init{};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number that the device gives back
  init.qp_context = reinterpret_cast<void*>(user);
  init.send_cq = init.recv_cq = cq;
  init.cap = {.max_send_wr = options.send_depth + kMarkers,
              .max_recv_wr = options.receive_depth,
              .max_send_sge = can.send_segments_max,
              .max_recv_sge = can.receive_segments_max,
              .max_inline_data = can.inline_bytes_max};
  init.qp_type = IBV_QPT_RC;
  qp_ = device.calls().create_qp(device.pd(), &init);
  if (qp_ == nullptr) {
    return call_error(Call::create_qp, errno,
                      "send depth " + std::to_string(options.send_depth) + ", receive depth " +
                          std::to_string(options.receive_depth) + " at " + at(device));
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = device.options().pkey_index;
  attributes.port_num = static_cast<std::uint8_t>(device.port().number);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  const int error = device.calls().modify_qp(
      qp_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return {};
  static_cast<void>(destroy(device));
  return call_error(Call::modify_qp, error, "to INIT at " + at(device));
}

Status QueuePair::connect(const Device& device, const EndpointOptions& options, const Greeting& own,
                          const Greeting& peer, const GidEntry& source,
                          const std::string& peer_text) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr = path_to(device, peer, source);
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  attributes.dest_qp_num = peer.qp_number;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic =
      static_cast<std::uint8_t>(std::min(own.read_responder, peer.read_initiator));
  attributes.min_rnr_timer = kRnrTimer;
  int error = device.calls().modify_qp(qp_, &attributes,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  const auto where = [&] {
    return " at " + at(device) + " (" + gid_text(source.gid) + ") for " + peer_text + ", whose " +
           "address is " + gid_text(peer.gid);
  };
  if (error != 0) return call_error(Call::modify_qp, error, "to RTR" + where());

  attributes.qp_state = IBV_QPS_RTS;
  const VerbsOptions& times = device.options();
  attributes.timeout = options.bulk ? times.bulk_ack_timeout : times.ack_timeout;
  attributes.retry_cnt = std::min(device.options().retry_count, kRetryMax);
  attributes.rnr_retry = kRnrForEver;
  attributes.sq_psn = own.psn;
  attributes.max_rd_atomic =
      static_cast<std::uint8_t>(std::min(options.read_depth, std::uint32_t{peer.read_responder}));
  error = device.calls().modify_qp(qp_, &attributes,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return call_error(Call::modify_qp, error, "to RTS" + where());
  return {};
}

void QueuePair::to_error(const Device& device) {
  if (qp_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // It fails where the device is gone: then only destroy is left, which comes in any case.
  static_cast<void>(device.calls().modify_qp(qp_, &attributes, IBV_QP_STATE));
}

int QueuePair::destroy(const Device& device) {
  if (qp_ == nullptr) return 0;
  const int error = device.calls().destroy_qp(qp_);
  if (error == 0) qp_ = nullptr;
  return error;
}

Greeting describe(const Device& device, const QueuePair& qp, const EndpointOptions& options,
                  const GidEntry& source) {
  const Port& port = device.port();
  Greeting out;
  out.link_layer = port.ethernet ? LinkLayer::ethernet : LinkLayer::infiniband;
  out.mtu = static_cast<std::uint8_t>(port.mtu);
  out.qp_number = qp.get()->qp_num;
  out.psn = static_cast<std::uint32_t>(random_u64()) & kPsnMask;
  out.read_initiator = static_cast<std::uint16_t>(options.read_depth);
  out.read_responder = static_cast<std::uint16_t>(device.read_responder_max());
  out.lid = port.lid;
  out.gid = source.gid;
  return out;
}

}  // namespace pawl::fabric::verbs
