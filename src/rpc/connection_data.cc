// SPDX-License-Identifier: Apache-2.0
// A connection's data endpoints. The connecting side opens both, each when bulk is first expected
// in its direction, and again after a loss, with a delay that doubles.
#include <algorithm>

#include "rpc/client_call.h"
#include "rpc/connection.h"
#include "rpc/engine.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {

namespace {
constexpr Duration kDataConnectTimeout = std::chrono::seconds(3);
}  // namespace

bulk::DataEndpoint* Connection::reading_endpoint() {
  if (state_ != State::ready) return nullptr;
  DataRoleState& role = data_[static_cast<std::size_t>(role_we_read())];
  if (role.link && role.link->usable()) return &role.link->endpoint();
  expect_bulk(role_we_read());
  return nullptr;
}

void Connection::expect_bulk(DataRole role) {
  if (!connecting_side_ || state_ != State::ready || broken_) return;
  DataRoleState& state = data_[static_cast<std::size_t>(role)];
  if (!state.link && !state.retry.armed()) open_data(role);
}

bool Connection::needs_data(DataRole role) const {
  if (windows_negotiated()) return true;
  return role == role_we_read() ? !transfers_.empty() : !lent_.empty();
}

void Connection::open_data(DataRole role) {
  DataRoleState& state = data_[static_cast<std::size_t>(role)];
  Handshake hello;
  hello.kind = EndpointKind::data;
  hello.incarnation = own_.incarnation;
  hello.epoch = own_.epoch;
  hello.guards = own_.guards;
  hello.limits = own_.limits;
  hello.connection = peer_.connection;
  hello.connection_secret = peer_.connection_secret;
  hello.role = role;
  hello.endpoint_index = static_cast<std::uint8_t>(role);
  hello.endpoint_incarnation = ++state.incarnation;
  const std::vector<std::byte> bytes = encode_handshake(hello);
  Result<fabric::EndpointId> endpoint =
      engine_.fabric().connect(target_, DataLink::options(*this, windows_negotiated()), bytes,
                               engine_.poller().now() + kDataConnectTimeout);
  if (!endpoint.ok()) {
    state.trouble = endpoint.status();
    retry_data(role);
    return;
  }
  state.link = std::make_unique<DataLink>(*this, role, state.incarnation, *endpoint);
  engine_.route(*endpoint, *this);
  if (Status posted = state.link->post_receives(); !posted.ok())
    data_link_over(*state.link, posted);
}

void Connection::accept_data(fabric::EndpointId endpoint, const Handshake& hello) {
  DataRoleState& state = data_[static_cast<std::size_t>(hello.role)];
  // The connecting side knows better whether the one before still works.
  if (state.link) {
    data_link_over(*state.link, {Code::data_lost, "the peer opened this data endpoint again"});
  }
  state.incarnation = hello.endpoint_incarnation;
  state.link = std::make_unique<DataLink>(*this, hello.role, state.incarnation, endpoint);
  engine_.route(endpoint, *this);
  Status up = state.link->post_receives();
  if (up.ok())
    up = engine_.fabric().accept(endpoint, DataLink::options(*this, windows_negotiated()), {});
  if (!up.ok()) data_link_over(*state.link, up);
}

DataLink* Connection::link_of(fabric::EndpointId endpoint) {
  for (DataRoleState& role : data_) {
    if (role.link && role.link->id() == endpoint) return role.link.get();
  }
  for (const auto& link : closing_links_) {
    if (link->id() == endpoint) return link.get();
  }
  return nullptr;
}

void Connection::data_link_usable(DataLink& link) {
  DataRoleState& state = data_[static_cast<std::size_t>(link.role())];
  state.backoff.connected(engine_.poller().now());
  state.trouble = Status();
  ++engine_.stats().data_endpoints_opened;
  ++engine_.stats().data_endpoints_live;
  if (link.role() == role_we_read()) {
    engine_.puller().endpoint_ready(*this);
  } else {
    serve_windowed();
  }
}

// Touches only the transfers on it. Whoever sees the loss first tells the other side, since the
// owner's device may notice nothing.
void Connection::data_link_over(DataLink& link, const Status& why) {
  DataRoleState& state = data_[static_cast<std::size_t>(link.role())];
  if (state.link.get() != &link) return;  // closing already
  const bool was_usable = link.usable();
  const DataRole role = link.role();
  if (was_usable) {
    --engine_.stats().data_endpoints_live;
  } else {
    state.trouble = why;
  }
  closing_links_.push_back(std::move(state.link));
  // Leases end first. Who lent them, or sent a call there, is told when the link is out of use.
  if (link.windows() != nullptr) engine_.lender().end_bound(lent_, *link.windows());
  take_back_unsent(link);
  link.close();
  if (state_ != State::ready) return;
  tell_calls(link);
  if (was_usable) {
    ++engine_.stats().data_endpoints_lost;
    send_frame(FrameType::data_lost, 0, 0,
               DataLost{static_cast<std::uint8_t>(role), role, link.incarnation()});
  }
  engine_.context().log->debug("data endpoint with " + peer_address_ +
                               " lost: " + std::string(why.what()));
  if (connecting_side_) retry_data(role);
}

void Connection::retry_data(DataRole role) {
  DataRoleState& state = data_[static_cast<std::size_t>(role)];
  const auto fire = [](void* self) {
    auto& connection = *static_cast<Connection*>(self);
    for (const DataRole each : {DataRole::connecting_side_reads, DataRole::accepting_side_reads}) {
      if (connection.needs_data(each)) connection.expect_bulk(each);
    }
  };
  const TimePoint now = engine_.poller().now();
  state.retry.arm(engine_.poller(), now + state.backoff.next(now, engine_.random()), fire, this);
}

// --- messages that carry window keys ---------------------------------------------------------

void Connection::queue_windowed(WindowedFrame& frame, bool express) {
  if (express) {
    windowed_.push_front(frame);
  } else {
    windowed_.push_back(frame);
  }
  expect_bulk(role_peer_reads());
  serve_windowed();
}

// Hands them to the data endpoint over which they go out, in order, as far as there are windows.
void Connection::serve_windowed() {
  DataLink* link = data_[static_cast<std::size_t>(role_peer_reads())].link.get();
  if (state_ != State::ready || link == nullptr || !link->usable()) return;
  while (WindowedFrame* frame = windowed_.front()) {
    guard::WindowReservation windows;
    if (!link->windows()->reserve(frame->windows_wanted(), windows)) {
      engine_.wait_for_windows(*this);
      return;
    }
    static_cast<ListNode<WindowedTag>*>(frame)->unlink();
    frame->on_windows(std::move(windows), *link);
    link->session()->queue(*frame, false);
    mark_dirty();
  }
}

// Nothing of them went out: they go over the next one.
void Connection::take_back_unsent(DataLink& link) {
  if (link.session() == nullptr) return;
  while (OutFrame* frame = link.session()->take_unsent()) {
    auto& windowed = static_cast<WindowedFrame&>(*frame);
    windowed.on_windows({}, link);
    windowed_.push_back(windowed);
  }
}

// What went over a data endpoint that is lost may not have arrived.
void Connection::tell_calls(const DataLink& link) {
  detail::FrameVector<std::uint64_t> lost;
  for (const auto& [id, call] : calls_) {
    if (call->went_over(link.role(), link.incarnation())) lost.push_back(id);
  }
  for (const std::uint64_t id : lost) {
    if (const auto found = calls_.find(id); found != calls_.end()) found->second->endpoint_lost();
  }
}

void Connection::endpoint_lost(bulk::DataEndpoint& endpoint, const Status& why) {
  if (DataLink* link = link_of(endpoint.id)) data_link_over(*link, why);
}

}  // namespace pawl::rpc
