// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "pawl/poller.h"

namespace pawl::detail {

/// The part of OperationState that does not depend on the value: reference count, the race between
/// complete and drop, the way home. States:
///
///     idle → pending → delivered                    completed on the home poller's thread
///                    → handing → handed → delivered  completed elsewhere: through the inbox
///                    → delivering → delivered        started off any poller
///                    → dropped                       also from handed
class OperationCore : private Work {
 public:
  OperationCore(const OperationCore&) = delete;
  OperationCore& operator=(const OperationCore&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // The last owner need not pay for an atomic read-modify-write.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }

 protected:
  enum class Claim : std::uint8_t { refused, deliver, deliver_here, hand_over };

  OperationCore() noexcept : Work(&OperationCore::arrive, "operation") {}
  virtual ~OperationCore() = default;

  virtual void core_begin() = 0;
  virtual void core_dropped() noexcept = 0;
  virtual void core_discard() noexcept = 0;
  virtual void core_deliver() = 0;

  void begin_core();
  void drop_core() noexcept;
  /// Who calls complete() first gets something else than `refused`, and has to do it.
  Claim claim() noexcept;
  /// After Claim::hand_over, with the value stored: posts to the home poller.
  void hand_over() noexcept;

  /// Around the callback after Claim::deliver_here: holds a reference, lets drop() on other threads
  /// wait until the callback has returned.
  class Delivery {
   public:
    explicit Delivery(OperationCore& core) noexcept;
    Delivery(const Delivery&) = delete;
    Delivery& operator=(const Delivery&) = delete;
    ~Delivery();
    [[nodiscard]] bool is(const OperationCore* core) const noexcept { return &core_ == core; }

   private:
    friend class OperationCore;
    OperationCore& core_;
    const Delivery* outer_;
  };

  [[nodiscard]] bool pending() const noexcept {
    return state_.load(std::memory_order_acquire) == State::pending;
  }
  [[nodiscard]] Poller* home() const noexcept { return home_; }

 private:
  enum class State : std::uint8_t {
    idle,
    pending,
    handing,
    handed,
    delivering,
    delivered,
    dropped
  };

  static void arrive(Work* work);
  bool move(State from, State to) noexcept;
  void drop_off_poller() noexcept;

  std::atomic<std::uint32_t> references_{1};
  std::atomic<State> state_{State::idle};
  bool beginning_ = false;  // inside core_begin, with a home
  bool dropped_in_begin_ = false;
  Poller* home_ = nullptr;
};

}  // namespace pawl::detail
