// SPDX-License-Identifier: Apache-2.0
#include "runtime/poller_kernel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"

namespace pawl {
namespace {

constexpr std::size_t kEventsPerWait = 128;

epoll_event event_for(void* what, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = what;
  return event;
}

}  // namespace

Poller::Kernel::Kernel()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  PAWL_CHECK(epoll_ && event_ && timer_,
             "no descriptors for a poller: raise the limit of open files (ulimit -n)");
  epoll_event event = event_for(&event_, EPOLLIN);
  PAWL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &event) == 0,
             "an eventfd is refused by epoll");
  event = event_for(&timer_, EPOLLIN);
  PAWL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) == 0,
             "a timerfd is refused by epoll");
}

void Poller::Kernel::watch(SourceEntry& entry) {
  epoll_event event = event_for(&entry, EPOLLIN);
  PAWL_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0,
             "the descriptor of a source cannot be waited for: it must be open, support poll, and "
             "belong to one source");
}

void Poller::Kernel::forget(SourceEntry& entry) {
  // Fails if the source closed its descriptor early; then the kernel has forgotten it already.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry.fd, nullptr);
}

void Poller::Kernel::set_muted(SourceEntry& entry, bool muted) {
  entry.muted = muted;
  entry.fruitless_wakes = 0;
  epoll_event event = event_for(&entry, muted ? EPOLLIN | EPOLLET : EPOLLIN);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry.fd, &event);
}

void Poller::Kernel::set_timer(TimePoint next, TimePoint now) {
  if (next == timer_set_) return;
  timer_set_ = next;
  itimerspec when{};  // zero: off
  if (next != TimePoint::never()) {
    const std::int64_t in_ns = std::max<std::int64_t>((next - now).count(), 1);
    when.it_value.tv_sec = in_ns / 1'000'000'000;
    when.it_value.tv_nsec = in_ns % 1'000'000'000;
  }
  PAWL_CHECK(::timerfd_settime(timer_.get(), 0, &when, nullptr) == 0, "a timerfd cannot be set");
}

std::uint64_t Poller::Kernel::wait(int timeout_ms) {
  std::array<epoll_event, kEventsPerWait> events;
  const int n =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  PAWL_CHECK(n >= 0 || errno == EINTR, "epoll_wait fails");
  std::uint64_t wakes = 0;
  for (int i = 0; i < n; ++i) {
    void* what = events[static_cast<std::size_t>(i)].data.ptr;
    if (what == &event_) {
      wakes += take_wakes();
    } else if (what == &timer_) {
      std::uint64_t expirations = 0;
      [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof(expirations));
      timer_set_ = TimePoint::never();
    } else {
      static_cast<SourceEntry*>(what)->reported = true;
    }
  }
  return wakes;
}

void Poller::Kernel::wake() noexcept {
  const std::uint64_t one = 1;
  while (::write(event_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

std::uint64_t Poller::Kernel::take_wakes() noexcept {
  std::uint64_t wakes = 0;
  if (::read(event_.get(), &wakes, sizeof(wakes)) != ssize_t{sizeof(wakes)}) return 0;
  wakes_expected_ -= static_cast<std::int64_t>(wakes);
  return wakes;
}

void Poller::Kernel::await_wakes() {
  while (wakes_expected_ > 0) {
    pollfd event{event_.get(), POLLIN, 0};
    ::poll(&event, 1, -1);
    take_wakes();
  }
}

}  // namespace pawl
