// SPDX-License-Identifier: Apache-2.0
#include "fabric/verbs/completion_queues.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "fabric/verbs/call_error.h"
#include "fabric/verbs/limits.h"

namespace pawl::fabric::verbs {

CompletionQueues::~CompletionQueues() {
  take_events();  // an event that was not acknowledged would block the destruction
  for (const Queue& queue : queues_) static_cast<void>(device_.calls().destroy_cq(queue.cq));
}

Result<ibv_cq*> CompletionQueues::reserve(std::uint32_t entries) {
  for (Queue& queue : queues_) {
    if (queue.entries - queue.reserved < entries) continue;
    queue.reserved += entries;
    return queue.cq;
  }
  const std::uint32_t most = device_.completion_entries_max();
  if (entries > most || queues_.size() == kCompletionQueuesMax) {
    return Status::with_detail(Code::resource_exhausted,
                               "no completion queue of " + device_.name() + " has room for " +
                                   std::to_string(entries) + " entries; one has at most " +
                                   std::to_string(most) + ", a fabric at most " +
                                   std::to_string(kCompletionQueuesMax) +
                                   ": close connections, or ask for smaller queues");
  }
  Queue made;
  made.entries = std::max(entries, std::min(most, kCompletionQueueEntries));
  made.reserved = entries;
  made.cq = device_.calls().create_cq(device_.context(), static_cast<int>(made.entries), nullptr,
                                      device_.channel());
  if (made.cq == nullptr) {
    return call_error(
        Call::create_cq, errno,
        "a queue of " + std::to_string(made.entries) + " entries at " + device_.name());
  }
  queues_.push_back(made);
  return made.cq;
}

void CompletionQueues::release(ibv_cq* cq, std::uint32_t entries) {
  for (Queue& queue : queues_) {
    if (queue.cq == cq) queue.reserved -= entries;
  }
}

std::size_t CompletionQueues::poll(std::span<ibv_wc> out, ibv_cq*& dead) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < queues_.size() && found < out.size(); ++i) {
    const Queue& queue = queues_[next_];
    next_ = next_ + 1 == queues_.size() ? 0 : next_ + 1;
    const std::span<ibv_wc> room = out.subspan(found);
    const int n = device_.calls().poll_cq(queue.cq, static_cast<int>(room.size()), room.data());
    if (n < 0) {
      dead = queue.cq;
    } else {
      found += static_cast<std::size_t>(n);
    }
  }
  return found;
}

Status CompletionQueues::arm() {
  for (const Queue& queue : queues_) {
    if (const int error = device_.calls().req_notify_cq(queue.cq); error != 0) {
      return call_error(Call::req_notify_cq, error, "a completion queue of " + device_.name());
    }
  }
  return {};
}

void CompletionQueues::take_events() {
  if (queues_.empty()) return;
  ibv_cq* cq = nullptr;
  while (device_.calls().get_cq_event(device_.channel(), &cq) == 0) {
    device_.calls().ack_cq_events(cq, 1);
  }
}

}  // namespace pawl::fabric::verbs
