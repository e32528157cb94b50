// SPDX-License-Identifier: Apache-2.0
#include "verbs/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pawl::fabric::verbs {
namespace {

FakeVerbs* current = nullptr;

/// The errno with which this call fails now, else 0.
int fault(const char* call) {
  const auto found = current->failing.find(call);
  if (found != current->failing.end()) return errno = found->second;
  ++current->called[call];
  return 0;
}

FakeDevice& device_of(ibv_device* handle) {
  return *std::find_if(current->devices.begin(), current->devices.end(),
                       [&](const FakeDevice& each) { return &each.handle == handle; });
}

FakeVerbs::Cq& cq_of(ibv_cq* cq) {
  return *std::find_if(current->cqs.begin(), current->cqs.end(),
                       [&](const FakeVerbs::Cq& each) { return &each.cq == cq; });
}

FakeQp& qp_of(ibv_qp* qp) {
  return *std::find_if(current->qps.begin(), current->qps.end(),
                       [&](const FakeQp& each) { return &each.qp == qp; });
}

template <class T>
T* make(const char* call) {
  if (fault(call) != 0) return nullptr;
  ++current->objects;
  return new T{};
}

template <class T>
int destroy(const char* call, T* object) {
  if (const int error = fault(call); error != 0) return error;
  --current->objects;
  delete object;
  return 0;
}

// --- devices ---------------------------------------------------------------------------------

ibv_device** get_device_list(int* count) {
  if (fault("get_device_list") != 0) return nullptr;
  auto** const list = new ibv_device* [current->devices.size() + 1] {};
  *count = 0;
  for (FakeDevice& device : current->devices) list[(*count)++] = &device.handle;
  return list;
}

ibv_context* open_device(ibv_device* handle) {
  const std::string named = "open_device " + device_of(handle).name;
  if (fault("open_device") != 0 || fault(named.c_str()) != 0) return nullptr;
  ++current->objects;
  FakeVerbs::Context& made = current->contexts.emplace_back();
  made.async.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  made.context.device = handle;
  made.context.async_fd = made.async.get();
  return &made.context;
}

int close_device(ibv_context* context) {
  --current->objects;
  current->contexts.remove_if(
      [&](const FakeVerbs::Context& each) { return &each.context == context; });
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out) {
  if (const int error = fault("query_port"); error != 0) return error;
  *out = device_of(context->device).ports.at(port - 1u).attributes;
  return 0;
}

int query_gid(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out) {
  const std::vector<FakeGid>& gids = device_of(context->device).ports.at(port - 1).gids;
  if (index >= gids.size()) return ENODATA;
  std::memcpy(out->gid.raw, gids[index].gid.data(), sizeof out->gid.raw);
  out->gid_type = gids[index].type;
  out->gid_index = index;
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* out) {
  auto& events = reinterpret_cast<FakeVerbs::Context*>(context)->events;
  if (events.empty()) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(context->async_fd, &count, sizeof count));
    errno = EAGAIN;
    return -1;
  }
  *out = events.front();
  events.pop_front();
  return 0;
}

// --- memory ----------------------------------------------------------------------------------

ibv_mr* reg_mr(ibv_pd*, void* address, std::size_t length, unsigned access) {
  auto* const mr = make<ibv_mr>("reg_mr");
  if (mr == nullptr) return nullptr;
  current->access.push_back(access);
  mr->addr = address;
  mr->length = length;
  mr->lkey = current->next_number++;
  mr->rkey = mr->lkey + 0x1000;
  current->regions.push_back(mr);
  return mr;
}

ibv_mw* alloc_mw(ibv_pd* pd) {
  if (!device_of(pd->context->device).windows) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto* const mw = make<ibv_mw>("alloc_mw");
  if (mw != nullptr) mw->rkey = current->next_number++ << 8;
  return mw;
}

// --- queues ----------------------------------------------------------------------------------

ibv_comp_channel* create_comp_channel(ibv_context*) {
  auto* const channel = make<ibv_comp_channel>("create_comp_channel");
  if (channel != nullptr) channel->fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  return destroy("destroy_comp_channel", channel);
}

ibv_cq* create_cq(ibv_context*, int entries, void*, ibv_comp_channel*) {
  if (fault("create_cq") != 0) return nullptr;
  ++current->objects;
  FakeVerbs::Cq& made = current->cqs.emplace_back();
  made.size = entries;
  return &made.cq;
}

int destroy_cq(ibv_cq*) {  // its entries may be looked at afterwards
  if (const int error = fault("destroy_cq"); error != 0) return error;
  --current->objects;
  return 0;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
  if (fault("poll_cq") != 0) return -1;
  auto& entries = cq_of(cq).entries;
  int n = 0;
  for (; n < count && !entries.empty(); ++n) {
    out[n] = entries.front();
    entries.pop_front();
  }
  return n;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (fault("create_qp") != 0) return nullptr;
  if (attributes->cap.max_inline_data > device_of(pd->context->device).inline_max) {
    errno = EINVAL;
    return nullptr;
  }
  ++current->objects;
  FakeQp& made = current->qps.emplace_back();
  made.cap = attributes->cap;
  made.qp.context = pd->context;
  made.qp.qp_context = attributes->qp_context;
  made.qp.send_cq = attributes->send_cq;
  made.qp.qp_num = current->next_number++;
  return &made.qp;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int) {
  static constexpr const char* kCalls[] = {"modify_qp reset", "modify_qp init", "modify_qp rtr",
                                           "modify_qp rts"};
  FakeQp& fake = qp_of(qp);
  const ibv_qp_state to = attributes->qp_state;
  if (to <= IBV_QPS_RTS) {
    if (const int error = fault(kCalls[to]); error != 0) return error;
  }
  if (to == IBV_QPS_RTR && attributes->ah_attr.is_global != 0) {
    const std::vector<FakeGid>& gids = device_of(qp->context->device).ports.front().gids;
    const std::size_t index = attributes->ah_attr.grh.sgid_index;
    if (index >= gids.size() || gids[index].gid == Gid{}) return ENODATA;
  }
  fake.state = to;
  if (to == IBV_QPS_INIT) fake.init = *attributes;
  if (to == IBV_QPS_RTR) fake.rtr = *attributes;
  if (to == IBV_QPS_RTS) fake.rts = *attributes;
  return 0;
}

int destroy_qp(ibv_qp* qp) {
  if (const int error = fault("destroy_qp"); error != 0) return error;
  --current->objects;
  qp_of(qp).alive = false;
  return 0;
}

template <class Request>
int post(const char* call, std::vector<Request>& posted, Request* first, Request** bad) {
  for (Request* at = first; at != nullptr; at = at->next) {
    const std::string counted = std::string(call) + " " + std::to_string(posted.size());
    if (fault(call) != 0 || fault(counted.c_str()) != 0) {
      *bad = at;
      return errno;
    }
    posted.push_back(*at);
  }
  return 0;
}

constexpr Calls kCalls = {
    .get_device_list = get_device_list,
    .free_device_list = [](ibv_device** list) { delete[] list; },
    .get_device_name = [](ibv_device* handle) { return device_of(handle).name.c_str(); },
    .open_device = open_device,
    .close_device = close_device,
    .query_device =
        [](ibv_context* context, ibv_device_attr* out) {
          if (const int error = fault("query_device"); error != 0) return error;
          *out = device_of(context->device).attributes;
          return 0;
        },
    .query_port = query_port,
    .query_gid = query_gid,
    .get_async_event = get_async_event,
    .ack_async_event = [](ibv_async_event*) {},
    .alloc_pd =
        [](ibv_context* context) {
          auto* const pd = make<ibv_pd>("alloc_pd");
          if (pd != nullptr) pd->context = context;
          return pd;
        },
    .dealloc_pd = [](ibv_pd* pd) { return destroy("dealloc_pd", pd); },
    .reg_mr = reg_mr,
    .reg_dmabuf_mr = [](ibv_pd* pd, std::uint64_t, std::size_t length, std::uint64_t address, int,
                        int access) -> ibv_mr* {
      if (fault("reg_dmabuf_mr") != 0) return nullptr;
      return reg_mr(pd, reinterpret_cast<void*>(address), length, static_cast<unsigned>(access));
    },
    .dereg_mr = [](ibv_mr* mr) { return destroy("dereg_mr", mr); },
    .alloc_mw = alloc_mw,
    .dealloc_mw = [](ibv_mw* mw) { return destroy("dealloc_mw", mw); },
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .poll_cq = poll_cq,
    .req_notify_cq = [](ibv_cq*) { return fault("req_notify_cq"); },
    .get_cq_event =
        [](ibv_comp_channel*, ibv_cq**) {
          errno = EAGAIN;
          return -1;
        },
    .ack_cq_events = [](ibv_cq*, unsigned) {},
    .create_qp = create_qp,
    .modify_qp = modify_qp,
    .destroy_qp = destroy_qp,
    .post_send =
        [](ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
          for (const ibv_send_wr* at = first; at != nullptr; at = at->next) {
            if (at->num_sge > 0) qp_of(qp).local_keys.push_back(at->sg_list->lkey);
          }
          return post("post_send", qp_of(qp).sends, first, bad);
        },
    .post_recv =
        [](ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
          return post("post_recv", qp_of(qp).receives, first, bad);
        },
};

}  // namespace

FakeVerbs::FakeVerbs() { current = this; }
FakeVerbs::~FakeVerbs() { current = nullptr; }

const Calls& FakeVerbs::calls() { return kCalls; }

FakeDevice& FakeVerbs::add_device(const std::string& name, const Gid& gid) {
  FakeDevice& device = devices.emplace_back();
  device.name = name;
  ibv_device_attr& can = device.attributes;
  can.max_qp_wr = 1024;
  can.max_sge = 16;
  can.max_sge_rd = 16;
  can.max_cqe = 4096;
  can.max_qp_rd_atom = 16;
  can.max_qp_init_rd_atom = 16;
  can.phys_port_cnt = 1;
  FakePort port;
  port.attributes.state = IBV_PORT_ACTIVE;
  port.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.attributes.active_mtu = IBV_MTU_4096;
  port.attributes.max_msg_sz = 1 << 23;
  port.attributes.gid_tbl_len = 8;
  port.gids = {{.gid = gid}};
  device.ports.push_back(port);
  return device;
}

FakeQp& FakeVerbs::qp(std::size_t before_last) {
  return *std::next(qps.rbegin(), static_cast<std::ptrdiff_t>(before_last));
}

void FakeVerbs::complete(const FakeQp& qp, std::uint64_t wr_id, ibv_wc_status status,
                         std::uint32_t bytes) {
  ibv_wc wc;
  // Of an error only four fields are valid: the others are whatever was there.
  std::memset(&wc, status == IBV_WC_SUCCESS ? 0 : 0xee, sizeof wc);
  wc.wr_id = wr_id;
  wc.status = status;
  wc.qp_num = qp.qp.qp_num;
  wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x42;
  if (status == IBV_WC_SUCCESS) wc.byte_len = bytes;
  cq_of(qp.qp.send_cq).entries.push_back(wc);
}

void FakeVerbs::flush(FakeQp& qp) {
  for (const ibv_recv_wr& wr : qp.receives) complete(qp, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
  for (const ibv_send_wr& wr : qp.sends) complete(qp, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
}

void FakeVerbs::report(ibv_event_type type, FakeQp* qp) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  if (qp != nullptr) event.element.qp = &qp->qp;
  for (Context& context : contexts) {
    if (qp != nullptr && qp->qp.context != &context.context) continue;
    context.events.push_back(event);
    const std::uint64_t one = 1;
    static_cast<void>(!::write(context.async.get(), &one, sizeof one));
  }
}

}  // namespace pawl::fabric::verbs
