// SPDX-License-Identifier: Apache-2.0
#include "verbs/pair.h"

#include <poll.h>

namespace pawl::fabric::verbs {

bool VerbsPair::run_until(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000; ++i) {
    clock_.advance(1ms);
    const bool progress_a = a_->turn();
    const bool progress_b = b_->turn();
    if (done()) return true;
    if (progress_a || progress_b) continue;
    // The sockets between the two are real: what is under way needs a moment.
    pollfd fds[] = {{.fd = fabric_a_->event_fd(), .events = POLLIN, .revents = 0},
                    {.fd = fabric_b_->event_fd(), .events = POLLIN, .revents = 0}};
    ::poll(fds, 2, i % 8 == 0 ? 1 : 0);
  }
  return false;
}

void VerbsPair::turns(int count) {
  for (; count > 0; --count) {
    clock_.advance(1ms);
    a_->turn();
    b_->turn();
  }
}

void VerbsPair::connect(const EndpointOptions& options) {
  const std::size_t before = b_->count(EventKind::connect_request);
  at_a_ = fabric_a_->connect(address_, options, {}, clock_.now() + 100s).value();
  ASSERT_TRUE(run_until([&] { return b_->count(EventKind::connect_request) > before; }));
  at_b_ = b_->events(EventKind::connect_request).back()->endpoint;
  ASSERT_TRUE(fabric_b_->accept(at_b_, options, {}).ok());
  ASSERT_TRUE(run_until([&] {
    return a_->event(EventKind::connected, at_a_) != nullptr &&
           b_->event(EventKind::connected, at_b_) != nullptr;
  }));
}

}  // namespace pawl::fabric::verbs
