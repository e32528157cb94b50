// SPDX-License-Identifier: Apache-2.0
#include "rpc/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "guard/policy.h"
#include "memory/buffer_access.h"
#include "memory/pool_core.h"
#include "rpc/lane.h"
#include "rpc/server_call.h"

namespace pawl::rpc {

namespace {

flow::StaticWindowOptions flow_options(const fabric::Fabric& fabric) {
  flow::StaticWindowOptions options;
  // One READ more than this stalls the head of a queue pair, and what stands behind it.
  const std::uint32_t depth = fabric.capabilities().read_depth_max;
  options.reads_per_peer_max = std::max(1u, depth > 0 ? depth - 1 : 0);
  return options;
}

constexpr Duration kPublishEvery = std::chrono::milliseconds(1);

}  // namespace

Engine::Engine(NodeContext& context, Poller& poller, std::unique_ptr<fabric::Fabric> fabric,
               std::size_t index, std::uint64_t seed)
    : context_(context),
      poller_(poller),
      fabric_(std::move(fabric)),
      index_(index),
      random_(seed),
      flow_(flow_options(*fabric_)) {}

Engine::~Engine() {
  PAWL_CHECK(all_.empty(), "an engine ends after its connections: shutdown()");
  puller_.reset();
  lender_.reset();
  windows_.reset();
  slots_.reset();
  if (attached_) context_.pool.core().detach(device_);
}

// A device that does not flush (or whose time stands still) is destroyed; its destructor's return
// is the proof that nothing is written any more.
void Engine::destroy_device() {
  context_.pool.core().detach(device_);
  attached_ = false;
  if (windows_) windows_->device_goes();
  fabric_.reset();
  puller_->device_gone();
  std::vector<Ref<Connection>> all;
  for (Connection& connection : all_) all.emplace_back(&connection);
  for (const Ref<Connection>& connection : all) connection->device_gone();
}

Status Engine::start() {
  detail::PoolCore& pool = context_.pool.core();
  Result<std::size_t> device = pool.attach(*fabric_);
  if (!device.ok()) return device.status();
  device_ = *device;
  attached_ = true;
  const std::size_t slot_bytes = context_.limits.receive_bytes;
  Result<Buffer> memory = pool.allocate_messages(kSendSlots * slot_bytes);
  if (!memory.ok()) return memory.status();
  const MemoryHandle handle = BufferAccess::handle(*memory, device_);
  slots_ = std::make_unique<MessageSlots>(*std::move(memory), handle, slot_bytes);
  const auto generation = [this] { return static_cast<std::uint32_t>(random_.next()); };
  if ((context_.guards & (guard_bit(Guard::window) | guard_bit(Guard::window_verify))) != 0) {
    windows_ = std::make_unique<guard::WindowPool>(*fabric_, poller_, kWindows);
    if (Status all = windows_->fill(); windows_->free() < guard::kWindowSegmentsMax) return all;
  }
  bulk::Lender::Options lending;
  lending.leases_max = std::min<std::size_t>(kLeasesMax, context_.options.pool.leases_max);
  lending.first_generation = generation();
  lending.quarantine_timeout = context_.options.quarantine_timeout;
  lender_ = std::make_unique<bulk::Lender>(poller_, *fabric_, device_, pool, stats_, *context_.log,
                                           lending);
  bulk::Puller::Options options;
  options.read_timeout = context_.options.read_timeout;
  options.quarantine_timeout = context_.options.quarantine_timeout;
  options.first_generation = generation();
  puller_ = std::make_unique<bulk::Puller>(poller_, *fabric_, device_, flow_, stats_, *context_.log,
                                           options);
  return {};
}

// --- a turn ----------------------------------------------------------------------------------

std::size_t Engine::poll(TimePoint now) {
  const std::uint64_t before = fabric_->work_done();
  bool out = flush_dirty();
  std::size_t done = take_completions(now);
  if (fabric_->work_done() != before) ++done;
  done += take_events();
  if (flow_.next_timer() <= now) flow_.on_timer(now);
  replenish_windows();
  out = puller_->pump() || out;
  settle_connections();
  out = flush_dirty() || out;
  if (now - published_at_ >= kPublishEvery) publish_stats();
  return done + (out ? 1 : 0);
}

std::size_t Engine::take_completions(TimePoint now) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < kPollsPerTurn; ++i) {
    const std::size_t count = fabric_->poll(now, completions_);
    for (const fabric::Completion& completion : std::span(completions_).first(count)) {
      const auto route = routes_.find(completion.endpoint.value);
      PAWL_CHECK(route != routes_.end(), "a completion comes before its endpoint's closed");
      route->second->on_completion(completion);
    }
    done += count;
    if (count < completions_.size()) break;
  }
  return done;
}

std::size_t Engine::take_events() {
  std::size_t done = 0;
  fabric::Event event;
  while (fabric_->poll_event(event)) {
    ++done;
    if (event.kind == fabric::EventKind::connect_request) {
      on_connect_request(event);
    } else if (event.kind == fabric::EventKind::device) {
      context_.log->warning("device " + std::string(fabric_->name()) + ": " +
                            event.status.to_string());
    } else if (const auto route = routes_.find(event.endpoint.value); route != routes_.end()) {
      const Ref<Connection> connection(route->second);
      connection->on_event(event);
    }
    event = fabric::Event{};
  }
  return done;
}

// One that cannot send all now is marked again by the completion that makes room for it; but the
// message slots are everybody's.
bool Engine::flush(Connection& connection) {
  const bool any = connection.flush();
  const bool listed = static_cast<ListNode<StarvedTag>&>(connection).linked();
  if (connection.starved() && !listed) starved_.push_back(connection);
  return any;
}

bool Engine::flush_starved() {
  bool any = false;
  StarvedList waiting;
  waiting.splice_back(starved_);
  while (!slots_->empty()) {
    Connection* connection = waiting.pop_front();
    if (connection == nullptr) break;
    any = flush(*connection) || any;
  }
  waiting.splice_back(starved_);
  starved_.splice_back(waiting);
  return any;
}

bool Engine::flush_dirty() {
  bool any = flush_starved();
  while (Connection* connection = dirty_.pop_front()) any = flush(*connection) || any;
  return any;
}

void Engine::wait_for_windows(Connection& connection) {
  if (!static_cast<ListNode<NoWindowsTag>&>(connection).linked()) no_windows_.push_back(connection);
}

// First come, first served: one that still finds too few goes to the end.
void Engine::serve_window_waiters() {
  NoWindowsList waiting;
  waiting.splice_back(no_windows_);
  while (Connection* connection = waiting.pop_front()) connection->serve_windowed();
}

// Retired and revoked ones are replaced, a few in a turn.
void Engine::replenish_windows() {
  if (!windows_) return;
  if (Status more = windows_->full() ? Status() : windows_->replenish(); !more.ok()) {
    context_.log->warning("no more memory windows from device " + std::string(fabric_->name()) +
                          ": " + more.to_string());
  }
  if (windows_->take_look()) serve_window_waiters();
}

// What could not be done while a connection's own code was running.
void Engine::settle_connections() {
  while (!failing_.empty()) {
    auto [connection, why] = std::move(failing_.back());
    failing_.pop_back();
    connection->fail(why);
  }
  for (auto& [connection, why] : std::exchange(finishing_, {})) {
    if (connection->all_sent()) {
      connection->fail(why);
    } else if (connection->state() == Connection::State::ready) {
      finishing_.emplace_back(std::move(connection), std::move(why));
    }
  }
  leaving_.clear();
}

bool Engine::wants_turn() const {
  return !dirty_.empty() || !failing_.empty() || (!starved_.empty() && !slots_->empty()) ||
         (!no_windows_.empty() && windows_->look_due());
}

bool Engine::arm() {
  if (wants_turn()) return false;
  publish_stats();
  return fabric_->arm();
}

TimePoint Engine::next_event() const {
  if (wants_turn()) return poller_.now();
  return std::min(fabric_->next_event_time(), flow_.next_timer());
}

// --- connections -----------------------------------------------------------------------------

void Engine::add(ConnectingLane& lane) { lanes_.push_back(lane); }

void Engine::add(Connection& connection) {
  connection.retain();  // until release_later
  all_.push_back(connection);
  connections_.emplace(connection.id(), &connection);
}

void Engine::route(fabric::EndpointId endpoint, Connection& connection) {
  routes_[endpoint.value] = &connection;
}

void Engine::unroute(fabric::EndpointId endpoint) { routes_.erase(endpoint.value); }

void Engine::mark_dirty(Connection& connection) {
  if (!static_cast<ListNode<DirtyTag>&>(connection).linked()) dirty_.push_back(connection);
}

void Engine::fail_later(Connection& connection, const Status& why) {
  failing_.emplace_back(Ref<Connection>(&connection), why);
}

void Engine::fail_after_flush(Connection& connection, const Status& why) {
  finishing_.emplace_back(Ref<Connection>(&connection), why);
}

void Engine::release_later(Connection& connection) {
  if (!static_cast<ListNode<AllTag>&>(connection).linked()) return;
  static_cast<ListNode<AllTag>&>(connection).unlink();
  static_cast<ListNode<DirtyTag>&>(connection).unlink();
  static_cast<ListNode<StarvedTag>&>(connection).unlink();
  static_cast<ListNode<NoWindowsTag>&>(connection).unlink();
  connections_.erase(connection.id());
  leaving_.push_back(Ref<Connection>::adopt(&connection));
}

bool Engine::enqueue_handler() {
  if (handlers_queued_ >= context_.options.handler_queue_max) return false;
  ++handlers_queued_;
  return true;
}

void Engine::add_running(ServerCall& call) { running_.push_back(call); }

Result<fabric::ListenerId> Engine::listen(std::string_view address, AcceptPoint& point) {
  Result<fabric::ListenerId> listener = fabric_->listen(address);
  if (listener.ok()) listeners_[listener->value] = &point;
  return listener;
}

void Engine::close_listener(fabric::ListenerId listener) {
  listeners_.erase(listener.value);
  fabric_->close_listener(listener);
}

void Engine::refuse(fabric::EndpointId endpoint, Status why) {
  Handshake answer;
  answer.incarnation = context_.incarnation;
  answer.node_name = context_.name;
  answer.refusal = std::move(why);
  fabric_->reject(endpoint, encode_handshake(answer));
}

void Engine::on_connect_request(fabric::Event& event) {
  Result<Handshake> hello = decode_handshake(event.hello);
  if (!hello.ok()) {
    ++stats_.protocol_errors;
    return refuse(event.endpoint, hello.status());
  }
  if (hello->kind == EndpointKind::data) return accept_data(event, *hello);
  accept_control(event, *std::move(hello));
}

void Engine::accept_control(fabric::Event& event, Handshake hello) {
  const auto found = listeners_.find(event.listener.value);
  if (found == listeners_.end()) {
    return refuse(event.endpoint, {Code::unavailable, "the server is shutting down"});
  }
  AcceptPoint& point = *found->second;
  Status admitted = point.admit();
  if (admitted.ok() && connections_.size() >= context_.options.connections_max) {
    admitted = {Code::resource_exhausted, "the server has connections_max connections"};
  }
  if (admitted.ok()) admitted = Connection::check_offer(hello, context_.guards);
  if (!admitted.ok()) return refuse(event.endpoint, admitted);
  auto connection = Ref<Connection>::adopt(new Connection(*this, false, point.registry()));
  connection->set_peer_address(event.peer_address);
  const Status accepted =
      connection->accept(event.endpoint, std::move(hello), std::move(event.hello), point);
  if (!accepted.ok()) {
    context_.log->warning("a connection from " + event.peer_address +
                          " could not be accepted: " + accepted.to_string());
    return;
  }
  point.accepted(*connection);
}

// Only who knows the secret that the control connection's handshake gave.
void Engine::accept_data(fabric::Event& event, const Handshake& hello) {
  const auto found = connections_.find(hello.connection);
  if (found == connections_.end() || found->second->secret() != hello.connection_secret ||
      found->second->state() != Connection::State::ready) {
    return refuse(event.endpoint,
                  {Code::permission_denied, "the data endpoint names no connection of this node"});
  }
  found->second->accept_data(event.endpoint, hello);
}

// --- end and counters ------------------------------------------------------------------------

void Engine::shutdown() {
  const Status why(Code::connection_lost, "the node was shut down");
  while (ConnectingLane* lane = lanes_.pop_front()) lane->shut_down(why);
  std::vector<Ref<Connection>> all;
  for (Connection& connection : all_) all.emplace_back(&connection);
  for (const Ref<Connection>& connection : all) connection->fail(why);
  all.clear();
  // Handlers that are still waiting for something: their timers and calls go with this poller.
  while (ServerCall* call = running_.front()) call->drop_handler();
  std::size_t idle = 0;
  while (!all_.empty() && idle < kShutdownTurnsMax) {
    idle = poll(poller_.now()) > 0 || (windows_ && windows_->finish_calls()) ? 0 : idle + 1;
  }
  settle_connections();
  finishing_.clear();
  if (!all_.empty()) destroy_device();
  leaving_.clear();
}

void Engine::publish_stats() {
  published_at_ = poller_.now();
  const std::lock_guard lock(published_mutex_);
  published_ = stats_;
}

NodeStats Engine::published_stats() const {
  const std::lock_guard lock(published_mutex_);
  return published_;
}

}  // namespace pawl::rpc
