// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/ref_counted.h"
#include "pawl/poller.h"

namespace pawl {

/// Lets other threads have a function called on a poller's thread, once for any number of calls of
/// `post` before it begins. Made and destroyed on the poller's thread; the function is not called
/// after that, although a post may still be on its way.
class Wake {
 public:
  /// `name`: a literal, for the names of long turns. The poller outlives the Wake.
  Wake(Poller& poller, const char* name, void (*function)(void*), void* context)
      : state_(make_ref<State>(poller, name, function, context)) {}
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  ~Wake() { state_->function = nullptr; }

  /// Any thread; what it wrote before is seen by the function. Not while the Wake is destroyed.
  void post() noexcept {
    if (state_->posted.exchange(true, std::memory_order_acq_rel)) return;
    state_->retain();
    state_->poller.post(*state_);
  }

 private:
  struct State : RefCounted<State>, Work {
    State(Poller& where, const char* name, void (*what)(void*), void* with)
        : Work(&State::run, name), poller(where), function(what), context(with) {}
    static void run(Work* work) {
      const Ref<State> self = Ref<State>::adopt(static_cast<State*>(work));
      self->posted.exchange(false, std::memory_order_acq_rel);
      if (self->function != nullptr) self->function(self->context);
    }
    Poller& poller;
    void (*function)(void*);
    void* const context;
    std::atomic<bool> posted{false};
  };
  Ref<State> state_;
};

}  // namespace pawl
