// SPDX-License-Identifier: Apache-2.0
#include "verbs_spike.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace pawl::spike {
namespace {

constexpr std::uint32_t kMagic = 0x4c575031;
constexpr int kCqDepth = 4096;
constexpr Duration kDrainMax = 1s;
constexpr Duration kGreetingMax = 30s;

enum Kind : std::uint8_t { kRequest = 1, kAccept, kReject, kReady };
enum Tag : std::uint64_t { kEndpoint, kListener, kChannel, kAsync };

// Which of an endpoint's two queues; the number of a work request in a wr_id:
// endpoint << 24 | queue << 23 | number.
constexpr std::size_t kSend = 0, kReceive = 1;
constexpr std::uint64_t kNumberMask = (1u << 23) - 1;
std::uint64_t wr_id(std::uint64_t endpoint, std::size_t queue, std::uint64_t number) {
  return endpoint << 24 | std::uint64_t{queue} << 23 | (number & kNumberMask);
}

void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

void watch(int epoll, int fd, Tag tag, std::uint64_t id, std::uint32_t what = EPOLLIN) {
  epoll_event event{.events = what, .data = {.u64 = std::uint64_t{tag} << 56 | id}};
  PAWL_CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
                 epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0,
             "epoll takes the descriptor");
}

Result<sockaddr_in> parse(std::string_view text) {
  const std::string address(text);
  const std::size_t colon = address.rfind(':');
  sockaddr_in out{.sin_family = AF_INET};
  if (colon == std::string::npos ||
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &out.sin_addr) != 1) {
    return Status(Code::invalid_argument, "the spike takes a.b.c.d:port");
  }
  out.sin_port = htons(static_cast<std::uint16_t>(atoi(address.c_str() + colon + 1)));
  return out;
}

CompletionStatus translate(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return CompletionStatus::success;
    case IBV_WC_WR_FLUSH_ERR:
      return CompletionStatus::flushed;
    case IBV_WC_MW_BIND_ERR:
      return CompletionStatus::bind_error;
    case IBV_WC_REM_ACCESS_ERR:
      return CompletionStatus::remote_access;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return CompletionStatus::remote_operation;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return CompletionStatus::retry_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return CompletionStatus::receiver_not_ready;
    default:
      return CompletionStatus::local_error;
  }
}

const sockaddr* generic(const sockaddr_in* address) {
  return reinterpret_cast<const sockaddr*>(address);
}

}  // namespace

struct VerbsSpike::Greeting {
  std::uint32_t magic = kMagic;
  std::uint32_t qp_number = 0;
  std::uint32_t psn = 0;
  std::uint32_t hello_bytes = 0;
  std::uint8_t kind = 0;
  std::uint8_t mtu = 0;
  std::uint8_t read_depth = 0;
  std::uint8_t pad = 0;
  ibv_gid gid{};
};

// --- device -----------------------------------------------------------------------------------

VerbsSpike::VerbsSpike(const char* device, SpikeOptions options)
    : options_(options), registrar_name_(std::string("verbs:") + device) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), device) == 0) context_ = ibv_open_device(list[i]);
  }
  if (list != nullptr) ibv_free_device_list(list);
  PAWL_CHECK(context_ != nullptr, "the device exists and opens");
  pd_ = ibv_alloc_pd(context_);
  channel_ = ibv_create_comp_channel(context_);
  cq_ = ibv_create_cq(context_, kCqDepth, nullptr, channel_, 0);
  PAWL_CHECK(pd_ != nullptr && channel_ != nullptr && cq_ != nullptr,
             "protection domain and queue");

  ibv_port_attr port{};
  ibv_device_attr attributes{};
  PAWL_CHECK(ibv_query_port(context_, 1, &port) == 0, "port 1");
  PAWL_CHECK(ibv_query_device(context_, &attributes) == 0, "device attributes");
  mtu_ = port.active_mtu;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(port.gid_tbl_len); ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context_, 1, i, &entry, 0) != 0) continue;
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || entry.gid.raw[10] != 0xff) continue;
    gid_ = entry.gid, gid_index_ = static_cast<int>(i);
    break;
  }
  PAWL_CHECK(gid_index_ >= 0, "a RoCE v2 address");
  capabilities_ = {.message_bytes_max = port.max_msg_sz,
                   .inline_bytes_max = 64,
                   .send_segments_max = 4,
                   .receive_segments_max = 4,
                   .read_segments_max = 4,
                   .read_bytes_max = port.max_msg_sz,
                   .read_depth_max = static_cast<std::uint32_t>(
                       std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom)),
                   .send_depth_max = 1024,
                   .receive_depth_max = 1024,
                   .windows = (attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0
                                  ? WindowSupport::inexact
                                  : WindowSupport::none,
                   .window_calls_block = true,
                   .exact_keys = false};
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  unblock(channel_->fd);
  unblock(context_->async_fd);
  watch(epoll_.get(), channel_->fd, kChannel, 0);
  watch(epoll_.get(), context_->async_fd, kAsync, 0);
}

VerbsSpike::~VerbsSpike() {
  for (auto& [id, window] : windows_) ibv_dealloc_mw(window.mw);
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->qp != nullptr) ibv_destroy_qp(endpoint->qp);
  }
  for (auto& [id, mr] : regions_) ibv_dereg_mr(mr);
  ibv_destroy_cq(cq_);
  ibv_destroy_comp_channel(channel_);
  ibv_dealloc_pd(pd_);
  ibv_close_device(context_);
}

// --- memory -----------------------------------------------------------------------------------

Result<MemoryHandle> VerbsSpike::register_memory(std::span<std::byte> memory, MemoryKind&,
                                                 MemoryUse use) {
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  if (use == MemoryUse::bulk) {
    access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
  } else if (use == MemoryUse::bulk_window_only) {
    access |= IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
  } else if (use == MemoryUse::generation_words) {
    access |= IBV_ACCESS_REMOTE_READ;
  }
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), access);
  if (mr == nullptr) return Status(Code::resource_exhausted, "ibv_reg_mr", Ran::no, errno);
  const std::lock_guard lock(regions_mutex_);
  const std::uint64_t id = regions_.empty() ? 1 : regions_.rbegin()->first + 1;
  regions_.emplace(id, mr);
  return MemoryHandle{id};
}

Status VerbsSpike::deregister_memory(MemoryHandle handle) {
  const std::lock_guard lock(regions_mutex_);
  const auto at = regions_.find(handle.value);
  if (at == regions_.end()) return Status(Code::not_found, "no such registration");
  if (const int rc = ibv_dereg_mr(at->second); rc != 0) {
    return Status(Code::failed_precondition, "a window is bound to the region", Ran::no, rc);
  }
  regions_.erase(at);
  return {};
}

ibv_mr* VerbsSpike::region(MemoryHandle handle) const {
  const std::lock_guard lock(regions_mutex_);
  const auto at = regions_.find(handle.value);
  return at == regions_.end() ? nullptr : at->second;
}

Result<RemoteAddress> VerbsSpike::expose(PeerGroup, MemoryHandle memory, std::byte* base,
                                         std::uint64_t length) {
  const ibv_mr* mr = region(memory);
  if (mr == nullptr) return Status(Code::not_found, "no such registration");
  const auto* start = static_cast<const std::byte*>(mr->addr);
  if (base < start || base + length > start + mr->length) {
    return Status(Code::invalid_argument, "the range is not inside the registration");
  }
  return RemoteAddress{.key = mr->rkey, .address = reinterpret_cast<std::uint64_t>(base)};
}

Result<WindowId> VerbsSpike::allocate_window() {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  if (mw == nullptr) return Status(Code::resource_exhausted, "ibv_alloc_mw", Ran::no, errno);
  windows_[next_id_].mw = mw;
  return WindowId{next_id_++};
}

std::uint64_t VerbsSpike::next_window_key(WindowId window) const {
  const auto at = windows_.find(window.value);
  return at == windows_.end() ? 0 : ibv_inc_rkey(at->second.mw->rkey);
}

Status VerbsSpike::free_window(WindowId window) {
  const auto at = windows_.find(window.value);
  if (at == windows_.end()) return Status(Code::not_found, "no such window");
  const auto through = endpoints_.find(at->second.through);
  if (through != endpoints_.end() && through->second->state != Endpoint::State::error) {
    for (const Posted& posted : through->second->queues[kSend].posted) {
      if (posted.window == window.value) {
        return Status(Code::failed_precondition, "posted work still names the window");
      }
    }
  }
  if (const int rc = ibv_dealloc_mw(at->second.mw); rc != 0) {
    return Status(Code::internal, "ibv_dealloc_mw", Ran::no, rc);
  }
  windows_.erase(at);
  return {};
}

// --- connections ------------------------------------------------------------------------------

Result<ListenerId> VerbsSpike::listen(std::string_view address) {
  Result<sockaddr_in> at = parse(address);
  if (!at) return at.status();
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), generic(&*at), sizeof *at) != 0 || ::listen(fd.get(), 64) != 0) {
    return Status(Code::failed_precondition, "cannot listen there", Ran::no, errno);
  }
  watch(epoll_.get(), fd.get(), kListener, next_id_);
  listeners_.emplace(next_id_, std::move(fd));
  return ListenerId{next_id_++};
}

std::string VerbsSpike::listener_address(ListenerId listener) const {
  sockaddr_in at{};
  socklen_t length = sizeof at;
  char text[INET_ADDRSTRLEN] = "";
  getsockname(listeners_.at(listener.value).get(), reinterpret_cast<sockaddr*>(&at), &length);
  inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(at.sin_port));
}

void VerbsSpike::close_listener(ListenerId listener) { listeners_.erase(listener.value); }

VerbsSpike::Endpoint* VerbsSpike::find(EndpointId id) {
  const auto at = endpoints_.find(id.value);
  return at == endpoints_.end() || at->second->closing ? nullptr : at->second.get();
}

VerbsSpike::Endpoint& VerbsSpike::make_endpoint(Endpoint::State state, UniqueFd socket,
                                                TimePoint deadline) {
  auto made = std::make_unique<Endpoint>();
  made->state = state;
  made->id = next_id_++;
  made->socket = std::move(socket);
  made->deadline = deadline;
  return *(endpoints_[made->id] = std::move(made));
}

// To INIT, where receives can be posted.
Status VerbsSpike::make_qp(Endpoint& endpoint, const EndpointOptions& options) {
  endpoint.options = options;
  endpoint.options.send_depth = std::min(options.send_depth, capabilities_.send_depth_max);
  endpoint.options.receive_depth = std::min(options.receive_depth, capabilities_.receive_depth_max);
  endpoint.options.read_depth = std::min(options.read_depth, capabilities_.read_depth_max);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap = {.max_send_wr = endpoint.options.send_depth + 1,  // and the marker
              .max_recv_wr = endpoint.options.receive_depth,
              .max_send_sge = capabilities_.send_segments_max,
              .max_recv_sge = capabilities_.receive_segments_max,
              .max_inline_data = capabilities_.inline_bytes_max};
  init.qp_type = IBV_QPT_RC;
  endpoint.qp = ibv_create_qp(pd_, &init);
  if (endpoint.qp == nullptr)
    return Status(Code::resource_exhausted, "ibv_create_qp", Ran::no, errno);
  endpoint.psn = static_cast<std::uint32_t>(random()) & 0xffffff;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  const int rc = ibv_modify_qp(
      endpoint.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return rc == 0 ? Status() : Status(Code::internal, "queue pair to INIT", Ran::no, rc);
}

// INIT to RTS.
Status VerbsSpike::connect_qp(Endpoint& endpoint, const Greeting& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(mtu_, static_cast<ibv_mtu>(peer.mtu));
  attr.dest_qp_num = peer.qp_number;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(
      std::min<std::uint32_t>(peer.read_depth, capabilities_.read_depth_max));
  attr.min_rnr_timer = 12;  // 0.64 ms
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  int rc = ibv_modify_qp(endpoint.qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0) return Status(Code::internal, "queue pair to RTR", Ran::no, rc);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = options_.ack_timeout;
  attr.retry_cnt = options_.retry_count;
  attr.rnr_retry = options_.rnr_retry;
  attr.sq_psn = endpoint.psn;
  attr.max_rd_atomic = static_cast<std::uint8_t>(
      std::min<std::uint32_t>(endpoint.options.read_depth, peer.read_depth));
  rc = ibv_modify_qp(endpoint.qp, &attr,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return rc == 0 ? Status() : Status(Code::internal, "queue pair to RTS", Ran::no, rc);
}

Result<EndpointId> VerbsSpike::connect(std::string_view address, const EndpointOptions& options,
                                       std::span<const std::byte> hello, TimePoint deadline) {
  Result<sockaddr_in> at = parse(address);
  if (!at) return at.status();
  if (hello.size() > kHelloBytesMax) return Status(Code::too_large, "hello");
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), generic(&*at), sizeof *at) != 0 && errno != EINPROGRESS) {
    return Status(Code::unavailable, "connect", Ran::no, errno);
  }
  Endpoint& endpoint = make_endpoint(Endpoint::State::connecting, std::move(fd), deadline);
  if (Status made = make_qp(endpoint, options); !made) {
    endpoints_.erase(endpoint.id);
    return made;
  }
  watch(epoll_.get(), endpoint.socket.get(), kEndpoint, endpoint.id, EPOLLIN | EPOLLOUT);
  say(endpoint, kRequest, hello);
  return EndpointId{endpoint.id};
}

Status VerbsSpike::accept(EndpointId id, const EndpointOptions& options,
                          std::span<const std::byte> hello) {
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != Endpoint::State::requested) {
    return Status(Code::not_found, "no such connect request");
  }
  if (hello.size() > kHelloBytesMax) return Status(Code::too_large, "hello");
  Greeting peer;
  std::memcpy(&peer, endpoint->in.data(), sizeof peer);
  if (endpoint->early.size() > options.receive_depth) {
    return Status(Code::resource_exhausted, "more receives were posted than receive_depth");
  }
  if (Status made = make_qp(*endpoint, options); !made) return made;
  for (std::size_t i = 0; i < endpoint->early.size(); ++i) {
    const int rc =
        give_receive(*endpoint, endpoint->queues[kReceive].first + i, endpoint->early[i]);
    if (rc != 0) return Status(Code::internal, "ibv_post_recv", Ran::no, rc);
  }
  endpoint->early.clear();
  if (Status ready = connect_qp(*endpoint, peer); !ready) return ready;
  endpoint->in.clear();
  endpoint->state = Endpoint::State::accepting;
  endpoint->deadline = now_ + kGreetingMax;
  say(*endpoint, kAccept, hello);  // leaves with the next poll
  return {};
}

void VerbsSpike::reject(EndpointId id, std::span<const std::byte> hello) {
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr || endpoint->state != Endpoint::State::requested) return;
  say(*endpoint, kReject, hello.first(std::min(hello.size(), kHelloBytesMax)));
  push_out(*endpoint);
  flush_rest(*endpoint);
  endpoints_.erase(id.value);
}

void VerbsSpike::say(Endpoint& endpoint, std::uint8_t kind, std::span<const std::byte> hello) {
  Greeting greeting{.psn = endpoint.psn,
                    .hello_bytes = static_cast<std::uint32_t>(hello.size()),
                    .kind = kind,
                    .mtu = static_cast<std::uint8_t>(mtu_),
                    .read_depth = static_cast<std::uint8_t>(endpoint.options.read_depth),
                    .gid = gid_};
  if (endpoint.qp != nullptr) greeting.qp_number = endpoint.qp->qp_num;
  const auto bytes = std::as_bytes(std::span(&greeting, 1));
  endpoint.out.insert(endpoint.out.end(), bytes.begin(), bytes.end());
  endpoint.out.insert(endpoint.out.end(), hello.begin(), hello.end());
}

void VerbsSpike::push_out(Endpoint& endpoint) {
  if (endpoint.out.empty() || !endpoint.socket) return;
  const ssize_t sent =
      send(endpoint.socket.get(), endpoint.out.data(), endpoint.out.size(), MSG_NOSIGNAL);
  if (sent > 0) endpoint.out.erase(endpoint.out.begin(), endpoint.out.begin() + sent);
  if (endpoint.out.empty()) {
    watch(epoll_.get(), endpoint.socket.get(), kEndpoint, endpoint.id, EPOLLIN);
  }
}

// Reads greetings; the end of the stream says that the peer's end is gone.
void VerbsSpike::pull_in(Endpoint& endpoint) {
  std::byte buffer[sizeof(Greeting) + kHelloBytesMax];
  const ssize_t got = recv(endpoint.socket.get(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
  if (got <= 0) {
    const int error = got < 0 ? errno : 0;
    endpoint.socket.reset();
    if (endpoint.state == Endpoint::State::greeting) {
      endpoints_.erase(endpoint.id);
    } else if (endpoint.state == Endpoint::State::connected) {
      socket_seen = true;
      endpoint.hung_up = true;
      const bool busy = !endpoint.queues[kSend].posted.empty();
      endpoint.deadline = busy ? now_ + options_.hang_up_grace : now_;
    } else if (endpoint.state != Endpoint::State::error) {
      end(endpoint, EventKind::connect_failed,
          Status(Code::unavailable, "the peer hung up", Ran::no, error));
    }
    return;
  }
  endpoint.in.insert(endpoint.in.end(), buffer, buffer + got);
  if (endpoint.in.size() < sizeof(Greeting)) return;
  Greeting peer;
  std::memcpy(&peer, endpoint.in.data(), sizeof peer);
  if (peer.magic != kMagic || peer.hello_bytes > kHelloBytesMax) {
    end(endpoint, EventKind::connect_failed, Status(Code::protocol_error, "not a greeting"));
    return;
  }
  if (endpoint.in.size() < sizeof peer + peer.hello_bytes) return;
  const auto begin = endpoint.in.begin() + sizeof peer;
  std::vector<std::byte> hello(begin, begin + peer.hello_bytes);
  if (peer.kind != kRequest) endpoint.in.clear();  // accept() wants to read it again
  heard(endpoint, peer, std::move(hello));
}

void VerbsSpike::heard(Endpoint& endpoint, const Greeting& peer, std::vector<std::byte> hello) {
  using State = Endpoint::State;
  if (peer.kind == kRequest && endpoint.state == State::greeting) {
    endpoint.state = State::requested;
    events_.push_back(
        {.kind = EventKind::connect_request, .endpoint = {endpoint.id}, .hello = std::move(hello)});
  } else if (peer.kind == kAccept && endpoint.state == State::connecting) {
    if (Status ready = connect_qp(endpoint, peer); !ready) {
      end(endpoint, EventKind::connect_failed, std::move(ready));
      return;
    }
    say(endpoint, kReady, {});
    push_out(endpoint);
    announce(endpoint, std::move(hello));
  } else if (peer.kind == kReject && endpoint.state == State::connecting) {
    end(endpoint, EventKind::connect_failed, Status(Code::unavailable, "refused by the peer"),
        std::move(hello));
  } else if (peer.kind == kReady && endpoint.state == State::accepting) {
    announce(endpoint, {});
  }
}

void VerbsSpike::announce(Endpoint& endpoint, std::vector<std::byte> hello) {
  endpoint.state = Endpoint::State::connected;
  endpoint.deadline = TimePoint::never();
  events_.push_back(
      {.kind = EventKind::connected, .endpoint = {endpoint.id}, .hello = std::move(hello)});
}

// --- the end ----------------------------------------------------------------------------------

void VerbsSpike::to_error(Endpoint& endpoint) {
  if (endpoint.state == Endpoint::State::error) return;
  const bool had_connection =
      endpoint.state == Endpoint::State::connected || endpoint.state == Endpoint::State::accepting;
  endpoint.state = Endpoint::State::error;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (endpoint.qp != nullptr) ibv_modify_qp(endpoint.qp, &attr, IBV_QP_STATE);
  // Unsignalled work that is done already leaves no trace by itself: a marker behind it does.
  if (had_connection && !endpoint.queues[kSend].posted.empty()) {
    Queue& queue = endpoint.queues[kSend];
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = wr_id(endpoint.id, kSend, queue.first + queue.posted.size());
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(endpoint.qp, &wr, &bad) == 0) queue.posted.push_back({.marker = true});
  }
  // Nothing can arrive at a queue pair that was never connected, and no device need flush it.
  endpoint.deadline = had_connection ? now_ + kDrainMax : now_;
  if (options_.hang_up) endpoint.socket.reset();
}

void VerbsSpike::fail(Endpoint& endpoint, const char* why, int native) {
  if (endpoint.state == Endpoint::State::error) return;
  to_error(endpoint);
  Event event{.kind = EventKind::failed,
              .endpoint = {endpoint.id},
              .status = Status(Code::connection_lost, why, Ran::unknown, native)};
  if (endpoint.announced) {
    events_.push_back(std::move(event));
  } else {
    endpoint.held_failure = std::make_unique<Event>(std::move(event));
  }
}

void VerbsSpike::set_error(EndpointId id) {
  Endpoint* endpoint = find(id);
  if (endpoint != nullptr && endpoint->state == Endpoint::State::connected) to_error(*endpoint);
}

void VerbsSpike::close(EndpointId id) {
  if (Endpoint* endpoint = find(id); endpoint != nullptr) end(*endpoint, EventKind::closed, {});
}

// `kind` comes after the last completion. From here on the id is unknown to calls.
void VerbsSpike::end(Endpoint& endpoint, EventKind kind, Status status,
                     std::vector<std::byte> hello) {
  if (endpoint.closing) return;
  to_error(endpoint);
  endpoint.socket.reset();
  endpoint.closing = true;
  endpoint.last = {.kind = kind,
                   .endpoint = {endpoint.id},
                   .hello = std::move(hello),
                   .status = std::move(status)};
}

void VerbsSpike::flush_rest(Endpoint& endpoint) {
  for (Queue& queue : endpoint.queues) {
    while (!queue.posted.empty()) {
      deliver(endpoint, queue.posted.front(), CompletionStatus::flushed, 0, 0);
      queue.posted.pop_front();
    }
  }
}

void VerbsSpike::expire(Endpoint& endpoint) {
  if (endpoint.hung_up) {
    fail(endpoint, "the peer's end is gone", 0);
  } else if (endpoint.state != Endpoint::State::error) {
    end(endpoint, EventKind::connect_failed, Status(Code::deadline, "no answer in time"));
  }
}

// ERR, drained (or not within the bound), windows freed, destroyed, last completions, last event.
void VerbsSpike::advance_closing() {
  for (auto at = endpoints_.begin(); at != endpoints_.end();) {
    Endpoint& endpoint = *at->second;
    ++at;
    if (!endpoint.closing && now_ >= endpoint.deadline) expire(endpoint);
    if (!endpoint.closing) continue;
    const bool drained =
        endpoint.queues[kSend].posted.empty() && endpoint.queues[kReceive].posted.empty();
    if (!endpoint.gone && (drained || now_ >= endpoint.deadline)) {
      const bool bound = std::any_of(windows_.begin(), windows_.end(), [&](const auto& entry) {
        return entry.second.through == endpoint.id && entry.second.state != Window::State::idle;
      });
      if (bound) continue;
      poll_async();  // an event that was not acknowledged would block the destruction
      const TimePoint before = SteadyClock().now();
      if (endpoint.qp != nullptr) PAWL_CHECK(ibv_destroy_qp(endpoint.qp) == 0, "ibv_destroy_qp");
      last_destroy = SteadyClock().now() - before;
      endpoint.qp = nullptr;
      endpoint.gone = true;
      flush_rest(endpoint);
      ready_.insert(ready_.end(), endpoint.held.begin(), endpoint.held.end());
    }
    if (endpoint.gone && ready_.empty()) {
      events_.push_back(std::move(endpoint.last));
      endpoints_.erase(endpoint.id);
    }
  }
}

// --- work -------------------------------------------------------------------------------------

Status VerbsSpike::check(Endpoint& endpoint, const WorkRequest& work, std::size_t ahead) {
  using State = Endpoint::State;
  const bool receive = work.op == Opcode::receive;
  if (endpoint.state == State::greeting || endpoint.state == State::error ||
      (!receive && endpoint.state != State::connected)) {
    return Status(Code::failed_precondition, "the endpoint does not take this now");
  }
  const Queue& queue = endpoint.queues[receive ? kReceive : kSend];
  const std::uint32_t depth = endpoint.state == State::requested ? capabilities_.receive_depth_max
                              : receive                          ? endpoint.options.receive_depth
                                                                 : endpoint.options.send_depth;
  if (queue.posted.size() + ahead >= depth) {
    return Status(Code::resource_exhausted, "the queue is full");
  }
  if (work.local.size() > capabilities_.send_segments_max)
    return Status(Code::too_large, "segments");
  if (work.op == Opcode::bind || work.op == Opcode::invalidate) {
    const auto at = windows_.find(work.window.value);
    if (at == windows_.end()) return Status(Code::not_found, "no such window");
    const Window& window = at->second;
    const bool bind = work.op == Opcode::bind;
    if (window.state != (bind ? Window::State::idle : Window::State::bound)) {
      return Status(Code::failed_precondition, "the window is bound, or is not");
    }
    if (bind && window.binds == kWindowBindsMax) {
      return Status(Code::failed_precondition, "the window has had all its keys");
    }
  }
  return {};
}

// A run of send-queue work as one chain: one doorbell.
std::size_t VerbsSpike::post_sends(Endpoint& endpoint, std::span<const WorkRequest> chain,
                                   Status& why) {
  std::array<ibv_send_wr, 16> wrs{};
  std::array<std::array<ibv_sge, 4>, 16> sges{};
  std::array<std::uint32_t, 16> old_keys{};
  Queue& queue = endpoint.queues[kSend];
  std::size_t count = 0;
  for (; count < std::min(chain.size(), wrs.size()) && chain[count].op != Opcode::receive;
       ++count) {
    const WorkRequest& work = chain[count];
    why = check(endpoint, work, count);
    if (!why) break;
    ibv_send_wr& wr = wrs[count];
    wr.wr_id = wr_id(endpoint.id, kSend, queue.first + queue.posted.size() + count);
    wr.sg_list = sges[count].data();
    for (const LocalSegment& segment : work.local) {
      const ibv_mr* mr = region(segment.memory);
      sges[count][static_cast<std::size_t>(wr.num_sge++)] = {
          reinterpret_cast<std::uint64_t>(segment.address), segment.length,
          mr != nullptr ? mr->lkey : 0};
    }
    // By itself now and then: a queue full of unsignalled work would never move again.
    const bool signal = work.signalled || ++queue.unsignalled >= endpoint.options.send_depth / 2;
    if (signal) queue.unsignalled = 0;
    wr.send_flags = (signal ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                    (work.fence ? unsigned{IBV_SEND_FENCE} : 0u) |
                    (work.inline_payload ? unsigned{IBV_SEND_INLINE} : 0u);
    if (work.op == Opcode::send) {
      wr.opcode = IBV_WR_SEND;
    } else if (work.op == Opcode::read) {
      wr.opcode = IBV_WR_RDMA_READ;
      wr.wr.rdma = {work.remote.address, static_cast<std::uint32_t>(work.remote.key)};
    } else if (work.op == Opcode::bind) {
      Window& window = windows_.at(work.window.value);
      wr.opcode = IBV_WR_BIND_MW;
      old_keys[count] = window.mw->rkey;
      wr.bind_mw.mw = window.mw;
      wr.bind_mw.rkey = ibv_inc_rkey(window.mw->rkey);
      wr.bind_mw.bind_info = {region(work.bind_target.memory),
                              reinterpret_cast<std::uint64_t>(work.bind_target.address),
                              work.bind_target.length,
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED};
      window.state = Window::State::bound;  // a later one of this chain may invalidate it
      window.through = endpoint.id;
      ++window.binds;
    } else {
      Window& window = windows_.at(work.window.value);
      wr.opcode = IBV_WR_LOCAL_INV;
      wr.invalidate_rkey = window.mw->rkey;
      window.state = Window::State::idle;
    }
    if (count > 0) wrs[count - 1].next = &wr;
  }
  if (count == 0) return 0;
  ibv_send_wr* bad = nullptr;
  std::size_t accepted = count;
  if (const int rc = ibv_post_send(endpoint.qp, wrs.data(), &bad); rc != 0) {
    accepted = static_cast<std::size_t>(bad - wrs.data());
    why = Status(Code::internal, "ibv_post_send", Ran::no, rc);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const WorkRequest& work = chain[i];
    if (i < accepted) {
      queue.posted.push_back({work.id, work.op, work.window.value, false});
      if (work.op == Opcode::bind) windows_.at(work.window.value).mw->rkey = wrs[i].bind_mw.rkey;
    } else if (work.op == Opcode::bind) {
      windows_.at(work.window.value).state = Window::State::idle;
    } else if (work.op == Opcode::invalidate) {
      windows_.at(work.window.value).state = Window::State::bound;
    }
  }
  return accepted;
}

int VerbsSpike::give_receive(Endpoint& endpoint, std::uint64_t number,
                             std::vector<ibv_sge>& segments) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id(endpoint.id, kReceive, number);
  wr.sg_list = segments.data();
  wr.num_sge = static_cast<int>(segments.size());
  return ibv_post_recv(endpoint.qp, &wr, &bad);
}

std::size_t VerbsSpike::post(EndpointId id, std::span<const WorkRequest> chain, Status& why) {
  Endpoint* endpoint = find(id);
  if (endpoint == nullptr) {
    why = Status(Code::failed_precondition, "no such endpoint");
    return 0;
  }
  std::size_t done = 0;
  while (done < chain.size()) {
    const WorkRequest& work = chain[done];
    if (work.op != Opcode::receive) {
      const std::size_t accepted = post_sends(*endpoint, chain.subspan(done), why);
      done += accepted;
      if (accepted == 0 || !why) return done;
      continue;
    }
    if (why = check(*endpoint, work, 0); !why) return done;
    std::vector<ibv_sge> segments;
    for (const LocalSegment& segment : work.local) {
      const ibv_mr* mr = region(segment.memory);
      segments.push_back({reinterpret_cast<std::uint64_t>(segment.address), segment.length,
                          mr != nullptr ? mr->lkey : 0});
    }
    Queue& queue = endpoint->queues[kReceive];
    if (endpoint->state == Endpoint::State::requested) {
      endpoint->early.push_back(std::move(segments));  // the queue's size comes with accept
    } else if (const int rc = give_receive(*endpoint, queue.first + queue.posted.size(), segments);
               rc != 0) {
      why = Status(Code::internal, "ibv_post_recv", Ran::no, rc);
      return done;
    }
    queue.posted.push_back({.id = work.id, .op = work.op});
    ++done;
  }
  return done;
}

void VerbsSpike::deliver(Endpoint& endpoint, const Posted& posted, CompletionStatus status,
                         std::uint32_t bytes, int native) {
  if (posted.marker) return;
  const Completion completion{.id = posted.id,
                              .endpoint = {endpoint.id},
                              .op = posted.op,
                              .status = status,
                              .bytes = bytes,
                              .native = native};
  if (posted.window != 0 && status != CompletionStatus::success) {
    if (const auto at = windows_.find(posted.window); at != windows_.end()) {
      at->second.state = Window::State::unknown;
    }
  }
  if (endpoint.announced || status != CompletionStatus::success) {
    ready_.push_back(completion);
  } else {
    endpoint.held.push_back(completion);
  }
}

void VerbsSpike::complete(const ibv_wc& wc) {
  const auto at = endpoints_.find(wc.wr_id >> 24);
  if (at == endpoints_.end() || at->second->gone) return;  // late: completed as flushed already
  Endpoint& endpoint = *at->second;
  const std::size_t which = (wc.wr_id >> 23 & 1) != 0 ? kReceive : kSend;
  Queue& queue = endpoint.queues[which];
  const CompletionStatus status = translate(wc.status);
  // The first message shows that the peer is ready, though its word on the socket is under way.
  if (endpoint.state == Endpoint::State::accepting && status == CompletionStatus::success) {
    announce(endpoint, {});
  }
  // Unsignalled ones in front end with it: as success only if this one did.
  while ((queue.first & kNumberMask) != (wc.wr_id & kNumberMask)) {
    deliver(endpoint, queue.posted.front(),
            status == CompletionStatus::success ? status : CompletionStatus::flushed, 0, 0);
    queue.posted.pop_front();
    ++queue.first;
  }
  const bool has_bytes = which == kReceive && status == CompletionStatus::success;
  deliver(endpoint, queue.posted.front(), status, has_bytes ? wc.byte_len : 0, wc.status);
  queue.posted.pop_front();
  ++queue.first;
  if (status != CompletionStatus::success) fail(endpoint, ibv_wc_status_str(wc.status), wc.status);
}

// --- turns ------------------------------------------------------------------------------------

void VerbsSpike::poll_cq() {
  std::array<ibv_wc, 32> wcs;
  for (int n = 1; n > 0;) {
    n = ibv_poll_cq(cq_, wcs.size(), wcs.data());
    PAWL_CHECK(n >= 0, "ibv_poll_cq");
    for (int i = 0; i < n; ++i) complete(wcs[static_cast<std::size_t>(i)]);
  }
}

void VerbsSpike::poll_async() {
  ibv_async_event event{};
  while (ibv_get_async_event(context_, &event) == 0) {
    async_events.emplace_back(ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
}

void VerbsSpike::poll_sockets() {
  std::array<epoll_event, 32> ready;
  const int n = epoll_wait(epoll_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t data = ready[static_cast<std::size_t>(i)].data.u64;
    const std::uint64_t id = data & 0xffffffffffffff;
    if (data >> 56 == kListener && listeners_.contains(id)) {
      UniqueFd fd(accept4(listeners_[id].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) continue;
      const int raw = fd.get();
      Endpoint& made = make_endpoint(Endpoint::State::greeting, std::move(fd), now_ + kGreetingMax);
      watch(epoll_.get(), raw, kEndpoint, made.id);
    } else if (data >> 56 == kEndpoint) {
      Endpoint* endpoint = find({id});
      if (endpoint == nullptr) continue;
      push_out(*endpoint);
      pull_in(*endpoint);
    }
  }
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint->state == Endpoint::State::accepting) push_out(*endpoint);
  }
}

std::size_t VerbsSpike::poll(TimePoint now, std::span<Completion> out) {
  now_ = now;
  if (armed_) {
    ibv_cq* which = nullptr;
    void* cookie = nullptr;
    while (ibv_get_cq_event(channel_, &which, &cookie) == 0) ibv_ack_cq_events(which, 1);
    armed_ = false;
  }
  poll_cq();
  poll_sockets();
  poll_async();
  poll_cq();
  std::size_t n = 0;
  for (; n < out.size() && !ready_.empty(); ++n) {
    out[n] = ready_.front();
    ready_.pop_front();
  }
  advance_closing();
  return n;
}

bool VerbsSpike::poll_event(Event& out) {
  if (events_.empty()) return false;
  out = std::move(events_.front());
  events_.pop_front();
  const auto at = endpoints_.find(out.endpoint.value);
  if (out.kind == EventKind::connected && at != endpoints_.end()) {
    Endpoint& endpoint = *at->second;
    endpoint.announced = true;
    ready_.insert(ready_.end(), endpoint.held.begin(), endpoint.held.end());
    endpoint.held.clear();
    if (endpoint.held_failure) events_.push_back(std::move(*endpoint.held_failure));
    endpoint.held_failure.reset();
  }
  return true;
}

TimePoint VerbsSpike::next_event_time() const {
  TimePoint next = TimePoint::never();
  for (const auto& [id, endpoint] : endpoints_) next = std::min(next, endpoint->deadline);
  return next;
}

bool VerbsSpike::arm() {
  PAWL_CHECK(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
  armed_ = true;
  poll_cq();  // what came before the request raises no event
  return ready_.empty() && events_.empty();
}

VerbsSpike::Resources VerbsSpike::resources() const {
  Resources out{.endpoints = endpoints_.size(),
                .listeners = listeners_.size(),
                .windows = windows_.size(),
                .registrations = regions_.size()};
  for (const auto& [id, endpoint] : endpoints_) {
    out.work_requests +=
        endpoint->queues[kSend].posted.size() + endpoint->queues[kReceive].posted.size();
  }
  return out;
}

}  // namespace pawl::spike
