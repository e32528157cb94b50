// SPDX-License-Identifier: Apache-2.0
#include "memory/small_mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pawl::memory {

namespace {

constexpr int kSpinRounds = 64;  // a critical section here is some tens of nanoseconds long

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace

void SmallMutex::lock_contended() noexcept {
  for (int i = 0; i < kSpinRounds; ++i) {
    if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    pause_cpu();
  }
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
    ::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kContended, nullptr, nullptr, 0);
  }
}

void SmallMutex::wake_one() noexcept {
  ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace pawl::memory
