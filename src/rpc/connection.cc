// SPDX-License-Identifier: Apache-2.0
// A connection's life: connect, accept, liveness, drain, end. Its frames: connection_frames.cc;
// its data endpoints: connection_data.cc.
#include "rpc/connection.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "memory/pool_core.h"
#include "rpc/client_call.h"
#include "rpc/engine.h"
#include "rpc/server_call.h"

namespace pawl::rpc {

Connection::Connection(Engine& engine, bool connecting_side,
                       std::shared_ptr<const Registry> registry)
    : engine_(engine),
      connecting_side_(connecting_side),
      registry_(std::move(registry)),
      id_(engine.context().next_connection.fetch_add(1, std::memory_order_relaxed)),
      secret_(engine.random().next()),
      session_(engine.fabric(), engine.device(), engine.slots(), *this, engine.stats(),
               engine.context().limits),
      next_call_(engine.random().next() >> 16) {
  const NodeContext& context = engine.context();
  own_.kind = EndpointKind::control;
  own_.incarnation = context.incarnation;
  own_.guards = context.guards;
  own_.limits = context.limits;
  own_.limits.read_depth = engine.fabric().capabilities().read_depth_max;
  own_.node_name = context.name;
  last_heard_ = engine.poller().now();
  engine.add(*this);
}

Connection::~Connection() {
  PAWL_CHECK(
      calls_.empty() && served_.empty() && lent_.empty() && lent_.none_held() && transfers_.empty(),
      "a connection goes after its calls, leases and transfers");
}

Status Connection::open_session(fabric::EndpointId endpoint) {
  control_ = endpoint;
  control_closed_ = false;
  engine_.route(endpoint, *this);
  Result<Buffer> memory = engine_.context().pool.core().allocate_messages(
      Session::receives(own_.limits) * own_.limits.receive_bytes);
  if (!memory.ok()) return memory.status();
  return session_.open(endpoint, *std::move(memory));
}

namespace {

fabric::EndpointOptions control_options(const Handshake& own, std::uint64_t group) {
  fabric::EndpointOptions options;
  options.group = {group};
  options.send_depth = Session::kSendsInFlightMax;
  options.receive_depth = static_cast<std::uint32_t>(Session::receives(own.limits));
  options.read_depth = 1;
  return options;
}

}  // namespace

Status Connection::connect(const std::string& address, ConnectionOwner& owner, TimePoint deadline,
                           Duration liveness) {
  owner_ = &owner;
  target_ = peer_address_ = address;
  liveness_ = liveness;
  // The accepting side opens nothing towards us, so our id and secret name nothing for it.
  own_hello_ = encode_handshake(own_);
  Result<fabric::EndpointId> endpoint =
      engine_.fabric().connect(address, control_options(own_, id_), own_hello_, deadline);
  if (!endpoint.ok()) {
    owner_ = nullptr;
    fail(endpoint.status());
    return endpoint.status();
  }
  if (Status opened = open_session(*endpoint); !opened.ok()) {
    owner_ = nullptr;
    fail(opened);
    return opened;
  }
  return {};
}

Status Connection::accept(fabric::EndpointId endpoint, Handshake hello,
                          std::vector<std::byte> hello_bytes, ConnectionOwner& owner) {
  owner_ = &owner;
  peer_ = std::move(hello);
  peer_hello_ = std::move(hello_bytes);
  own_.epoch = engine_.random().next();
  own_.connection = id_;
  own_.connection_secret = secret_;
  own_hello_ = encode_handshake(own_);
  Status status = open_session(endpoint);
  if (status.ok()) {
    status = engine_.fabric().accept(endpoint, control_options(own_, id_), own_hello_);
  }
  if (!status.ok()) {
    owner_ = nullptr;
    fail(status);
  }
  return status;
}

// Limits that no honest peer offers would make sessions that cannot work.
Status Connection::check_offer(const Handshake& peer, std::uint64_t own_guards) {
  const HandshakeLimits& limits = peer.limits;
  if (limits.receive_bytes < 1024 || limits.call_messages < 1 || limits.session_messages < 2) {
    return {Code::protocol_error,
            "the peer's handshake offers receives that are too small or too few"};
  }
  if ((own_guards & peer.guards) == 0) {
    return {Code::unimplemented, "this node and its peer have no guard in common"};
  }
  return {};
}

// Ok if it gave none.
Status Connection::refusal_of(const fabric::Event& event) {
  if (event.hello.empty()) return {};
  const Result<Handshake> answer = decode_handshake(event.hello);
  return answer.ok() ? answer->refusal : Status();
}

void Connection::on_event(fabric::Event& event) {
  const bool control = event.endpoint == control_;
  DataLink* link = control ? nullptr : link_of(event.endpoint);
  switch (event.kind) {
    case fabric::EventKind::connected:
      if (control) {
        on_connected(event);
      } else if (link != nullptr) {
        if (Status up = link->connected(peer_.limits.read_depth); !up.ok()) {
          data_link_over(*link, up);
        }
      }
      break;
    case fabric::EventKind::connect_failed: {
      engine_.unroute(event.endpoint);
      Status why = refusal_of(event);
      if (control) {
        control_closed_ = true;
        fail(why.ok() ? event.status : why);
        maybe_gone();  // if it was over already, `close` found no endpoint, and no `closed` follows
      } else if (link != nullptr) {
        if (why.ok()) {
          why = event.status;
        } else {
          why = Status::with_detail(why.code(),
                                    peer_address_ + " refused it: " + std::string(why.what()));
        }
        data_link_over(*link, why);
        on_closed(event.endpoint);
      }
      break;
    }
    case fabric::EventKind::failed:
      if (control) {
        // A peer that broke the fabric's protocol is named like one that broke this one.
        const Code code = event.status.code();
        const bool broke = code == Code::protocol_error || code == Code::too_large;
        fail(Status::with_detail(
            broke ? Code::protocol_error : Code::connection_lost,
            "connection to " + peer_address_ + " lost: " + std::string(event.status.what())));
      } else if (link != nullptr) {
        data_link_over(*link, event.status);
      }
      break;
    case fabric::EventKind::closed:
      engine_.unroute(event.endpoint);
      on_closed(event.endpoint);
      break;
    case fabric::EventKind::connect_request:
    case fabric::EventKind::device:
      break;
  }
}

void Connection::on_connected(fabric::Event& event) {
  if (state_ != State::connecting) return;
  if (!event.peer_address.empty()) peer_address_ = event.peer_address;
  if (connecting_side_) {
    Result<Handshake> hello = decode_handshake(event.hello);
    if (!hello.ok()) return fail(hello.status());
    peer_ = *std::move(hello);
    peer_hello_ = std::move(event.hello);
    own_.epoch = peer_.epoch;
    if (Status good = check_offer(peer_, own_.guards); !good.ok()) return fail(good);
  }
  state_ = State::ready;
  last_heard_ = engine_.poller().now();
  session_.start(peer_.limits);
  say_hello();
  arm_liveness();
  if (windows_negotiated()) {  // who lends there cannot open them, or say that it wants to
    expect_bulk(DataRole::connecting_side_reads);
    expect_bulk(DataRole::accepting_side_reads);
  }
  ++engine_.stats().connections_opened;
  ++engine_.stats().connections_live;
  if (owner_ != nullptr) owner_->connection_ready(*this);
}

void Connection::say_hello() {
  Hello hello;
  hello.epoch = own_.epoch;
  hello.incarnation = own_.incarnation;
  hello.transcript = connecting_side_ ? handshake_transcript(own_hello_, peer_hello_)
                                      : handshake_transcript(peer_hello_, own_hello_);
  send_frame(FrameType::hello, 0, 0, hello);
}

bool Connection::idle() const {
  return calls_.empty() && served_.empty() && lent_.empty() && transfers_.empty();
}

void Connection::drain() {
  if (draining_ || state_ == State::over) return;
  draining_ = true;
  Goaway goaway;
  goaway.grace_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(engine_.context().options.drain_grace)
          .count());
  if (state_ == State::ready) {
    send_frame(FrameType::goaway, 0, 0, goaway);
  } else {
    goaway_acked_ = true;  // it has no calls
  }
  check_drained();
}

// Whatever is to go over this connection is out, or the peer's device has it.
void Connection::acknowledge_goaway() {
  if (!going_away_ || goaway_ack_sent_ || state_ != State::ready) return;
  const auto pending = [](const DataRoleState& role) {
    Session* const session = role.link ? role.link->session() : nullptr;
    return session != nullptr && !session->all_sent();
  };
  if (session_.calls_wait() || !windowed_.empty()) return;
  if (std::any_of(data_.begin(), data_.end(), pending)) return;
  goaway_ack_sent_ = true;
  send(FrameType::goaway_ack, 0, 0, {});
}

void Connection::check_drained() {
  const bool idle = served_.empty() && lent_.empty();
  if (draining_ && goaway_acked_ && idle && state_ != State::over && owner_ != nullptr) {
    owner_->connection_drained(*this);
  }
}

void Connection::break_connection(const char* why) {
  if (state_ == State::over || broken_) return;
  broken_ = true;
  engine_.fabric().set_error(control_);
  for (DataRoleState& role : data_) {
    if (role.link) engine_.fabric().set_error(role.link->id());
  }
  engine_.fail_later(*this, Status(Code::connection_lost, why));
}

void Connection::fail(const Status& why) {
  if (state_ == State::over) return;
  const bool was_ready = state_ == State::ready;
  state_ = State::over;
  Ref<Connection> self(this);
  // Leases end before anything else happens.
  engine_.lender().end_all(lent_, memory::LeaseEnd::connection);
  session_.stop();
  liveness_timer_.cancel();
  for (DataRoleState& role : data_) {
    role.retry.cancel();
    if (role.link) data_link_over(*role.link, why);
  }
  if (!control_closed_) engine_.fabric().close(control_);
  engine_.puller().host_closed(*this, why);
  while (!calls_.empty()) calls_.begin()->second->connection_over(why);
  while (!served_.empty()) served_.begin()->second->connection_over();
  engine_.fabric().close_group({id_});
  if (was_ready) {
    --engine_.stats().connections_live;
    ++engine_.stats().connections_lost;
    if (why.code() == Code::protocol_error) {
      ++engine_.stats().protocol_errors;
      engine_.context().log->warning("connection with " + peer_address_ +
                                     " closed: " + why.to_string());
    }
  } else if (connecting_side_) {
    ++engine_.stats().connects_failed;
  }
  if (ConnectionOwner* owner = std::exchange(owner_, nullptr)) owner->connection_over(*this, why);
  maybe_gone();
}

void Connection::on_closed(fabric::EndpointId endpoint) {
  if (endpoint == control_) {
    control_closed_ = true;
  } else {
    std::erase_if(closing_links_, [&](const auto& link) { return link->id() == endpoint; });
  }
  maybe_gone();
}

// The fabric has said its last word about every endpoint: nothing can come for this object.
void Connection::maybe_gone() {
  if (state_ != State::over || !control_closed_ || !closing_links_.empty()) return;
  engine_.lender().endpoints_gone(lent_);
  if (transfers_.empty()) engine_.release_later(*this);
}

void Connection::device_gone() {
  session_.device_gone();
  for (const auto& link : closing_links_) link->device_gone();
  control_closed_ = true;
  closing_links_.clear();
  maybe_gone();
}

// --- liveness --------------------------------------------------------------------------------

void Connection::arm_liveness() {
  const auto fire = [](void* self) { static_cast<Connection*>(self)->check_liveness(); };
  liveness_timer_.arm(engine_.poller(), engine_.poller().now() + liveness_ / 3, fire, this);
}

// A silent peer is asked; one that does not even answer that is given up. So is one that talks but
// does not acknowledge: what it was sent keeps message slots, which are everybody's.
void Connection::check_liveness() {
  const TimePoint now = engine_.poller().now();
  if (now - last_heard_ >= liveness_) {
    return fail(Status::with_detail(
        Code::connection_lost,
        "nothing was heard from " + peer_address_ + " within the channel's liveness time"));
  }
  if (session_.oldest_send() <= now - liveness_) {
    return fail(Status::with_detail(
        Code::connection_lost,
        peer_address_ + " left a message unacknowledged for the channel's liveness time"));
  }
  for (DataRoleState& role : data_) {
    Session* const session = role.link ? role.link->session() : nullptr;
    if (session != nullptr && session->oldest_send() <= now - liveness_) {
      data_link_over(*role.link, {Code::data_lost,
                                  "the peer left a message over a data endpoint unacknowledged "
                                  "for the channel's liveness time"});
    }
  }
  if (state_ != State::ready) return;
  if (now - last_heard_ >= liveness_ / 3) send_frame(FrameType::ping, 0, 0, Ping{});
  arm_liveness();
}

// --- calls -----------------------------------------------------------------------------------

std::uint64_t Connection::add(ClientCall& call, bool express) {
  const std::uint64_t id = ++next_call_;
  calls_.emplace(id, &call);
  session_.queue(call, express);
  mark_dirty();
  return id;
}

std::uint64_t Connection::add_windowed(ClientCall& call, bool express) {
  const std::uint64_t id = ++next_call_;
  calls_.emplace(id, &call);
  queue_windowed(call, express);
  return id;
}

// Those behind it may want fewer windows.
void Connection::unlist(WindowedFrame& frame) {
  static_cast<OutFrame&>(frame).unlink();
  auto& waits = static_cast<ListNode<WindowedTag>&>(frame);
  if (!waits.linked()) return;
  waits.unlink();
  engine_.windows().look_again();
}

void Connection::remove(ClientCall& call) {
  unlist(call);
  calls_.erase(call.id());
  if (going_away_) mark_dirty();  // it may have been the last that was to go out
}

void Connection::add_response(ServerCall& call, bool express) {
  if (state_ != State::ready) return;
  session_.queue(call, express);
  mark_dirty();
}

void Connection::add_windowed_response(ServerCall& call, bool express) {
  if (state_ == State::ready) queue_windowed(call, express);
}

void Connection::remove(ServerCall& call) {
  unlist(call);
  served_.erase(call.id());
  check_drained();
}

void Connection::mark_dirty() { engine_.mark_dirty(*this); }

bool Connection::flush() {
  bool any = session_.flush(engine_.poller().now());
  for (DataRoleState& role : data_) {
    DataLink* const link = role.link.get();
    Session* const session = link != nullptr ? link->session() : nullptr;
    if (session == nullptr) continue;
    any = session->flush(engine_.poller().now()) || any;  // which may end the link
    if (const Status why = session->refused(); !why.ok()) data_link_over(*link, why);
  }
  if (const Status& why = session_.refused(); !why.ok()) {
    engine_.fail_later(
        *this, Status::with_detail(Code::connection_lost, "the fabric did not take a message for " +
                                                              peer_address_ + ": " +
                                                              std::string(why.what())));
  }
  acknowledge_goaway();
  return any;
}

void Connection::send(FrameType type, std::uint64_t call, std::uint16_t attempt,
                      std::span<const std::byte> body) {
  if (state_ != State::ready || broken_) return;
  FrameHeader header;
  header.type = type;
  header.call = call;
  header.attempt = attempt;
  if (!session_.queue_session(header, body)) {
    engine_.fail_later(
        *this, {Code::protocol_error, "the peer takes no session frames: 1 MiB of them wait"});
  }
  mark_dirty();
}

bool Connection::all_sent() const {
  const auto sent = [](const DataRoleState& role) {
    Session* const session = role.link ? role.link->session() : nullptr;
    return session == nullptr || session->all_sent();
  };
  return session_.all_sent() && windowed_.empty() && std::all_of(data_.begin(), data_.end(), sent);
}

bool Connection::starved() const {
  const auto starved = [](const DataRoleState& role) {
    Session* const session = role.link ? role.link->session() : nullptr;
    return session != nullptr && session->starved();
  };
  return session_.starved() || std::any_of(data_.begin(), data_.end(), starved);
}

void Connection::send_cancel(std::uint64_t call, std::uint16_t attempt, const Cancel& cancel) {
  send_frame(FrameType::cancel, call, attempt, cancel);
}

void Connection::send_confirm(const bulk::LeaseName& lease, bool release, std::uint64_t call,
                              std::uint16_t attempt) {
  send_frame(FrameType::confirm, call, attempt, Confirm{lease, own_.epoch, release});
  if (transfers_.unanswered() > kConfirmsUnansweredMax) {
    engine_.fail_later(*this, {Code::protocol_error, "the peer leaves 4096 confirms unanswered"});
  }
}

void Connection::send_release(const bulk::LeaseName& lease, std::uint64_t call,
                              std::uint16_t attempt) {
  send_frame(FrameType::release, call, attempt, Release{lease, own_.epoch});
}

void Connection::on_completion(const fabric::Completion& completion) {
  if (completion.endpoint != control_) {
    if (completion.op == fabric::Opcode::read) {
      engine_.puller().on_read(completion);
      return maybe_gone();
    }
    DataLink* link = link_of(completion.endpoint);
    PAWL_CHECK(link != nullptr, "a completion comes before its endpoint's closed");
    if (Status status = link->on_completion(completion); !status.ok()) {
      data_link_over(*link, status);
    }
    return acknowledge_goaway();
  }
  if (completion.op == fabric::Opcode::send) {
    session_.on_send(completion);
    if (state_ == State::ready && session_.wants_flush()) mark_dirty();
    return;
  }
  if (completion.status != fabric::CompletionStatus::success || state_ != State::ready) return;
  last_heard_ = engine_.poller().now();
  Status read = session_.on_receive(completion);
  if (!read.ok()) return fail(read);
  if (state_ == State::ready && session_.wants_flush()) mark_dirty();
}

}  // namespace pawl::rpc
