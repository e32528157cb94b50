// SPDX-License-Identifier: Apache-2.0
#include "pawl/poller.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "pawl/log.h"
#include "pawl/timer.h"
#include "runtime/poller_kernel.h"

namespace pawl {

namespace detail {
constinit thread_local ThreadContext this_thread;
}  // namespace detail

namespace {

constexpr std::size_t kLongWorkNamedMax = 64;

// What Poller::inbox_ holds while the poller sleeps. Never run.
constinit Work asleep(nullptr, "asleep");

const Clock& clock_of(const PollerOptions& options) {
  PAWL_CHECK(options.clock != nullptr, "a poller needs a clock");
  return *options.clock;
}

}  // namespace

Poller::Ready::Ready() noexcept : Work(nullptr, "ready") { next_ = previous_ = this; }

Poller::Scope::Scope(Poller& poller) noexcept : before_(detail::this_thread) {
  if (before_.poller == &poller) return;  // a task that runs on it still does
  detail::this_thread.poller = &poller;
  detail::this_thread.running = nullptr;
}

Poller::Scope::~Scope() { detail::this_thread = before_; }

Poller::Poller(const PollerOptions& options)
    : clock_(clock_of(options)),
      options_(options),
      now_(clock_.now()),
      kernel_(std::make_unique<Kernel>()) {
  PAWL_CHECK(options.handlers_per_turn > 0, "handlers_per_turn must be at least 1");
  timers_.reserve(options.timers_reserve);
}

Poller::~Poller() {
  PAWL_CHECK(!in_turn_, "a poller is destroyed in its own turn");
  if (armed_) disarm();
  drain_on_destruction();
  PAWL_CHECK(sources_.empty(), "a poller is destroyed before its sources were removed");
  for (Timer* timer : timers_) timer->poller_ = nullptr;
  kernel_->await_wakes();
}

void Poller::drain_on_destruction() {
  const Scope scope(*this);
  while (run_inbox() + run_ready() > 0) {
  }
}

// ---- Sources

void Poller::add(PollSource& source) {
  auto entry = std::make_unique<SourceEntry>();
  entry->source = &source;
  entry->fd = source.fd();
  if (entry->fd >= 0) kernel_->watch(*entry);
  sources_.push_back(std::move(entry));
}

void Poller::remove(PollSource& source) {
  const auto it = std::find_if(sources_.begin(), sources_.end(),
                               [&](const auto& entry) { return entry->source == &source; });
  PAWL_CHECK(it != sources_.end(), "a source is removed that was not added");
  if ((*it)->fd >= 0) kernel_->forget(**it);
  (*it)->source = nullptr;
  if (in_turn_) {
    sources_changed_ = true;  // the loop over the sources may be under way
  } else {
    sources_.erase(it);
  }
}

std::size_t Poller::run_sources() {
  std::size_t done = 0;
  const std::size_t count = sources_.size();  // new ones come in the next turn
  for (std::size_t i = 0; i < count; ++i) {
    SourceEntry& entry = *sources_[i];
    if (entry.source == nullptr) continue;
    const char* name = entry.source->name();
    const std::size_t n = entry.source->poll(now_);
    if (n > 0) measure(name, false);
    done += n;
    if (entry.source != nullptr && entry.fd >= 0) judge_wake(entry, n);
  }
  return done;
}

void Poller::judge_wake(SourceEntry& entry, std::size_t done) {
  const bool reported = std::exchange(entry.reported, false);
  if (done > 0) {
    entry.fruitless_wakes = 0;
    if (entry.muted) kernel_->set_muted(entry, false);
    return;
  }
  if (!reported || entry.muted || ++entry.fruitless_wakes < SourceEntry::kFruitlessWakesMax) return;
  kernel_->set_muted(entry, true);
  ++stats_.muted_sources;
  if (options_.log != nullptr) {
    options_.log->warning(std::string("the descriptor of ") + entry.source->name() +
                          " stays ready without events (hung up?): it is waited for only when it "
                          "changes");
  }
}

// ---- A turn

bool Poller::run_once() {
  PAWL_CHECK(!in_turn_, "a poller is turned inside its own turn");
  const Scope scope(*this);
  if (armed_) {
    collect_events(0);
    disarm();
  }
  now_ = measured_ = clock_.now();
  // A system call, so seldom; and after another loop slept for us.
  if (!ran_known_ || now_ - ran_read_at_ - slept_ > options_.long_turn / 2) {
    ran_read_at_ = now_;
    ran_ = clock_.thread_ran();
    ran_known_ = true;
    slept_ = Duration(0);
  }
  in_turn_ = true;
  turn_longest_work_ = Duration(0);
  turn_longest_name_ = "";
  std::size_t done = run_inbox();
  done += run_sources();
  done += run_timers();
  done += run_ready();
  in_turn_ = false;
  if (sources_changed_) {
    std::erase_if(sources_, [](const auto& entry) { return entry->source == nullptr; });
    sources_changed_ = false;
  }
  end_turn(done > 0);
  return done > 0;
}

void Poller::measure(const char* name, bool programs_own) {
  const TimePoint now = clock_.now();
  const Duration took = now - measured_;
  measured_ = now;
  if (took > turn_longest_work_) {
    turn_longest_work_ = took;
    turn_longest_name_ = name;
    turn_longest_programs_own_ = programs_own;
  }
}

void Poller::end_turn(bool busy) {
  ++stats_.turns;
  if (!busy) return;
  ++stats_.busy_turns;
  const Duration took = measured_ - now_;
  stats_.longest_turn = std::max(stats_.longest_turn, took);
  if (took <= options_.long_turn) return;
  ++stats_.long_turns;
  if (turn_longest_work_ > stats_.longest_work) {
    stats_.longest_work = turn_longest_work_;
    stats_.longest_work_name = turn_longest_name_;
  }
  if (options_.log != nullptr) tell_long_turn(took);
}

void Poller::tell_long_turn(Duration took) {
  const auto ms = [](Duration d) { return std::to_string(d.count() / 1'000'000) + " ms"; };
  const Duration waited = waited_for_core();
  const bool stalled = waited > took / 2;
  if (stalled && !turn_longest_programs_own_) {
    if (!name_long_work("no core")) return;
    options_.log->info("a poller's turn took " + ms(took) +
                       ", of which its thread had no core for " + ms(waited) +
                       " (told once): peers wait meanwhile; the machine has more to "
                       "run than cores");
    return;
  }
  if (!name_long_work(turn_longest_name_)) return;
  std::string line = "a poller's turn took " + ms(took) + ", of which " + ms(turn_longest_work_) +
                     " in " + turn_longest_name_ + " (told once for each): peers wait meanwhile";
  if (stalled) line += "; its thread did not run for " + ms(waited) + ": it blocked or had no core";
  if (turn_longest_programs_own_) {
    line +=
        "; a handler or callback of the program's own that computes or blocks belongs on "
        "Workers";
  }
  options_.log->warning(line);
}

// In the turn that ends here: the time that the thread did not run since `ran_` was read.
Duration Poller::waited_for_core() const {
  const Duration ran = clock_.thread_ran() - ran_;
  if (ran < Duration(0)) return Duration(0);  // another thread turned the poller then
  return std::clamp(measured_ - ran_read_at_ - slept_ - ran, Duration(0), measured_ - now_);
}

/// True the first time that a work of this name made a turn long.
bool Poller::name_long_work(const char* name) {
  if (long_work_named_.size() == kLongWorkNamedMax ||
      std::any_of(long_work_named_.begin(), long_work_named_.end(),
                  [name](const char* named) { return std::string_view(named) == name; })) {
    return false;
  }
  long_work_named_.push_back(name);
  return true;
}

// ---- Inbox and ready queue

void Poller::post(Work& work) noexcept {
  Work* head = inbox_.load(std::memory_order_relaxed);
  do {
    work.next_ = head == &asleep ? nullptr : head;
  } while (!inbox_.compare_exchange_weak(head, &work, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  // If it slept, this write is the last touch of the poller, which awaits it before it goes.
  if (head == &asleep) kernel_->wake();
}

Work* Poller::take_inbox() noexcept {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  Work* newest = inbox_.exchange(nullptr, std::memory_order_acquire);
  Work* oldest = nullptr;
  while (newest != nullptr) {
    Work* older = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = older;
  }
  return oldest;
}

std::size_t Poller::run_inbox() {
  std::size_t done = 0;
  Work* work = take_inbox();
  while (work != nullptr) {
    Work* next = std::exchange(work->next_, nullptr);
    const char* name = work->name();
    work->run();
    measure(name, true);
    ++done;
    work = next;
  }
  return done;
}

void Poller::defer(Work& work) noexcept {
  PAWL_CHECK(!work.deferred(), "work is deferred twice");
  work.previous_ = ready_.previous_;
  work.next_ = &ready_;
  ready_.previous_->next_ = &work;
  ready_.previous_ = &work;
}

void Poller::withdraw(Work& work) noexcept {
  if (!work.deferred()) return;
  work.previous_->next_ = work.next_;
  work.next_->previous_ = work.previous_;
  work.next_ = work.previous_ = nullptr;
}

std::size_t Poller::run_ready() {
  std::size_t done = 0;
  while (done < options_.handlers_per_turn && ready_.next_ != &ready_) {
    Work& work = *ready_.next_;
    withdraw(work);
    const char* name = work.name();
    work.run();
    measure(name, true);
    ++done;
  }
  return done;
}

// ---- Running and sleeping

void Poller::run() {
  const Scope scope(*this);
  bool idle = false;
  TimePoint idle_since;
  while (!stop_.load(std::memory_order_acquire)) {
    if (run_once()) {
      idle = false;
      continue;
    }
    if (!std::exchange(idle, true)) idle_since = now_;
    if (now_ - idle_since < options_.spin) {
      relax_cpu();
      continue;
    }
    if (!arm()) continue;
    // Between the mark in the inbox and here stop() would have found nobody asleep.
    if (stop_.load(std::memory_order_seq_cst)) break;
    sleep();
    idle = false;
  }
  if (armed_) disarm();
  stop_.store(false, std::memory_order_relaxed);
}

void Poller::run_or_sleep() {
  if (run_once()) return;
  const Scope scope(*this);
  if (arm()) sleep();
}

void Poller::stop() noexcept {
  stop_.store(true, std::memory_order_seq_cst);
  Work* expected = &asleep;
  if (inbox_.compare_exchange_strong(expected, nullptr, std::memory_order_seq_cst)) {
    kernel_->wake();
  }
}

bool Poller::arm() {
  if (armed_) disarm();
  if (ready_.next_ != &ready_) return false;
  for (const auto& entry : sources_) {
    if (!entry->source->arm()) return false;
  }
  Work* expected = nullptr;
  if (!inbox_.compare_exchange_strong(expected, &asleep, std::memory_order_seq_cst)) return false;
  armed_ = true;
  const TimePoint next = next_event();
  const TimePoint now = next == TimePoint::never() ? TimePoint{} : clock_.now();
  if (next <= now) {
    disarm();
    return false;
  }
  kernel_->set_timer(next, now);
  return true;
}

void Poller::disarm() {
  armed_ = false;
  ran_known_ = false;
  Work* expected = &asleep;
  if (!inbox_.compare_exchange_strong(expected, nullptr, std::memory_order_seq_cst)) {
    kernel_->expect_wake();  // somebody ended the sleep, and writes to the eventfd or has written
  }
}

void Poller::sleep() {
  ++stats_.sleeps;
  const TimePoint from = clock_.now();
  collect_events(-1);
  const bool known = ran_known_;
  disarm();
  slept_ += clock_.now() - from;
  ran_known_ = known;
}

void Poller::collect_events(int timeout_ms) { stats_.wakeups += kernel_->wait(timeout_ms); }

int Poller::event_fd() const noexcept { return kernel_->epoll_fd(); }

TimePoint Poller::next_event() const {
  TimePoint next = next_timer();
  for (const auto& entry : sources_) {
    if (entry->source != nullptr) next = std::min(next, entry->source->next_event());
  }
  return next;
}

}  // namespace pawl
