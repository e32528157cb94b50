// SPDX-License-Identifier: Apache-2.0
#include "pawl/workers.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace pawl {

struct Workers::Impl {
  explicit Impl(WorkersOptions given) : options(given) {}

  void run_thread() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return first != nullptr || ending; });
      if (first == nullptr) return;
      Work* work = first;
      first = work->next_;
      if (first == nullptr) last = nullptr;
      work->next_ = nullptr;
      --queued;
      lock.unlock();
      work->run();
      lock.lock();
    }
  }

  const WorkersOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  Work* first = nullptr;
  Work* last = nullptr;
  std::size_t queued = 0;
  bool ending = false;
  std::vector<std::thread> threads;
};

Workers::Workers(WorkersOptions options) : impl_(std::make_unique<Impl>(options)) {
  PAWL_CHECK(options.threads > 0, "a worker pool needs at least one thread");
  for (std::size_t i = 0; i < options.threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run_thread(); });
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

bool Workers::submit(Work& work) noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ending || impl_->queued >= impl_->options.queue_max) return false;
  work.next_ = nullptr;
  (impl_->last == nullptr ? impl_->first : impl_->last->next_) = &work;
  impl_->last = &work;
  ++impl_->queued;
  impl_->changed.notify_one();
  return true;
}

std::size_t Workers::threads() const noexcept { return impl_->threads.size(); }

std::size_t Workers::queued() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->queued;
}

}  // namespace pawl
