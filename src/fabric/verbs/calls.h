// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace pawl::fabric::verbs {

/// Every call of libibverbs that the fabric makes. The logic knows the device by this table only,
/// so that tests can make each call fail and invent devices. The functions behave as their manual
/// pages say: pointers are nullptr with errno set, numbers are 0 or an errno, unless noted.
struct Calls {
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* out);
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* out);
  int (*query_gid)(ibv_context* context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* out);
  int (*get_async_event)(ibv_context* context, ibv_async_event* out);  ///< 0, or -1 and errno
  void (*ack_async_event)(ibv_async_event* event);

  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t length, unsigned access);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                           int fd, int access);
  int (*dereg_mr)(ibv_mr* mr);
  ibv_mw* (*alloc_mw)(ibv_pd* pd);  ///< type 2; ENOSYS or EOPNOTSUPP where there is none
  int (*dealloc_mw)(ibv_mw* mw);

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel);
  int (*destroy_cq)(ibv_cq* cq);
  int (*poll_cq)(ibv_cq* cq, int count, ibv_wc* out);  ///< how many, or a negative number
  int (*req_notify_cq)(ibv_cq* cq);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq);  ///< 0, or -1 and errno
  void (*ack_cq_events)(ibv_cq* cq, unsigned count);

  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int (*destroy_qp)(ibv_qp* qp);
  int (*post_send)(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
  int (*post_recv)(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);
};

/// Those of libibverbs.
const Calls& system_calls();

}  // namespace pawl::fabric::verbs
