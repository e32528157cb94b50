// SPDX-License-Identifier: Apache-2.0
#include "rpc/node_core.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "guard/policy.h"
#include "rpc/channel_core.h"
#include "rpc/check_options.h"
#include "rpc/data_link.h"
#include "rpc/server_handle.h"
#include "rpc/server_point.h"
#include "rpc/stats.h"
#include "rpc/system_fabric.h"

namespace pawl::rpc {

namespace {
// Session frames have receives of their own, so that they never wait behind calls.
constexpr std::uint32_t kSessionMessages = 16;

std::unique_ptr<Logger> make_logger(const Clock& clock, LogSink* sink) {
  if (sink != nullptr) return std::make_unique<Logger>(clock, *sink);
  return std::make_unique<Logger>(clock);
}
}  // namespace

NodeContext::NodeContext(const NodeOptions& node_options, const Clock& node_clock, LogSink* sink)
    : options(node_options),
      name(node_options.name),
      clock(node_clock),
      log(make_logger(node_clock, sink)),
      pool(node_options.pool, &node_clock),
      incarnation(node_options.seed != 0 ? Random(node_options.seed ^ 0x1ca4).next()
                                         : random_u64()) {
  limits.receive_bytes = options.receive_bytes;
  limits.call_messages = options.receive_messages;
  limits.session_messages = kSessionMessages;
  limits.message_bytes_max = options.message_bytes_max;
  guards = guard_bit(Guard::verify);
  if (options.allow_baselines) guards |= guard_bit(Guard::none) | guard_bit(Guard::disconnect);
}

}  // namespace pawl::rpc

namespace pawl::detail {

namespace {
constexpr std::size_t kTicketChannelsMax = 256;

/// What is received is at most what the device takes: limits are lowered to it.
Status fit_to_device(rpc::HandshakeLimits& limits, const fabric::Capabilities& device) {
  limits.receive_bytes = std::min(limits.receive_bytes, device.message_bytes_max);
  if (limits.receive_bytes < rpc::kReceiveBytesMin) {
    return Status::with_detail(Code::failed_precondition,
                               "the device sends at most " +
                                   std::to_string(device.message_bytes_max) +
                                   " bytes at once; control messages need 1024");
  }
  if (device.receive_depth_max <= limits.session_messages) {
    return Status::with_detail(
        Code::failed_precondition,
        "a receive queue of the device holds " + std::to_string(device.receive_depth_max) +
            " receives; a connection needs " + std::to_string(limits.session_messages + 1));
  }
  limits.call_messages =
      std::min(limits.call_messages, device.receive_depth_max - limits.session_messages);
  return {};
}
}  // namespace

NodeCore::NodeCore(const NodeOptions& options, Node& node)
    : context_(options, options.clock != nullptr ? *options.clock : steady_clock_, options.log),
      status_(rpc::misuse_of(options)) {
  context_.node = &node;
  context_.core = this;
  if (options.guard && is_baseline(*options.guard) && !options.allow_baselines) {
    status_ = Status::with_detail(
        Code::invalid_argument,
        "guard " + std::string(guard_name(*options.guard)) +
            " needs NodeOptions::allow_baselines: it is for demo, bench and tests");
  }
  PollerOptions poller;
  poller.clock = &context_.clock;
  poller.log = context_.log.get();
  poller.spin = options.spin;
  poller.long_turn = options.long_turn;
  poller.handlers_per_turn = std::max(options.handlers_per_turn, 1u);
  // One that cannot work has a poller too, which its calls fail on.
  const std::uint32_t count = status_.ok() ? options.pollers : 1;
  for (std::uint32_t i = 0; i < count; ++i) shards_.push_back(std::make_unique<Shard>(poller));
  if (status_.ok()) status_ = start_shards(options);
  tickets_ = std::make_unique<rpc::TicketTable>(context_.incarnation, context_.incarnation ^ 0x71c,
                                                options.tickets_max);
  ticket_service_ = std::make_unique<rpc::TicketService>(*tickets_);
  if (!status_.ok()) context_.log->error("the node cannot work: " + status_.to_string());
}

Status NodeCore::start_shards(const NodeOptions& options) {
  FabricSource* source = options.fabric_source;
  if (source == nullptr) {
    Result<std::unique_ptr<FabricSource>> made = rpc::make_system_source(options.fabric);
    if (!made.ok()) return made.status();
    own_source_ = *std::move(made);
    source = own_source_.get();
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (Status started = start_shard(i, *source); !started.ok()) return started;
  }
  return {};
}

Status NodeCore::start_shard(std::size_t index, FabricSource& source) {
  Shard& shard = *shards_[index];
  context_.fabric_name = source.name();
  context_.fabric_reason = source.reason();
  Result<std::unique_ptr<fabric::Fabric>> fabric = source.make_fabric(index);
  if (!fabric.ok()) return fabric.status();
  if (Status offered = offer_guards(**fabric); !offered.ok()) return offered;
  if (Status fits = fit_to_device(context_.limits, (*fabric)->capabilities()); !fits.ok()) {
    return fits;
  }
  const std::uint64_t seed =
      context_.options.seed != 0 ? context_.options.seed + index : random_u64();
  shard.engine =
      std::make_unique<rpc::Engine>(context_, shard.poller, *std::move(fabric), index, seed);
  const Poller::Scope scope(shard.poller);
  if (Status started = shard.engine->start(); !started.ok()) {
    shard.engine.reset();
    return started;
  }
  shard.poller.add(*shard.engine);
  return {};
}

// What the device can, and what was asked for.
Status NodeCore::offer_guards(const fabric::Fabric& fabric) {
  const NodeOptions& options = context_.options;
  const fabric::Capabilities& can = fabric.capabilities();
  const char* missing = nullptr;
  if (!options.memory_windows) {
    missing = "NodeOptions::memory_windows is not set (both ends need it)";
  } else if (can.windows == fabric::WindowSupport::none) {
    missing = "the device has no memory windows";
  } else if (!rpc::DataLink::windows_fit(can)) {
    missing = "the device's queues are too short for them";
  }
  using rpc::guard_bit;
  if (missing == nullptr) {
    context_.guards |= guard_bit(Guard::window_verify);
    if (can.windows == fabric::WindowSupport::exact) context_.guards |= guard_bit(Guard::window);
  } else if (options.memory_windows) {
    context_.log->warning("memory windows are not offered over " + std::string(fabric.name()) +
                          ": " + missing);
  }
  if (!options.guard || (context_.guards & guard_bit(*options.guard)) != 0) return {};
  const char* why = "it is not built yet";
  if (pawl::guard::policy_of(*options.guard).binds_windows) {
    why = missing != nullptr ? missing : "the device's windows do not end exactly: window_verify";
  }
  return Status::with_detail(
      Code::unimplemented,
      "this node cannot lend under " + std::string(guard_name(*options.guard)) + ": " + why);
}

NodeCore::~NodeCore() { close(); }

void NodeCore::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  }
  for (const auto& shard : shards_) {
    PAWL_CHECK(shard->thread.get_id() != std::this_thread::get_id(),
               "a Node is destroyed on the thread of one of its pollers, which it would wait for");
  }
  stop();
  // From here on nothing else turns the pollers; what was posted before runs.
  ticket_channels_.clear();
  tickets_->clear();
  ticket_timer_.cancel();
  for (const auto& shard : shards_) {
    const Poller::Scope scope(shard->poller);
    if (shard->engine) {
      while (shard->poller.run_once()) {
        if (shard->poller.stats().turns % 4096 == 0) break;  // busy peers do not keep it open
      }
      shard->poller.remove(*shard->engine);
      shard->engine->shutdown();
    }
  }
  {
    const Poller::Scope scope(shards_[0]->poller);
    servers_.clear();
  }
  run_what_is_left();
  release_lanes();
  run_what_is_left();
}

// What the end of all this posted and deferred, to whichever poller.
void NodeCore::run_what_is_left() {
  for (bool any = true; any;) {
    any = false;
    for (const auto& shard : shards_) {
      const Poller::Scope scope(shard->poller);
      while (shard->poller.run_once()) any = true;
    }
  }
}

void NodeCore::release_lanes() {
  for (;;) {
    std::vector<std::pair<std::size_t, std::shared_ptr<rpc::Lane>>> lanes;
    {
      const std::lock_guard lock(mutex_);
      lanes.swap(lanes_left_);
      if (lanes.empty()) ended_ = true;
    }
    if (lanes.empty()) return;
    for (auto& [index, lane] : lanes) {
      const Poller::Scope scope(shards_[index]->poller);
      lane->channel_gone();
      lane.reset();
    }
  }
}

void NodeCore::let_lane_go(std::size_t poller, std::shared_ptr<rpc::Lane> lane) {
  if (forked()) {
    static_cast<void>(new std::shared_ptr<rpc::Lane>(std::move(lane)));  // never let go
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      lanes_left_.emplace_back(poller, std::move(lane));
      return;
    }
  }
  lane->channel_gone();
}

void NodeCore::run() {
  PAWL_CHECK(!forked(), kForked);
  if (shards_.size() != 1) {
    context_.log->error("run() turns one poller: use run_background() for several");
    return;
  }
  const bool turned = threads_running_.exchange(true);
  PAWL_CHECK(!turned,
             "Node::run on a node that threads turn already: by run_background, or by another run");
  shards_[0]->poller.run();
  threads_running_ = false;
}

Poller& NodeCore::foreign_poller() {
  PAWL_CHECK(!forked(), kForked);
  PAWL_CHECK(!threads_running_,
             "Node::run_once or Node::arm on a node that threads turn already: by run_background, "
             "or by run; two threads in one poller would break it");
  PAWL_CHECK(shards_.size() == 1,
             "Node::run_once and Node::arm turn one poller, and this node has several: use "
             "run_background for it");
  return shards_[0]->poller;
}

void NodeCore::run_background() {
  PAWL_CHECK(!forked(), kForked);
  if (threads_running_.exchange(true)) return;
  for (const auto& shard : shards_) {
    shard->thread = std::thread([poller = &shard->poller] { poller->run(); });
  }
}

void NodeCore::stop() {
  if (forked()) return;  // the threads are the parent's
  for (const auto& shard : shards_) shard->poller.stop();
  // On a poller's thread nobody is waited for: another poller may be waiting for this one.
  for (const auto& shard : shards_) {
    if (shard->thread.get_id() == std::this_thread::get_id()) return;
  }
  bool joined = false;
  for (const auto& shard : shards_) {
    if (!shard->thread.joinable()) continue;
    shard->thread.join();
    joined = true;
  }
  if (joined) threads_running_ = false;
}

std::size_t NodeCore::poller_for_calls() {
  Poller* current = Poller::current();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (&shards_[i]->poller == current) return i;
  }
  return next_poller_.fetch_add(1, std::memory_order_relaxed) % shards_.size();
}

NodeStats NodeCore::stats() {
  NodeStats sum;
  for (const auto& shard : shards_) {
    if (!shard->engine) continue;
    const bool here = !threads_running_ || Poller::current() == &shard->poller;
    add_counters(sum, here ? shard->engine->stats() : shard->engine->published_stats());
  }
  sum.pool = context_.pool.stats();
  return sum;
}

bool NodeCore::post(std::size_t poller, Work& work) {
  if (forked()) return false;
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  shards_[poller]->poller.post(work);
  return true;
}

namespace {
struct Visit : Work {
  explicit Visit(const std::function<void()>& to_run) : Work(&Visit::go, "visit"), fn(to_run) {}
  static void go(Work* work) {
    auto* self = static_cast<Visit*>(work);
    self->fn();
    const std::lock_guard lock(self->mutex);
    self->done = true;
    self->changed.notify_one();
  }
  const std::function<void()>& fn;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};
}  // namespace

void NodeCore::on_poller(std::size_t index, const std::function<void()>& fn) {
  Poller& poller = shards_[index]->poller;
  if (Poller::current() == &poller) return fn();
  if (!threads_running_) {
    const Poller::Scope scope(poller);
    return fn();
  }
  Visit visit(fn);
  if (!post(index, visit)) return;
  std::unique_lock lock(visit.mutex);
  visit.changed.wait(lock, [&] { return visit.done; });
}

Result<Server> NodeCore::serve(std::string_view address, std::span<Service* const> services) {
  if (!status_.ok()) return status_;
  if (forked()) return Status(Code::failed_precondition, kForked);
  if (closed()) return Status(Code::failed_precondition, "the node was shut down");
  std::vector<Service*> all(services.begin(), services.end());
  all.push_back(ticket_service_.get());
  Result<std::shared_ptr<const rpc::Registry>> registry = rpc::Registry::make(all);
  if (!registry.ok()) return registry.status();
  auto point = std::make_shared<rpc::ServerPoint>(*this, engine(0), *std::move(registry));
  Status listening;
  on_poller(0, [&] { listening = point->listen(address); });
  if (!listening.ok()) return listening;
  {
    const std::lock_guard lock(mutex_);
    servers_.push_back(point);
  }
  return Server(std::make_shared<rpc::ServerHandle>(shared_from_this(), point), point->address());
}

void NodeCore::forget(rpc::ServerPoint& point) {
  std::shared_ptr<rpc::ServerPoint> gone;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(servers_.begin(), servers_.end(),
                                  [&](const auto& each) { return each.get() == &point; });
  if (found == servers_.end()) return;
  gone = std::move(*found);
  servers_.erase(found);
  rpc::ServerHandle::let_go_later(poller(0), std::move(gone));
}

Channel NodeCore::channel(std::string_view target, const ChannelOptions& options,
                          std::span<Service* const> callbacks) {
  Status refused = rpc::misuse_of(options);
  std::shared_ptr<const rpc::Registry> registry;
  if (!callbacks.empty()) {
    Result<std::shared_ptr<const rpc::Registry>> made = rpc::Registry::make(callbacks);
    if (made.ok()) {
      registry = *std::move(made);
    } else {
      refused = made.status();
    }
  }
  return Channel(std::make_shared<ChannelCore>(shared_from_this(), std::string(target), options,
                                               std::move(registry), std::move(refused)));
}

namespace {
/// Ends tickets at their deadlines, on poller 0.
class TicketSweep final : public Work {
 public:
  explicit TicketSweep(std::shared_ptr<NodeCore> node)
      : Work(&TicketSweep::go, "ticket sweep"), node_(std::move(node)) {}

 private:
  static void go(Work* work) {
    auto* self = static_cast<TicketSweep*>(work);
    self->node_->sweep_tickets();
    delete self;
  }
  const std::shared_ptr<NodeCore> node_;
};
}  // namespace

void NodeCore::sweep_tickets() {
  const TimePoint next = tickets_->sweep(poller(0).now());
  if (next == TimePoint::never() || closed()) return;
  ticket_timer_.arm(
      poller(0), next, [](void* self) { static_cast<NodeCore*>(self)->sweep_tickets(); }, this);
}

Result<Ticket> NodeCore::issue_ticket(std::vector<Block> blocks, std::string_view listen,
                                      Duration deadline) {
  const TimePoint now = context_.clock.now();
  Result<Ticket> ticket = tickets_->issue(std::move(blocks), listen, now, now + deadline);
  if (!ticket.ok() || !tickets_->wants_sweep(now + deadline)) return ticket;
  auto* sweep = new TicketSweep(shared_from_this());
  if (!post(0, *sweep)) delete sweep;
  return ticket;
}

Channel NodeCore::ticket_channel(const std::string& target) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = ticket_channels_.find(target);
    if (found != ticket_channels_.end()) {
      found->second.used = ++ticket_channel_uses_;
      return found->second.channel;
    }
  }
  Channel made = channel(target, {}, {});
  Channel evicted;  // its lanes are posted to their pollers, which takes the lock
  const std::lock_guard lock(mutex_);
  // The addresses stand in other people's bytes: their number is not ours to trust.
  if (ticket_channels_.size() >= kTicketChannelsMax && !ticket_channels_.contains(target)) {
    const auto oldest = std::min_element(
        ticket_channels_.begin(), ticket_channels_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    evicted = std::move(oldest->second.channel);
    ticket_channels_.erase(oldest);
  }
  TicketChannel& entry = ticket_channels_.try_emplace(target).first->second;
  if (!entry.channel) entry.channel = std::move(made);
  entry.used = ++ticket_channel_uses_;
  return entry.channel;
}

}  // namespace pawl::detail
