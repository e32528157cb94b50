// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/list.h"
#include "memory/arena.h"
#include "memory/helper.h"
#include "memory/lease_table.h"
#include "memory/piece.h"
#include "memory/quarantine.h"
#include "memory/registrar.h"
#include "memory/thread_cache.h"
#include "memory/waiter.h"
#include "pawl/operation.h"
#include "pawl/pool.h"
#include "pawl/region.h"

namespace pawl::detail {

/// What is behind a Pool, for the layers above and for the memory that came from it: devices,
/// leases, landing buffers, quarantine. Any thread. Lives until its Pool is gone and the last
/// buffer, region and lease came back.
///
/// Locks, from the outside in: an extent's mutex → the pool's mutex. A thread cache's mutex is
/// taken with no other lock held. Waiters are told, leases finished and references dropped with no
/// lock held.
class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  PoolCore(const PoolOptions& options, const Clock* clock);
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;
  ~PoolCore();

  // --- devices ------------------------------------------------------------------------------

  /// Registers all memory, now and later, with a device; blocks while it does. The returned index
  /// names the device in `handle(device)` of everything. A slab that the device refuses is unusable
  /// there only (handle 0) and the reason is kept in `last_registration_error`; growth fails if no
  /// device takes the new slab. `bulk_use` may be bulk_window_only. At most kDevicesMax.
  Result<std::size_t> attach(Registrar& registrar, MemoryUse bulk_use = MemoryUse::bulk);
  /// Deregisters everything there. The caller has ended every connection over it.
  void detach(std::size_t device) { devices_.detach(device); }
  [[nodiscard]] Status last_registration_error(std::size_t device) const {
    return devices_.last_error(device);
  }

  // --- leases and quarantine ----------------------------------------------------------------

  [[nodiscard]] memory::LeaseTable& leases() { return *leases_; }
  [[nodiscard]] memory::QuarantineLedger& quarantine() { return quarantine_; }
  /// The bound on quarantine is reached: new transfers are to be refused.
  [[nodiscard]] bool quarantine_full() const { return quarantine_.full(); }
  /// resource_exhausted if it is: asked before memory is taken to be landed into.
  [[nodiscard]] Status admit_transfer() const;
  /// fn(const memory::QuarantineEntry&), oldest first; it only writes down.
  template <class Fn>
  void for_each_quarantined(Fn&& fn) const {
    quarantine_.for_each(std::forward<Fn>(fn));
  }

  // --- buffers ------------------------------------------------------------------------------

  Result<Buffer> try_acquire(std::size_t bytes);
  Operation<Result<Buffer>> acquire(std::size_t bytes, Duration deadline);

  /// Landing buffers of one transfer: all or none, first come first served, may use the landing
  /// reserve. `sizes` each 1..64 MiB. Each has size() as asked for.
  Operation<Result<FrameVector<Buffer>>> acquire_landing(std::span<const std::size_t> sizes,
                                                         TimePoint deadline);
  /// The same at once, or resource_exhausted.
  Result<FrameVector<Buffer>> try_acquire_landing(std::span<const std::size_t> sizes);

  /// Non-pool memory of the library's own (message slots), registered with every device. Outside
  /// of bytes_max; it cannot be lent. Blocks while devices register.
  Result<Buffer> allocate_messages(std::size_t bytes);

  [[nodiscard]] PoolStats stats() const;
  [[nodiscard]] const PoolOptions& options() const { return options_; }
  [[nodiscard]] const Clock& clock() const { return *clock_; }

  // --- for the memory layer -----------------------------------------------------------------

  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] memory::Devices& devices() { return devices_; }
  [[nodiscard]] MemoryKind& host_kind() { return host_; }
  /// Runs a job off the pollers: on the helper thread, or here with grow_inline and after close().
  void run_aside(std::function<void()> job);
  std::atomic<std::uint64_t>& landing_bytes() { return landing_bytes_; }

  /// The last reference of a pool extent is gone.
  void give_back(Extent& extent);
  void free_messages(Extent& extent);
  /// Memory that was acquired for landing is lent: it counts as lent from now on until it is back.
  /// resource_exhausted if that would take the landing reserve, or what others wait for. With the
  /// extent's mutex held; `serve_waiters` is due afterwards.
  Status charge(std::size_t bytes);
  /// With no lock held.
  void serve_waiters() {
    if (waiters_.load(std::memory_order_relaxed) != 0) serve();
  }
  /// After `charge` refused, with no lock held: brings back what lies in the threads' caches, or
  /// ends the oldest lease. False if there is nothing of the kind.
  bool make_room_to_lend();
  /// The Pool is gone: no caches, no growth; the core goes with the last thing that is out. Waits
  /// for the helper's jobs.
  void close();
  /// A table of leases, or the buffers, have all come back after close().
  void part_is_over();

  std::shared_ptr<memory::ThreadCache> make_cache();
  void retire_cache(memory::ThreadCache& cache);

  /// Gives a waiter its buffers or its error at once (true), or queues it.
  bool wait(memory::Waiter& waiter);
  /// Takes a waiter out of the queue; nothing happens if it is not in it any more.
  void forget(memory::Waiter& waiter);
  /// The deadline or the next look for room of a queued waiter came: ends it, or tries to make
  /// room. Returns when to look again; never() if it does not wait any more.
  TimePoint look_again(memory::Waiter& waiter);
  /// A waiter without a poller was queued: the helper looks after it.
  void look_after();

 private:
  enum class Shortage : std::uint8_t { none, behind_waiters, reserve, memory, never };
  struct Want {
    std::span<const std::uint8_t> orders;
    std::size_t bytes;
    bool landing;
  };
  /// What those ahead in the queue leave to a request behind them.
  struct Ahead {
    std::size_t ordinary = SIZE_MAX, landing = SIZE_MAX;
  };

  // pool_core.cc
  Status possible(std::size_t bytes, bool landing) const;
  Extent* acquire_cached(unsigned order);
  Status allocate(const Want& want, FrameVector<Extent*>& got);
  Extent* allocate_one(unsigned order, Status& why);
  Shortage attempt(const Want& want, FrameVector<Extent*>& got);
  Shortage allocate_locked(const Want& want, FrameVector<Extent*>& got);
  void free_locked(Extent& extent);
  void free_all(std::span<Extent* const> extents);
  bool collect_caches(bool close = false);
  std::size_t end_oldest_lease();
  Status shortage_status(Shortage shortage, const Want& want) const;
  Status never_status(const Want& want) const;

  // pool_queue.cc
  static void settle_all(List<memory::Waiter>& ready);
  [[nodiscard]] bool within_reserve_locked(const Want& want) const;
  [[nodiscard]] bool may_pass_locked(const Want& want, const Ahead& ahead) const;
  [[nodiscard]] Ahead ahead_locked() const;
  void overtake_locked(const Want& want, const memory::Waiter* until, bool within_reserve);
  void serve();
  std::size_t serve_locked(List<memory::Waiter>& ready);
  bool hopeless_locked(memory::Waiter& waiter, const Want& want);
  void unlink_locked(memory::Waiter& waiter, List<memory::Waiter>& ready);
  void fail_waiters(const Status& why);

  // pool_waiters.cc
  void look_for_room();
  [[nodiscard]] Duration look_interval() const;
  void look_after_all();
  [[nodiscard]] Status deadline_status(const memory::Waiter& waiter) const;

  // pool_growth.cc
  [[nodiscard]] std::size_t growth_bytes_locked(const Want& want) const;
  [[nodiscard]] bool ever_locked(const Want& want) const;
  std::size_t claim_growth_locked(const Want& want);
  bool make_slab(std::size_t slab_bytes);
  bool request_growth(const Want& want);
  void add_growth(std::size_t slab_bytes);
  Status add_slab(std::size_t bytes);
  bool buffers_over_locked();
  std::size_t cached_bytes() const;

  const PoolOptions options_;
  const Status misuse_;  // options that cannot work; every acquire says so
  const std::uint64_t id_;
  SteadyClock steady_clock_;
  HostMemory host_;
  const Clock* const clock_;
  MemoryKind* const kind_;
  const std::size_t lendable_bytes_max_;

  memory::Devices devices_;
  memory::QuarantineLedger quarantine_;
  std::optional<memory::LeaseTable> leases_;

  mutable memory::SmallMutex mutex_;  // guards the following
  memory::Arena arena_;
  List<memory::Waiter> queue_;
  std::size_t charged_bytes_ = 0;    // acquired to be written and lent, in caches too
  std::size_t uncharged_bytes_ = 0;  // acquired for landing and not lent since
  bool growing_ = false;
  bool closing_ = false;
  bool buffers_over_ = false;  // closing, and all have come back
  Status growth_error_;
  TimePoint growth_retry_at_;            // until then no slab of more than
  std::size_t growth_limit_ = SIZE_MAX;  // this, half of what was refused
  TimePoint look_at_;                    // no look for room before
  std::uint64_t shared_acquires_ = 0, waits_ = 0, timeouts_ = 0;

  alignas(64) std::atomic<std::uint32_t> waiters_{0};  // in queue_; read by every release
  std::atomic<std::uint64_t> landing_bytes_{0};
  std::atomic<std::uint64_t> ended_for_room_{0};

  mutable std::mutex caches_mutex_;
  std::vector<std::shared_ptr<memory::ThreadCache>> caches_;
  std::uint64_t retired_hits_ = 0;

  std::atomic<std::uint32_t> parts_{2};  // buffers, leases; after close()
  std::shared_ptr<PoolCore> self_;       // after close(), until the parts are over
  memory::Helper helper_;                // last: its thread uses the rest
};

}  // namespace pawl::detail
