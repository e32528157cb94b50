// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "pawl/detail/ref.h"
#include "pawl/poller.h"
#include "pawl/timer.h"

namespace pawl::memory {

Waiter::Waiter(std::span<const std::size_t> sizes, bool landing, TimePoint deadline)
    : landing_(landing), deadline_(deadline) {
  orders_.reserve(sizes.size());
  for (std::size_t size : sizes) {
    orders_.push_back(static_cast<std::uint8_t>(order_of(size)));
    bytes_ += order_bytes(orders_.back());
  }
  got.reserve(sizes.size());
}

namespace {

using Buffers = detail::FrameVector<Buffer>;

/// An acquire that waits. Who waits on a poller is told from its ready queue: never inside the
/// release that made room, which may be a destructor anywhere. Who waits without one is told on the
/// thread that made room, or the helper's: if it turns a poller, from that one's ready queue.
template <class T>  // Result<Buffer> or Result<Buffers>
class Acquire final : public OperationState<T>, public Waiter {
 public:
  Acquire(std::shared_ptr<detail::PoolCore> core, std::span<const std::size_t> sizes, bool landing,
          TimePoint deadline)
      : Waiter(sizes, landing, deadline),
        core_(std::move(core)),
        sizes_(sizes.begin(), sizes.end()),
        wake_(*this) {}

  void keep() noexcept override { this->retain(); }
  void settled() override {
    Poller* const here = Poller::current();
    if (this->home() != nullptr && this->home() != here) {
      post_home();
    } else if (here != nullptr) {
      here->defer(wake_);
    } else {
      deliver_kept();
    }
  }
  [[nodiscard]] bool without_poller() const override { return this->home() == nullptr; }

 private:
  struct Wake : Work {
    explicit Wake(Acquire& owner)
        : Work([](Work* self) { static_cast<Wake*>(self)->acquire.deliver_kept(); },
               "pool acquire"),
          acquire(owner) {}
    Acquire& acquire;
  };

  enum class Post : std::uint8_t { none, begun, done, never };

  void on_begin() override {
    const Ref<Acquire> self(this);  // without a poller another thread may complete and drop it
    if (core_->wait(*this)) {
      deliver();
    } else if (this->home() != nullptr) {
      tick();
    } else {
      core_->look_after();
    }
  }
  void on_drop() noexcept override {
    timer_.cancel();
    core_->forget(*this);
    // Another thread may have taken us off the queue. From here on it leaves the poller alone,
    // which may go; a post that has begun is a few instructions.
    for (Post post = Post::none; !post_.compare_exchange_strong(post, Post::never);) {
      if (post == Post::done) return;
      post = Post::none;
      std::this_thread::yield();
    }
  }

  // On another thread than the home's, which drops this perhaps.
  void post_home() {
    const Ref<Acquire> self(this);
    Post none = Post::none;
    if (!post_.compare_exchange_strong(none, Post::begun)) return deliver_kept();  // to nobody
    this->home()->post(wake_);
    post_.store(Post::done);
  }

  void deliver_kept() {
    deliver();
    this->release();
  }
  void deliver() {
    timer_.cancel();
    this->complete(why.ok() ? value() : T(std::move(why)));
  }
  T value() {
    auto buffer = [this](std::size_t i) {
      got[i]->hand_out();
      return BufferAccess::buffer(detail::ExtentRef(got[i]), got[i]->base(), sizes_[i]);
    };
    if constexpr (std::is_same_v<T, Result<Buffer>>) {
      return buffer(0);
    } else {
      Buffers buffers;
      buffers.reserve(got.size());
      for (std::size_t i = 0; i < got.size(); ++i) buffers.push_back(buffer(i));
      return buffers;
    }
  }
  void tick() {
    const TimePoint next = core_->look_again(*this);
    if (next == TimePoint::never()) return;
    timer_.arm(
        *this->home(), next, [](void* self) { static_cast<Acquire*>(self)->tick(); }, this);
  }

  const std::shared_ptr<detail::PoolCore> core_;
  const detail::FrameVector<std::size_t> sizes_;
  Wake wake_;
  std::atomic<Post> post_{Post::none};  // of wake_ to the home poller
  Timer timer_;                         // the home poller's thread only
};

}  // namespace

}  // namespace pawl::memory

namespace pawl::detail {

Operation<Result<Buffer>> PoolCore::acquire(std::size_t bytes, Duration deadline) {
  if (bytes == 0 || bytes > Pool::kBufferBytesMax) {
    return Operation<Result<Buffer>>::ready(try_acquire(bytes));  // the same error
  }
  return make_operation<memory::Acquire<Result<Buffer>>>(shared_from_this(), std::span(&bytes, 1),
                                                         false, clock_->now() + deadline);
}

Operation<Result<FrameVector<Buffer>>> PoolCore::acquire_landing(std::span<const std::size_t> sizes,
                                                                 TimePoint deadline) {
  for (std::size_t bytes : sizes) {
    if (bytes == 0 || bytes > Pool::kBufferBytesMax) {
      return Operation<Result<memory::Buffers>>::ready(try_acquire_landing(sizes));
    }
  }
  if (Status refused = admit_transfer(); !refused.ok()) {
    return Operation<Result<memory::Buffers>>::ready(std::move(refused));
  }
  return make_operation<memory::Acquire<Result<memory::Buffers>>>(shared_from_this(), sizes, true,
                                                                  deadline);
}

}  // namespace pawl::detail
