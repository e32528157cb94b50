// SPDX-License-Identifier: Apache-2.0
// Work requests on their way to the device: checks, chains of one doorbell each.
#include <algorithm>
#include <array>
#include <utility>

#include "fabric/check_work.h"
#include "fabric/verbs/call_error.h"
#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {
namespace {

int gather(const WorkRequest& work, ibv_sge* out) {
  int count = 0;
  for (const LocalSegment& segment : work.local) {
    out[count++] = {.addr = reinterpret_cast<std::uint64_t>(segment.address),
                    .length = segment.length,
                    .lkey = Regions::local_key(segment.memory)};
  }
  return count;
}

/// How many of a chain of `count` the device took, by what it says of the first it did not take.
template <class Request>
std::size_t accepted_before(const Request* first, const Request* bad, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (first + i == bad) return i;
  }
  return 0;  // it names none: none is sure
}

}  // namespace

std::size_t VerbsFabric::post(EndpointId id, std::span<const WorkRequest> chain, Status& why) {
  why = Status();
  Endpoint* const endpoint = find(id);
  if (endpoint == nullptr) {
    why = Status(Code::failed_precondition, "post: the endpoint is closed");
    return 0;
  }
  std::size_t accepted = 0;
  while (accepted < chain.size() && why.ok()) {
    const std::span<const WorkRequest> rest = chain.subspan(accepted);
    accepted += rest.front().op == Opcode::receive ? post_receives(*endpoint, rest, why)
                                                   : post_sends(*endpoint, rest, why);
  }
  work_requests_ += accepted;
  return accepted;
}

/// `ahead` requests of the chain come before it in its queue.
Status VerbsFabric::check(const Endpoint& endpoint, const WorkRequest& work,
                          std::size_t ahead) const {
  const State state = endpoint.state;
  const bool receive = work.op == Opcode::receive;
  if (state == State::error || state == State::incoming) {
    return Status(Code::failed_precondition, "post: the endpoint is in ERR or closed");
  }
  if (!receive && (state != State::ready || !endpoint.announced)) {
    return Status(Code::failed_precondition,
                  "post: the endpoint is still connecting and takes receives only");
  }
  // A request to connect has no queue yet; accept compares with the depth that it is given.
  const std::uint32_t receive_depth =
      state == State::asked ? capabilities().receive_depth_max : endpoint.options.receive_depth;
  if (receive ? endpoint.receives.size() + ahead >= receive_depth
              : endpoint.sends.size() + ahead >= endpoint.options.send_depth) {
    return Status(Code::resource_exhausted, "post: the endpoint's queue is full");
  }
  return check_work(capabilities(), work);
}

// --- receives --------------------------------------------------------------------------------

std::size_t VerbsFabric::post_receives(Endpoint& endpoint, std::span<const WorkRequest> chain,
                                       Status& why) {
  std::array<ibv_recv_wr, kChainMax> wrs;
  std::array<std::array<ibv_sge, kSegmentsMax>, kChainMax> segments;
  std::size_t count = 0;
  const std::size_t most = std::min(chain.size(), kChainMax);
  for (; count < most && chain[count].op == Opcode::receive; ++count) {
    why = check(endpoint, chain[count], count);
    if (!why.ok()) break;
    ibv_recv_wr& wr = wrs[count];
    wr = {};
    wr.wr_id =
        WorkName::of(endpoint.id, WorkQueue::receive, endpoint.receives.next() + count).packed();
    wr.sg_list = segments[count].data();
    wr.num_sge = gather(chain[count], segments[count].data());
    if (count > 0) wrs[count - 1].next = &wr;
  }
  if (count == 0) return 0;
  std::size_t accepted = count;
  if (endpoint.state == State::asked) {
    for (std::size_t i = 0; i < count; ++i) {
      endpoint.early.push_back({.segments = segments[i], .count = wrs[i].num_sge});
    }
    const std::size_t needed = endpoint.receives.size() + count;
    if (needed > endpoint.receives.capacity()) {
      endpoint.receives.reserve(static_cast<std::uint32_t>(needed));
    }
  } else {
    ibv_recv_wr* bad = nullptr;
    const int error = device_->calls().post_recv(endpoint.qp.get(), wrs.data(), &bad);
    if (error != 0) {
      accepted = accepted_before(wrs.data(), bad, count);
      why = call_error(Call::post_recv, error, "a receive of " + endpoint.peer);
    }
  }
  for (std::size_t i = 0; i < accepted; ++i) {
    endpoint.receives.push({.id = chain[i].id, .window = {}, .op = Opcode::receive});
  }
  return accepted;
}

// --- the send queue --------------------------------------------------------------------------

Status VerbsFabric::fill(Endpoint& endpoint, const WorkRequest& work, ibv_send_wr& wr,
                         ibv_sge* segments) {
  if (work.fence) wr.send_flags |= IBV_SEND_FENCE;
  switch (work.op) {
    case Opcode::send:
      wr.opcode = IBV_WR_SEND;
      if (work.inline_payload) wr.send_flags |= IBV_SEND_INLINE;
      break;
    case Opcode::read:
      wr.opcode = IBV_WR_RDMA_READ;
      wr.wr.rdma = {.remote_addr = work.remote.address,
                    .rkey = static_cast<std::uint32_t>(work.remote.key)};
      break;
    case Opcode::bind: {
      const LocalSegment& target = work.bind_target;
      Result<ibv_mr*> mr = regions_.to_bind(target);
      if (!mr.ok()) return mr.status();
      wr.bind_mw.bind_info = {.mr = *mr,
                              .addr = reinterpret_cast<std::uint64_t>(target.address),
                              .length = target.length,
                              .mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED};
      return windows_.plan_bind(work.window, endpoint.id, wr);
    }
    case Opcode::invalidate:
      return windows_.plan_invalidate(work.window, endpoint.id, wr);
    case Opcode::receive:
      return Status(Code::internal, "a receive is not for the send queue");
  }
  wr.sg_list = segments;
  wr.num_sge = gather(work, segments);
  return {};
}

std::size_t VerbsFabric::post_sends(Endpoint& endpoint, std::span<const WorkRequest> chain,
                                    Status& why) {
  std::array<ibv_send_wr, kChainMax> wrs;
  std::array<std::array<ibv_sge, kSegmentsMax>, kChainMax> segments;
  std::uint32_t unsignalled = endpoint.unsignalled;
  std::size_t count = 0;
  bool bound = false;
  const std::size_t most = std::min(chain.size(), kChainMax);
  for (; count < most && chain[count].op != Opcode::receive; ++count) {
    const WorkRequest& work = chain[count];
    // The key of a bind is in its window only once the bind was posted, and the next one of that
    // window needs it: one bind a doorbell.
    if (bound && work.op == Opcode::bind) break;
    ibv_send_wr& wr = wrs[count];
    wr = {};
    why = check(endpoint, work, count);
    if (why.ok()) why = fill(endpoint, work, wr, segments[count].data());
    if (!why.ok()) break;
    bound = bound || work.op == Opcode::bind;
    wr.wr_id = WorkName::of(endpoint.id, WorkQueue::send, endpoint.sends.next() + count).packed();
    // By itself now and then: a queue full of silent work would never move again.
    if (work.signalled || ++unsignalled >= std::max(endpoint.options.send_depth / 2, 1U)) {
      wr.send_flags |= IBV_SEND_SIGNALED;
      unsignalled = 0;
    }
    if (count > 0) wrs[count - 1].next = &wr;
  }
  if (count == 0) return 0;
  std::size_t accepted = count;
  ibv_send_wr* bad = nullptr;
  const int error = device_->calls().post_send(endpoint.qp.get(), wrs.data(), &bad);
  if (error != 0) {
    accepted = accepted_before(wrs.data(), bad, count);
    why = call_error(Call::post_send, error, "work for " + endpoint.peer);
  }
  for (std::size_t i = count; i-- > accepted;) {
    const Opcode op = chain[i].op;
    if (op == Opcode::bind || op == Opcode::invalidate) windows_.not_posted(chain[i].window, op);
  }
  for (std::size_t i = 0; i < accepted; ++i) {
    const WorkRequest& work = chain[i];
    const bool names_window = work.op == Opcode::bind || work.op == Opcode::invalidate;
    if (names_window) windows_.posted(work.window, work.op);
    endpoint.sends.push(
        {.id = work.id, .window = names_window ? work.window : WindowId{}, .op = work.op});
    const bool signalled = (wrs[i].send_flags & IBV_SEND_SIGNALED) != 0;
    endpoint.unsignalled = signalled ? 0 : endpoint.unsignalled + 1;
  }
  return accepted;
}

}  // namespace pawl::fabric::verbs
