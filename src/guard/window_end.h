// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/slot_map.h"
#include "fabric/fabric.h"
#include "guard/window_pool.h"
#include "memory/lease.h"
#include "pawl/completer.h"
#include "pawl/detail/frame_vector.h"
#include "pawl/log.h"
#include "pawl/poller.h"
#include "pawl/stats.h"
#include "pawl/timer.h"

namespace pawl::guard {

class WindowEnd;

/// Windows for one lease, and room in the send queue for binding and invalidating them. What is not
/// bound goes back when this is dropped, which must be before its WindowEnd goes.
class WindowReservation {
 public:
  WindowReservation() = default;
  WindowReservation(WindowReservation&& other) noexcept
      : end_(std::exchange(other.end_, nullptr)), windows_(std::move(other.windows_)) {}
  WindowReservation& operator=(WindowReservation&& other) noexcept;
  ~WindowReservation() { reset(); }
  void reset() noexcept;
  [[nodiscard]] explicit operator bool() const { return end_ != nullptr; }
  [[nodiscard]] WindowEnd* end() const { return end_; }

 private:
  friend class WindowEnd;
  WindowEnd* end_ = nullptr;
  Windows windows_;
};

/// The lending end of one data endpoint: binds windows to lent memory, and holds that memory after
/// the end of its lease until it is proven that nobody reads it through them any more.
///
///     BINDING        ─▶ BOUND          the chain completed
///     BINDING, BOUND ─▶ INVALIDATING   the reader's word that it is done
///     BINDING, BOUND ─▶ REVOKING       the lease ended and no such word came
///     INVALIDATING   ─▶ FREE           the invalidate succeeded
///     INVALIDATING   ─▶ REVOKING       it did not, or not in time
///     REVOKING       ─▶ DEAD           the window was freed
///
/// Memory goes back at FREE and DEAD and at no other moment. A window is freed only when no work
/// request that names it can still be executed: all have completed. Where one does not, the
/// endpoint goes to ERR, which flushes it; a flush proves nothing but that. One invalidate for each
/// bind, by this end alone. Poller thread.
class WindowEnd final : private FreeListener {
 public:
  class Host {
   public:
    /// Takes the endpoint to ERR and calls `lost`, in this call or later.
    virtual void break_endpoint(const char* why) = 0;
    /// Windows or send queue slots came back, or the last lease here is settled.
    virtual void windows_back() = 0;
    /// For the log.
    [[nodiscard]] virtual const std::string& peer_address() const = 0;

   protected:
    ~Host() = default;
  };
  struct Options {
    std::uint32_t slots_max = 0;  ///< of the send queue, for binds and invalidates
    /// For the reader's word after an end that was not its own.
    Duration cancel_grace = std::chrono::milliseconds(1);
    /// For work requests that should complete, before the endpoint is broken.
    Duration revoke_deadline = std::chrono::milliseconds(10);
    /// For the flushes of an endpoint in ERR and for windows to be freed, before they are an alarm:
    /// a line in the log for each lease. What was not freed is tried again after as long. Nothing
    /// is released by it.
    Duration quarantine_timeout = std::chrono::seconds(3);
  };
  WindowEnd(Host& host, fabric::Fabric& fabric, fabric::EndpointId endpoint, Poller& poller,
            WindowPool& pool, NodeStats& stats, Logger& log, const Options& options);
  WindowEnd(const WindowEnd&) = delete;
  WindowEnd& operator=(const WindowEnd&) = delete;
  ~WindowEnd();

  /// False: too few windows or slots are free, or the endpoint is lost.
  [[nodiscard]] bool reserve(std::size_t windows, WindowReservation& out);

  /// BINDING: one window for each of `targets`, whose keys are written to `keys`; windows that are
  /// left over go back. The binds wait for the message that carries the keys: `take_pending`.
  SlotId bind(WindowReservation reservation, std::span<const fabric::LocalSegment> targets,
              std::span<std::uint64_t> keys);
  /// Moves the binds that wait into `chain`, silent: the message follows them.
  void take_pending(detail::FrameVector<fabric::WorkRequest>& chain);
  /// A bind of `take_pending` was not accepted by the fabric.
  void not_posted(const fabric::WorkRequest& bind);

  /// The lease of a bind is over, and its memory is held here. `released`: the reader is done.
  void hold(SlotId bound, memory::LeaseHandle lease, std::uint64_t lease_id, std::uint64_t call,
            bool released);
  /// RELEASE of a lease that ended before. False: none of that name is held.
  bool release(std::uint64_t lease_id, std::uint64_t generation);
  /// The peer acknowledged the cancel of a call: it reads nothing for it any more.
  void acknowledge(std::uint64_t call);
  /// True if memory that was lent for a call is still held; then `back` completes when it is not.
  bool held(std::uint64_t call, Operation<Status>& back);

  /// Of a bind or an invalidate.
  void on_completion(const fabric::Completion& completion);
  /// The endpoint is in ERR, and every lease that was bound here has ended.
  void lost();
  /// Nothing is bound or held: the endpoint may be closed.
  [[nodiscard]] bool idle() const { return records_.size() == 0; }
  /// The fabric was destroyed: that is the proof for all.
  void device_gone();

  static constexpr std::size_t kLeasesMax = 4096;

 private:
  friend class WindowReservation;
  enum class State : std::uint8_t { binding, bound, invalidating, revoking };
  struct Record {
    explicit Record(WindowEnd& owner) : end(owner) {}
    WindowEnd& end;
    SlotId id;
    State state = State::binding;
    Windows windows;
    std::size_t freeing = 0;      ///< windows of its that the device is just freeing
    std::size_t outstanding = 0;  ///< binds and invalidates posted (or to be) and not complete
    bool failed = false;          ///< one of them did
    bool alarmed = false;
    memory::LeaseHandle lease;  ///< from `hold` on
    std::uint64_t lease_id = 0;
    std::uint64_t call = 0;
    Timer timer;
    Completer<Status> back;
  };

  void release(Record& record);
  void settled_work(Record& record);
  void revoke(Record& record);
  void free_windows(Record& record);
  void window_freed(std::uint64_t tag, const Window& window, const Status& status) override;
  bool window_freed(Record& record, const Window& window, const Status& status);
  void alarm(Record& record);
  void done(Record& record);
  static void on_timer(void* record);
  detail::FrameVector<SlotId> ids();

  Host& host_;
  fabric::Fabric& fabric_;
  const fabric::EndpointId endpoint_;
  Poller& poller_;
  WindowPool& pool_;
  NodeStats& stats_;
  Logger& log_;
  const Options options_;
  std::uint32_t slots_used_ = 0;
  bool lost_ = false;
  SlotMap<Record> records_;
  detail::FrameVector<fabric::WorkRequest> pending_;
};

}  // namespace pawl::guard
