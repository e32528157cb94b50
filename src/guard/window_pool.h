// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/poller.h"
#include "pawl/status.h"
#include "pawl/timer.h"

namespace pawl::guard {

/// A memory window that nothing is bound to, and how often it was bound before.
struct Window {
  fabric::WindowId id;
  std::uint32_t binds = 0;
};
using Windows = detail::FrameVector<Window>;

/// Is told what became of a window that is freed on another thread.
class FreeListener {
 public:
  virtual void window_freed(std::uint64_t tag, const Window& window, const Status& status) = 0;

 protected:
  ~FreeListener() = default;
};

/// The windows of one device: taken to be bound, given back once nothing is bound to them. Last
/// given back, first taken. A window that was bound fabric::kWindowBindsMax times is freed, so that
/// no key comes twice; what is missing is allocated by `replenish`, off the path of a call. Where
/// the device's calls block (Capabilities::window_calls_block) a thread of the pool's own makes
/// them. Poller thread.
class WindowPool {
 public:
  /// `count`: how many there are to be. The poller outlives the pool.
  WindowPool(fabric::Fabric& fabric, Poller& poller, std::size_t count);
  WindowPool(const WindowPool&) = delete;
  WindowPool& operator=(const WindowPool&) = delete;
  /// Those in its hands are freed.
  ~WindowPool();

  /// Allocates all, here, before anything is served. With a device that has fewer the pool has as
  /// many as it got, and what the device said is returned.
  Status fill();

  /// `count` windows, or none of them: false if there are not so many.
  bool take(std::size_t count, Windows& out);
  /// Nothing is bound to it, as an invalidate's completion proved, or it was never bound.
  void give_back(const Window& window);
  /// Frees one that was taken, which ends it whatever is bound to it: what the device said, or
  /// nothing, and the listener hears it later. After an error it is still taken.
  std::optional<Status> free(const Window& window, FreeListener& listener, std::uint64_t tag);

  /// Allocates a few of those that are missing, or has it done. Called once a turn. An error says
  /// what the device said; it is tried again a second later.
  Status replenish();
  /// Who waits for windows may find enough, though none came back from being bound: a reservation
  /// was dropped, or who stood in front of others gave up.
  void look_again() { look_again_ = true; }
  [[nodiscard]] bool look_due() const { return look_again_; }
  bool take_look() { return std::exchange(look_again_, false); }
  [[nodiscard]] bool full() const { return free_.size() + out_ >= count_; }
  /// Taken, and not given back or freed.
  [[nodiscard]] std::size_t out() const { return out_; }
  [[nodiscard]] std::size_t free() const { return free_.size(); }

  /// Waits for the calls that are under way on the pool's thread, and tells what became of them.
  /// False if there were none.
  bool finish_calls();
  /// The fabric will be destroyed: no call is under way when this returns, and nobody is told of
  /// one any more.
  void device_goes();
  /// So many that were taken went with the fabric.
  void forget(std::size_t windows) { out_ -= windows; }

  static constexpr std::size_t kReplenishPerTurn = 16;

 private:
  class Aside;

  void freed() { --out_; }
  void try_again_later();
  void tell_results();

  fabric::Fabric& fabric_;
  Poller& poller_;
  std::size_t count_;
  std::size_t out_ = 0;
  bool gone_ = false;
  bool look_again_ = false;
  std::vector<Window> free_;
  std::unique_ptr<Aside> aside_;  // where calls block
  std::size_t allocating_ = 0;
  Status allocate_error_;  // not returned yet
  Timer allocate_again_;   // its firing makes a turn
};

}  // namespace pawl::guard
