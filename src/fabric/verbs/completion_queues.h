// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/verbs/device.h"
#include "pawl/result.h"

namespace pawl::fabric::verbs {

/// The completion queues of one fabric, all on its device's channel. Entries are reserved before a
/// queue pair is made and released after it is destroyed and the queue was polled empty, so that no
/// queue can overrun; another queue is made when those there are have no room. Poller only.
class CompletionQueues {
 public:
  explicit CompletionQueues(const Device& device) : device_(device) {}
  ~CompletionQueues();
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;

  /// The queue that has room for so many more entries.
  Result<ibv_cq*> reserve(std::uint32_t entries);
  void release(ibv_cq* cq, std::uint32_t entries);

  /// Completions of any of them; `dead` is a queue that can no longer be polled.
  std::size_t poll(std::span<ibv_wc> out, ibv_cq*& dead);
  /// The next completion makes the channel's descriptor readable.
  Status arm();
  /// Clears what made it readable.
  void take_events();

 private:
  struct Queue {
    ibv_cq* cq = nullptr;
    std::uint32_t entries = 0;
    std::uint32_t reserved = 0;
  };

  const Device& device_;
  std::vector<Queue> queues_;
  std::size_t next_ = 0;  // to be polled first: each gets its turn
};

}  // namespace pawl::fabric::verbs
