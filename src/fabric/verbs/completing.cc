// SPDX-License-Identifier: Apache-2.0
// Completions of the device on their way to poll.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "fabric/verbs/fabric_impl.h"

namespace pawl::fabric::verbs {
namespace {

CompletionStatus translate(ibv_wc_status status, WorkQueue queue) {
  if (status == IBV_WC_SUCCESS) return CompletionStatus::success;
  if (status == IBV_WC_WR_FLUSH_ERR) return CompletionStatus::flushed;
  // A receive fails by its own memory or length; some devices give it what they tell the sender.
  if (queue == WorkQueue::receive) return CompletionStatus::local_error;
  switch (status) {
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

const char* opcode_text(Opcode op) {
  switch (op) {
    case Opcode::send:
      return "a message";
    case Opcode::receive:
      return "a receive";
    case Opcode::read:
      return "a READ";
    case Opcode::bind:
      return "a bind";
    case Opcode::invalidate:
      return "an invalidate";
  }
  return "work";
}

}  // namespace

/// Returns how many the device had; at most about `most`.
std::size_t VerbsFabric::poll_queues(std::size_t most) {
  std::array<ibv_wc, kCompletionsAtOnce> wcs;
  std::size_t polled = 0;
  while (polled < most && !dead_) {
    ibv_cq* dead = nullptr;
    const std::size_t n =
        queues_.poll(std::span(wcs).first(std::min(wcs.size(), most - polled)), dead);
    for (std::size_t i = 0; i < n; ++i) complete(wcs[i]);
    if (dead != nullptr) device_failed("a completion queue of it cannot be polled any more");
    if (n == 0) break;
    polled += n;
  }
  work_done_ += polled;
  return polled;
}

// Of a completion that is not a success only wr_id, status, qp_num and vendor_err mean anything.
void VerbsFabric::complete(const ibv_wc& wc) {
  const WorkName name = WorkName::unpack(wc.wr_id);
  const EndpointId id{endpoints_.id_at(name.slot)};
  Endpoint* const endpoint = id ? find_any(id) : nullptr;
  if (endpoint == nullptr || endpoint->gone ||
      WorkName::of(id, name.queue, 0).generation != name.generation) {
    return;  // late: it was completed as flushed
  }
  WorkRing& ring = name.queue == WorkQueue::send ? endpoint->sends : endpoint->receives;
  const std::uint32_t ahead = WorkName::low(name.sequence - ring.first(), kSequenceBits);
  if (ahead >= ring.size()) return;
  const CompletionStatus status = translate(wc.status, name.queue);
  const bool success = status == CompletionStatus::success;
  // The first message shows that the peer is ready, though its word may still be under way.
  if (success && endpoint->state == State::accepting) {
    announce(*endpoint, std::move(endpoint->hello));
  }
  // Silent ones in front are over with it: done, if this one was done.
  const bool done = success && name.queue == WorkQueue::send;
  for (std::uint32_t i = 0; i < ahead; ++i) {
    deliver(*endpoint, ring.pop(), done ? CompletionStatus::success : CompletionStatus::flushed, 0,
            0);
  }
  const Posted posted = ring.pop();
  const bool message = success && name.queue == WorkQueue::receive;
  deliver(*endpoint, posted, status, message ? wc.byte_len : 0,
          static_cast<std::int32_t>(success ? 0 : wc.vendor_err));
  if (success || endpoint->state == State::error) return;
  fail(*endpoint, EndReason::failed,
       Status::with_detail(Code::connection_lost,
                           endpoint->peer + ": " + opcode_text(posted.op) + " ended with " +
                               std::string(completion_status_name(status)) + " (wc status " +
                               std::to_string(wc.status) + ", vendor error " +
                               std::to_string(wc.vendor_err) + ")",
                           Ran::unknown, static_cast<std::int32_t>(wc.status)));
}

void VerbsFabric::deliver(Endpoint& endpoint, const Posted& posted, CompletionStatus status,
                          std::uint32_t bytes, std::int32_t native) {
  if (posted.marker) return;
  --work_requests_;
  if (posted.window) windows_.completed(posted.window, status);
  const Completion completion{.id = posted.id,
                              .endpoint = endpoint.id,
                              .op = posted.op,
                              .status = status,
                              .bytes = bytes,
                              .native = native};
  if (endpoint.announced || status != CompletionStatus::success) {
    ready_.push(completion);
  } else {
    endpoint.held.push_back(completion);
  }
}

/// What the device will not complete any more.
void VerbsFabric::flush_rest(Endpoint& endpoint) {
  for (WorkRing* ring : {&endpoint.sends, &endpoint.receives}) {
    while (!ring->empty()) deliver(endpoint, ring->pop(), CompletionStatus::flushed, 0, 0);
  }
  endpoint.early.clear();
  // The application closed before it took `connected`: it cannot be given a success now.
  for (Completion& completion : endpoint.held) {
    completion.status = CompletionStatus::flushed;
    completion.bytes = 0;
    if (endpoint.closing) ready_.push(completion);
  }
  if (endpoint.closing) endpoint.held.clear();
}

}  // namespace pawl::fabric::verbs
