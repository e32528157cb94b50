// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pawl {
class Poller;
}

namespace pawl::detail {

/// What this thread is doing. The only thread-local state of the library.
struct ThreadContext {
  Poller* poller = nullptr;          // the poller whose turn or scope it is
  const void* running = nullptr;     // the task (or foreign coroutine) that runs, if any
  const void* delivering = nullptr;  // innermost callback of an operation that has no poller
};

extern constinit thread_local ThreadContext this_thread;

}  // namespace pawl::detail
