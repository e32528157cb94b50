// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "pawl/status.h"

namespace pawl::fabric::verbs {

/// The calls whose failure a user can do something about, or should at least see by name.
enum class Call : std::uint8_t {
  get_device_list,
  open_device,
  query_device,
  query_port,
  alloc_pd,
  reg_mr,
  reg_dmabuf_mr,
  dereg_mr,
  alloc_mw,
  dealloc_mw,
  create_comp_channel,
  create_cq,
  req_notify_cq,
  create_qp,
  modify_qp,
  destroy_qp,
  post_send,
  post_recv,
};

/// A failed call as a Status: "ibv_reg_mr: Cannot allocate memory (ENOMEM): 1048576 bytes at rxe0;
/// locked memory is limited to 65536 bytes: ulimit -l, LimitMEMLOCK= …". `object` says on what it
/// was called, and with which numbers. The code follows from the errno, which becomes native().
/// Never on a hot path: it allocates and may look up a limit of the process.
Status call_error(Call call, int error, std::string_view object);

/// "ibv_reg_mr".
std::string_view call_name(Call call);

}  // namespace pawl::fabric::verbs
