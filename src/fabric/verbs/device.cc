// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/device.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fabric/verbs/call_error.h"
#include "fabric/verbs/limits.h"

namespace pawl::fabric::verbs {
namespace {

void unblock(int fd) { static_cast<void>(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK)); }

/// A limit as a device states it, which may be 0 or negative where it has none to state.
std::uint32_t at_least_one(int stated, std::uint32_t most) {
  return std::clamp(static_cast<std::uint32_t>(std::max(stated, 1)), 1U, most);
}

}  // namespace

Device::Device(const Calls& calls, const VerbsOptions& options, Port port, AddressSource addresses)
    : calls_(calls), options_(options), addresses_(std::move(addresses)), port_(std::move(port)) {}

Result<std::unique_ptr<Device>> Device::open(const Calls& calls, const VerbsOptions& options,
                                             Port port, AddressSource addresses) {
  std::unique_ptr<Device> device(new Device(calls, options, std::move(port), std::move(addresses)));
  if (Status started = device->start(); !started.ok()) return started;
  return device;
}

Device::~Device() {
  if (channel_ != nullptr) static_cast<void>(calls_.destroy_comp_channel(channel_));
  if (pd_ != nullptr) static_cast<void>(calls_.dealloc_pd(pd_));
  if (context_ != nullptr) static_cast<void>(calls_.close_device(context_));
}

Status Device::look_at_port() {
  Port now;
  now.device = port_.device;
  now.number = port_.number;
  const std::string wrong = verbs::look_at_port(calls_, context_, options_, addresses_(), now);
  if (!wrong.empty()) {
    return Status::with_detail(Code::unavailable, "no connection from " + name() + " port " +
                                                      std::to_string(port_.number) + ": " + wrong);
  }
  port_ = std::move(now);
  return {};
}

Status Device::start() {
  context_ = open_by_name(calls_, name());
  if (context_ == nullptr) return call_error(Call::open_device, errno, name());
  if (const int error = calls_.query_device(context_, &attributes_); error != 0) {
    return call_error(Call::query_device, error, name());
  }
  pd_ = calls_.alloc_pd(context_);
  if (pd_ == nullptr) return call_error(Call::alloc_pd, errno, "a protection domain at " + name());
  channel_ = calls_.create_comp_channel(context_);
  if (channel_ == nullptr) return call_error(Call::create_comp_channel, errno, name());
  unblock(channel_->fd);
  unblock(context_->async_fd);

  const std::uint32_t segments = at_least_one(attributes_.max_sge, kSegmentsMax);
  capabilities_ = {
      .message_bytes_max = port_.message_bytes_max,
      .inline_bytes_max = kInlineBytes,
      .send_segments_max = segments,
      .receive_segments_max = segments,
      .read_segments_max = std::min(segments, at_least_one(attributes_.max_sge_rd, kSegmentsMax)),
      .read_bytes_max = port_.message_bytes_max,
      .read_depth_max = at_least_one(
          std::min(attributes_.max_qp_rd_atom, attributes_.max_qp_init_rd_atom), kReadDepthMax),
      .send_depth_max =
          at_least_one(attributes_.max_qp_wr - static_cast<int>(kMarkers), kSendDepthMax),
      .receive_depth_max = at_least_one(attributes_.max_qp_wr, kReceiveDepthMax),
      .window_calls_block = true,
      .exact_keys = false};
  read_responder_max_ = at_least_one(attributes_.max_qp_rd_atom, kReadDepthMax);
  if (Status probed = probe_queue_pair(); !probed.ok()) return probed;
  probe_windows();
  return {};
}

// What a queue pair can have at once is not stated anywhere: inline data takes the place of
// segments on some devices, and others have none.
Status Device::probe_queue_pair() {
  ibv_cq* const cq = calls_.create_cq(context_, 2, nullptr, nullptr);
  if (cq == nullptr) return call_error(Call::create_cq, errno, "a queue of 2 at " + name());
  int error = 0;
  for (const std::uint32_t inline_bytes : {kInlineBytes, kInlineBytes / 2, 0U}) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = capabilities_.send_segments_max,
                .max_recv_sge = capabilities_.receive_segments_max,
                .max_inline_data = inline_bytes};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = calls_.create_qp(pd_, &init);
    if (qp == nullptr) {
      error = errno;
      continue;
    }
    error = calls_.destroy_qp(qp);
    capabilities_.inline_bytes_max = inline_bytes;
    break;
  }
  static_cast<void>(calls_.destroy_cq(cq));
  return error == 0 ? Status()
                    : call_error(Call::create_qp, error, "a queue pair for a trial at " + name());
}

// Flags and limits are wrong on too many devices: one window is allocated. That a device has them
// says nothing about how exactly it revokes, which no trial can show.
void Device::probe_windows() {
  ibv_mw* const mw = calls_.alloc_mw(pd_);
  if (mw == nullptr) return;
  static_cast<void>(calls_.dealloc_mw(mw));
  capabilities_.windows = WindowSupport::inexact;
}

}  // namespace pawl::fabric::verbs
