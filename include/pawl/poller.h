// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pawl/detail/thread_context.h"
#include "pawl/time.h"

namespace pawl {

class Logger;
class Timer;

/// One piece of work in a queue of a Poller or of Workers: a function and its name. Intrusive: it
/// must live until it ran or was withdrawn, and is in one queue at a time. Usually a base class or
/// a member; the function finds its object by static_cast.
class Work {
 public:
  using Fn = void (*)(Work* self);

  /// `name`: a literal, shown when the work held up its poller.
  explicit constexpr Work(Fn fn, const char* name = "work") noexcept : fn_(fn), name_(name) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void run() { fn_(this); }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  void set_name(const char* name) noexcept { name_ = name; }
  /// True while it waits in the ready queue of a poller (defer). The poller's thread.
  [[nodiscard]] bool deferred() const noexcept { return previous_ != nullptr; }

 private:
  friend class Poller;
  friend class Workers;

  Fn fn_;
  const char* name_;
  Work* next_ = nullptr;
  Work* previous_ = nullptr;
};

/// Something that a poller asks for events in every turn: a completion queue, a set of sockets, a
/// simulated network. All calls come on the poller's thread.
class PollSource {
 public:
  virtual ~PollSource() = default;

  /// Handles what is there, bounded; gives how many events it handled (0 = idle). It may add or
  /// remove sources, itself too.
  virtual std::size_t poll(TimePoint now) = 0;

  /// Called before the poller sleeps. True: nothing is pending, and the next event will make fd()
  /// readable. False: something raced in (or may have); poll again instead of sleeping. May be
  /// called again without a poll in between. Must not add or remove sources.
  virtual bool arm() { return true; }

  /// Readable when there may be events; -1 if there is none (then the poller sees events of this
  /// source only when it wakes for another reason). Constant while the source is added, and stays
  /// open. May itself be an epoll fd. A descriptor that stays readable or hung up although poll()
  /// finds nothing is not waited for again until it changes: the poller does not spin.
  [[nodiscard]] virtual int fd() const { return -1; }

  /// The time of the next event that comes by itself (simulated networks); the poller does not
  /// sleep past it.
  [[nodiscard]] virtual TimePoint next_event() const { return TimePoint::never(); }

  /// A literal, for the names of long turns and for logs.
  [[nodiscard]] virtual const char* name() const { return "source"; }
};

struct PollerOptions {
  const Clock* clock = nullptr;                   ///< required, must outlive the poller
  Logger* log = nullptr;                          ///< null: long turns are only counted
  Duration spin = std::chrono::microseconds(50);  ///< idle time before run() sleeps
  std::uint32_t handlers_per_turn = 64;           ///< from the ready queue
  Duration long_turn = std::chrono::milliseconds(5);
  std::uint32_t timers_reserve = 1024;  ///< armed at once without an allocation
};

struct PollerStats {
  std::uint64_t turns = 0;
  std::uint64_t busy_turns = 0;  ///< turns that did something
  std::uint64_t long_turns = 0;  ///< longer than PollerOptions::long_turn
  Duration longest_turn{0};
  Duration longest_work{0};            ///< the longest single piece of work of a long turn
  const char* longest_work_name = "";  ///< and its name
  std::uint64_t sleeps = 0;            ///< times that run() waited in the kernel
  std::uint64_t wakeups = 0;           ///< eventfd wake-ups by other threads
  std::uint64_t muted_sources = 0;     ///< descriptors found ready without events (see fd())
};

/// One thread's event loop: it polls sources, fires timers and runs work, and sleeps when there is
/// nothing. Poller-thread functions belong to whichever single thread turns the poller; only post,
/// stop and event_fd are for any thread. The poller outlives whatever posts to it; sources are
/// removed and operations dropped before it is destroyed; work that is still queued then is run by
/// the destructor.
class Poller {
 public:
  explicit Poller(const PollerOptions& options);
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  ~Poller();

  /// The poller that this thread is turning, or nullptr.
  [[nodiscard]] static Poller* current() noexcept { return detail::this_thread.poller; }

  /// Makes a poller current() on this thread outside of a turn, so that operations can be started
  /// before run().
  class Scope {
   public:
    explicit Scope(Poller& poller) noexcept;
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    detail::ThreadContext before_;
  };

  void add(PollSource& source);
  /// From now on the source is not called any more, also not in the turn that is under way.
  void remove(PollSource& source);

  /// One turn: the inbox, the sources in order of registration, due timers, then at most
  /// handlers_per_turn of the ready queue. True if anything was done.
  bool run_once();

  /// Constant within a turn; between turns the clock's time.
  [[nodiscard]] TimePoint now() const noexcept { return in_turn_ ? now_ : clock_.now(); }
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }

  /// Turns until stop(): spins for PollerOptions::spin, then sleeps until something happens.
  void run();
  /// Ends run() (or the next run()) after the turn under way. Any thread.
  void stop() noexcept;
  /// One turn, and if it found nothing, sleep until something happens. For loops with an end of
  /// their own.
  void run_or_sleep();

  /// Puts work at the end of the ready queue. It is not run before the caller returned.
  void defer(Work& work) noexcept;
  /// Takes deferred work out of the ready queue; nothing happens if it is not in one.
  static void withdraw(Work& work) noexcept;
  /// Hands work to the poller's thread, which runs it at the start of its next turn, in order for
  /// each posting thread. Cannot fail; wakes the poller if it sleeps. Any thread.
  void post(Work& work) noexcept;

  /// For foreign loops: arm(), and if it gave true, wait until event_fd() is readable (it covers
  /// the sources, the inbox and the timers), then run_once() until it gives false, and arm again.
  /// False: there is work, do not wait.
  bool arm();
  /// An epoll descriptor. Any thread.
  [[nodiscard]] int event_fd() const noexcept;
  /// The deadline of the next timer or simulated event, for loops that have timers of their own.
  [[nodiscard]] TimePoint next_event() const;
  /// The deadline of the next timer; never() if there is none.
  [[nodiscard]] TimePoint next_timer() const noexcept;

  [[nodiscard]] const PollerStats& stats() const noexcept { return stats_; }

 private:
  friend class Timer;
  struct Kernel;  // the epoll, event and timer descriptors
  struct SourceEntry;

  // Ready queue: a ring of Work around a sentinel.
  struct Ready : Work {
    Ready() noexcept;
  };

  std::size_t run_inbox();
  std::size_t run_sources();
  std::size_t run_timers();
  std::size_t run_ready();
  Work* take_inbox() noexcept;
  void judge_wake(SourceEntry& entry, std::size_t done);
  void measure(const char* name, bool programs_own);
  void end_turn(bool busy);
  void tell_long_turn(Duration took);
  [[nodiscard]] Duration waited_for_core() const;
  bool name_long_work(const char* name);
  void disarm();
  void sleep();
  void collect_events(int timeout_ms);
  void drain_on_destruction();

  void arm_timer(Timer& timer);
  void cancel_timer(Timer& timer) noexcept;

  const Clock& clock_;
  const PollerOptions options_;
  TimePoint now_;
  TimePoint measured_;  // the last time the clock was read in this turn
  bool in_turn_ = false;
  bool armed_ = false;
  bool sources_changed_ = false;
  Duration turn_longest_work_{0};
  const char* turn_longest_name_ = "";
  bool turn_longest_programs_own_ = false;
  TimePoint ran_read_at_;  // when thread_ran was last read: in this turn, or shortly before
  Duration ran_{0};
  Duration slept_{0};  // since ran_read_at_
  bool ran_known_ = false;
  std::vector<const char*> long_work_named_;  // at most kLongWorkNamedMax
  Ready ready_;
  std::vector<std::unique_ptr<SourceEntry>> sources_;  // in order of registration
  std::vector<Timer*> timers_;                         // 4-ary heap by (deadline, order of arming)
  std::uint64_t timer_order_ = 0;
  PollerStats stats_;
  std::unique_ptr<Kernel> kernel_;
  // nullptr: empty, the poller is awake. kAsleep: empty, the poller sleeps and whoever posts first
  // wakes it. Else: a stack of posted work, newest first.
  alignas(64) std::atomic<Work*> inbox_{nullptr};
  std::atomic<bool> stop_{false};
};

}  // namespace pawl
