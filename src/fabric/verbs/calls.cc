// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/calls.h"

namespace pawl::fabric::verbs {

namespace {

// Many names of libibverbs are macros or inline functions, which have no address of their own.
constexpr Calls kSystemCalls = {
    .get_device_list = [](int* count) { return ibv_get_device_list(count); },
    .free_device_list = [](ibv_device** list) { ibv_free_device_list(list); },
    .get_device_name = [](ibv_device* device) { return ibv_get_device_name(device); },
    .open_device = [](ibv_device* device) { return ibv_open_device(device); },
    .close_device = [](ibv_context* context) { return ibv_close_device(context); },
    .query_device = [](ibv_context* context,
                       ibv_device_attr* out) { return ibv_query_device(context, out); },
    .query_port = [](ibv_context* context, std::uint8_t port,
                     ibv_port_attr* out) { return ibv_query_port(context, port, out); },
    .query_gid = [](ibv_context* context, std::uint32_t port, std::uint32_t index,
                    ibv_gid_entry* out) { return ibv_query_gid_ex(context, port, index, out, 0); },
    .get_async_event = [](ibv_context* context,
                          ibv_async_event* out) { return ibv_get_async_event(context, out); },
    .ack_async_event = [](ibv_async_event* event) { ibv_ack_async_event(event); },

    .alloc_pd = [](ibv_context* context) { return ibv_alloc_pd(context); },
    .dealloc_pd = [](ibv_pd* pd) { return ibv_dealloc_pd(pd); },
    .reg_mr = [](ibv_pd* pd, void* address, std::size_t length,
                 unsigned access) { return ibv_reg_mr(pd, address, length, access); },
    .reg_dmabuf_mr =
        [](ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
           int access) { return ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access); },
    .dereg_mr = [](ibv_mr* mr) { return ibv_dereg_mr(mr); },
    .alloc_mw = [](ibv_pd* pd) { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); },
    .dealloc_mw = [](ibv_mw* mw) { return ibv_dealloc_mw(mw); },

    .create_comp_channel = [](ibv_context* context) { return ibv_create_comp_channel(context); },
    .destroy_comp_channel =
        [](ibv_comp_channel* channel) { return ibv_destroy_comp_channel(channel); },
    .create_cq =
        [](ibv_context* context, int entries, void* user, ibv_comp_channel* channel) {
          return ibv_create_cq(context, entries, user, channel, 0);
        },
    .destroy_cq = [](ibv_cq* cq) { return ibv_destroy_cq(cq); },
    .poll_cq = [](ibv_cq* cq, int count, ibv_wc* out) { return ibv_poll_cq(cq, count, out); },
    .req_notify_cq = [](ibv_cq* cq) { return ibv_req_notify_cq(cq, 0); },
    .get_cq_event =
        [](ibv_comp_channel* channel, ibv_cq** cq) {
          void* user = nullptr;
          return ibv_get_cq_event(channel, cq, &user);
        },
    .ack_cq_events = [](ibv_cq* cq, unsigned count) { ibv_ack_cq_events(cq, count); },

    .create_qp = [](ibv_pd* pd,
                    ibv_qp_init_attr* attributes) { return ibv_create_qp(pd, attributes); },
    .modify_qp = [](ibv_qp* qp, ibv_qp_attr* attributes,
                    int mask) { return ibv_modify_qp(qp, attributes, mask); },
    .destroy_qp = [](ibv_qp* qp) { return ibv_destroy_qp(qp); },
    .post_send = [](ibv_qp* qp, ibv_send_wr* first,
                    ibv_send_wr** bad) { return ibv_post_send(qp, first, bad); },
    .post_recv = [](ibv_qp* qp, ibv_recv_wr* first,
                    ibv_recv_wr** bad) { return ibv_post_recv(qp, first, bad); },
};

}  // namespace

const Calls& system_calls() { return kSystemCalls; }

}  // namespace pawl::fabric::verbs
