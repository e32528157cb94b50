// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/call_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <utility>

#include "fabric/socket/socket.h"

namespace pawl::fabric::verbs {
namespace {

Code code_of(Call call, int error) {
  switch (error) {
    case ENOMEM:
    case EAGAIN:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      return Code::resource_exhausted;
    case EACCES:
    case EPERM:
      return Code::permission_denied;
    case EBUSY:
      return Code::failed_precondition;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::unimplemented;
    case EFAULT:
      return Code::invalid_argument;
    case ENODEV:
    case ENXIO:
    case EIO:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
      return Code::unavailable;
    default:
      return call == Call::open_device ? Code::unavailable : Code::internal;
  }
}

std::string locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "locked memory may be limited";
  if (limit.rlim_cur == RLIM_INFINITY) return "locked memory is unlimited here";
  return "locked memory is limited to " + std::to_string(limit.rlim_cur) + " bytes";
}

bool no_room(int error) { return error == ENOMEM || error == EAGAIN || error == ENOSPC; }

/// The limit that was probably hit, and what to do; empty where nothing useful is known.
std::string remedy(Call call, int error) {
  switch (call) {
    case Call::get_device_list:
      return "the kernel may have no RDMA: modprobe ib_uverbs";
    case Call::open_device:
      return "this user needs /dev/infiniband/uverbs*; into a container it is passed with "
             "--device=/dev/infiniband";
    case Call::create_comp_channel:
      return "raise nofile: ulimit -n";
    case Call::reg_mr:
      if (no_room(error)) {
        return locked_memory() +
               "; raise it (ulimit -l, LimitMEMLOCK= in systemd, --ulimit memlock=-1 in a "
               "container), or the device's max_mr or translation table is full: a smaller pool "
               "or huge pages need fewer entries";
      }
      if (error == EFAULT) return "not all of the memory is mapped and writable";
      if (error == EINVAL || error == EOPNOTSUPP) {
        return "the device cannot register this kind of memory or these rights";
      }
      return {};
    case Call::reg_dmabuf_mr:
      return "device memory needs Linux 5.12, a driver that takes dma-buf, and an exporter that "
             "pins it";
    case Call::dereg_mr:
      return error == EBUSY ? "a window is bound to it: free the window first" : "";
    case Call::alloc_mw:
      return no_room(error) ? "the device's max_mw is reached: free windows, or use guard verify"
                            : "the device has no type-2 windows: use guard verify";
    case Call::alloc_pd:
    case Call::create_cq:
    case Call::create_qp:
      if (no_room(error)) {
        return "the device's max_pd, max_cq or max_qp is reached, or " + locked_memory() +
               "; close connections, or ask for smaller queues";
      }
      if (error == EINVAL) return "more than the device takes: smaller queues, less inline data";
      return {};
    case Call::modify_qp:
      if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
        return "the peer's address does not answer on the device's network: are both ports in one "
               "subnet, or is there a route?";
      }
      if (error == EINVAL) {
        return "the device refused the path: is the peer's address of the same family and network? "
               "On Alibaba eRDMA: load the driver with compat_mode=Y";
      }
      return {};
    case Call::post_send:
    case Call::post_recv:
      return no_room(error) ? "the device's queue is full" : "";
    case Call::query_device:
    case Call::query_port:
    case Call::dealloc_mw:
    case Call::req_notify_cq:
    case Call::destroy_qp:
      return {};
  }
  return {};
}

}  // namespace

std::string_view call_name(Call call) {
  switch (call) {
    case Call::get_device_list:
      return "ibv_get_device_list";
    case Call::open_device:
      return "ibv_open_device";
    case Call::query_device:
      return "ibv_query_device";
    case Call::query_port:
      return "ibv_query_port";
    case Call::alloc_pd:
      return "ibv_alloc_pd";
    case Call::reg_mr:
      return "ibv_reg_mr";
    case Call::reg_dmabuf_mr:
      return "ibv_reg_dmabuf_mr";
    case Call::dereg_mr:
      return "ibv_dereg_mr";
    case Call::alloc_mw:
      return "ibv_alloc_mw";
    case Call::dealloc_mw:
      return "ibv_dealloc_mw";
    case Call::create_comp_channel:
      return "ibv_create_comp_channel";
    case Call::create_cq:
      return "ibv_create_cq";
    case Call::req_notify_cq:
      return "ibv_req_notify_cq";
    case Call::create_qp:
      return "ibv_create_qp";
    case Call::modify_qp:
      return "ibv_modify_qp";
    case Call::destroy_qp:
      return "ibv_destroy_qp";
    case Call::post_send:
      return "ibv_post_send";
    case Call::post_recv:
      return "ibv_post_recv";
  }
  return "ibv_?";
}

Status call_error(Call call, int error, std::string_view object) {
  std::string text = std::string(call_name(call)) + ": " + errno_text(error) + ": ";
  text += object;
  const std::string what_to_do = remedy(call, error);
  if (!what_to_do.empty()) text += "; " + what_to_do;
  return Status::with_detail(code_of(call, error), std::move(text), Ran::no, error);
}

}  // namespace pawl::fabric::verbs
