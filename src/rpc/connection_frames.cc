// SPDX-License-Identifier: Apache-2.0
// One frame in, actions out: what a connection does with each frame of its peer.
#include <array>

#include "guard/policy.h"
#include "rpc/client_call.h"
#include "rpc/connection.h"
#include "rpc/engine.h"
#include "rpc/server_call.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {

namespace {
template <class Body>
Status parse(std::span<const std::byte> bytes, Body& body) {
  const char* why = nullptr;
  if (!decode(bytes, body, why)) return {Code::protocol_error, why};
  return {};
}
/// For frames that say nothing which this version needs.
template <class Body>
Status parse_only(std::span<const std::byte> bytes) {
  Body body;
  return parse(bytes, body);
}
}  // namespace

void Connection::on_hint(std::uint64_t hint) {
  engine_.flow().on_hint(flow_peer(), hint, engine_.poller().now());
}
std::uint64_t Connection::hint_to_send() const { return engine_.flow().hint_for(flow_peer()); }

Status Connection::admit_frame(const FrameHeader& header) {
  if (!hello_seen_ && header.type != FrameType::hello) {
    return {Code::protocol_error, "the first frame of an endpoint is not its hello"};
  }
  return {};
}

// Those of closing links, too. What they are told may close links: by index, from the last.
template <class Fn>
void Connection::for_each_window_end(Fn&& fn) {
  for (std::size_t i = closing_links_.size(); i-- > 0;) {
    if (i < closing_links_.size() && closing_links_[i]->windows() != nullptr) {
      fn(*closing_links_[i]->windows());
    }
  }
  DataLink* const link = data_[static_cast<std::size_t>(role_peer_reads())].link.get();
  if (link != nullptr && link->windows() != nullptr) fn(*link->windows());
}

bool Connection::release_held(const bulk::LeaseName& name) {
  bool held = false;
  for_each_window_end(
      [&](guard::WindowEnd& windows) { held = held || windows.release(name.id, name.generation); });
  return held;
}

bool Connection::window_held(std::uint64_t call, Operation<Status>& back) {
  bool held = false;
  for_each_window_end([&](guard::WindowEnd& windows) { held = held || windows.held(call, back); });
  return held;
}

// A reader does what the guard says, so it is one that this node agreed to.
Status Connection::check_guard(const std::optional<LeaseDescriptor>& lease) const {
  if (lease && lease->lease.generation != 0 && !guard_negotiated(lease->guard)) {
    return {Code::protocol_error, "a lease has a guard that was not negotiated"};
  }
  return {};
}

// A window key works over the data endpoint that it came by, and nowhere else.
Status Connection::check_way(const std::optional<LeaseDescriptor>& lease) const {
  const bool windows =
      lease && lease->lease.generation != 0 && guard::policy_of(lease->guard).binds_windows;
  if (windows != (receiving_link_ != nullptr)) {
    return {Code::protocol_error, windows
                                      ? "a window key came over the control endpoint"
                                      : "a call without a window key came over a data endpoint"};
  }
  if (windows && lease->endpoint != static_cast<std::uint8_t>(receiving_link_->role())) {
    return {Code::protocol_error, "a window key came over another endpoint than it names"};
  }
  return {};
}

Status Connection::on_data_frame(DataLink& link, const FrameHeader& header,
                                 std::span<const std::byte> body) {
  if (header.type == FrameType::request && link.was_cancelled(header.call)) {
    return {};  // its cancel was acknowledged: nothing is read for it
  }
  receiving_link_ = &link;
  const Status done =
      header.type == FrameType::request ? on_request(header, body) : on_response(header, body);
  receiving_link_ = nullptr;
  return done;
}

Status Connection::on_frame(const FrameHeader& header, std::span<const std::byte> body) {
  switch (header.type) {
    case FrameType::hello:
      return on_hello(body);
    case FrameType::request:
      return on_request(header, body);
    case FrameType::response:
      return on_response(header, body);
    case FrameType::confirm:
      return on_confirm(header, body);
    case FrameType::confirm_answer:
      return on_confirm_answer(body);
    case FrameType::release:
      return on_release(body);
    case FrameType::cancel:
      return on_cancel(header, body);
    case FrameType::cancel_ack:
      return on_cancel_ack(header, body);
    case FrameType::ping: {
      Ping ping;
      if (Status parsed = parse(body, ping); !parsed.ok()) return parsed;
      send_frame(FrameType::pong, 0, 0, ping);
      return {};
    }
    case FrameType::goaway:
      if (Status parsed = parse_only<Goaway>(body); !parsed.ok()) return parsed;
      going_away_ = true;
      if (owner_ != nullptr) owner_->connection_going_away(*this);
      mark_dirty();
      return {};
    case FrameType::goaway_ack:
      if (!draining_) return {Code::protocol_error, "a goaway was acknowledged that was not sent"};
      goaway_acked_ = true;
      check_drained();
      return {};
    case FrameType::data_lost:
      return on_data_lost(body);
    case FrameType::pong:
      return parse_only<Ping>(body);
    case FrameType::data_lost_answer:
      return parse_only<DataLostAnswer>(body);
    case FrameType::credit:
    case FrameType::fragment:
      return {};
    case FrameType::relend:
    case FrameType::relend_answer:
      return {Code::protocol_error, "RE-LEND is not offered by this version"};
  }
  return {Code::protocol_error, "a frame of an unknown type"};
}

// Both sides repeat in their first frame what they saw of the handshake.
Status Connection::on_hello(std::span<const std::byte> body) {
  Hello hello;
  if (Status parsed = parse(body, hello); !parsed.ok()) return parsed;
  if (hello_seen_) return {Code::protocol_error, "an endpoint said hello twice"};
  const std::uint64_t transcript = connecting_side_ ? handshake_transcript(own_hello_, peer_hello_)
                                                    : handshake_transcript(peer_hello_, own_hello_);
  if (hello.epoch != own_.epoch || hello.incarnation != peer_.incarnation ||
      hello.transcript != transcript) {
    return {Code::protocol_error, "the peer saw another handshake than this node sent"};
  }
  hello_seen_ = true;
  return {};
}

Status Connection::on_request(const FrameHeader& header, std::span<const std::byte> body) {
  Request request;
  if (Status parsed = parse(body, request); !parsed.ok()) return parsed;
  if (Status guard = check_guard(request.lease); !guard.ok()) return guard;
  if (Status way = check_way(request.lease); !way.ok()) return way;
  if (served_.contains(header.call)) {
    return {Code::protocol_error, "a call id is used again while its call is under way"};
  }
  if (served_.size() >= kServedCallsMax) {
    return {Code::protocol_error, "the peer has more than 65536 calls under way"};
  }
  ServerCall* call = ServerCall::make(*this, header, body);
  served_.emplace(header.call, call);
  NodeStats& stats = engine_.stats();
  if (draining_) {
    call->answer_without_handler(Status(Code::unavailable, "the server is shutting down"));
    return {};
  }
  const Registry::Entry* method = registry_ ? registry_->find(request.method) : nullptr;
  if (method == nullptr) {
    ++stats.unknown_methods;
    call->answer_without_handler(
        Status(Code::unimplemented, "the peer serves no method of that name"));
    return {};
  }
  if (method->method.bulk == BulkDirection::download &&
      !guard_negotiated(engine_.context().options.guard.value_or(Guard::verify))) {
    call->answer_without_handler(Status(
        Code::unimplemented,
        "this server lends under a guard that its caller does not offer: memory windows need "
        "NodeOptions::memory_windows at both ends"));
    return {};
  }
  if (served_bytes_ > kServedBytesMax) {
    ++stats.served_shed;
    call->answer_without_handler(
        Status(Code::overloaded, "this caller's calls hold 64 MiB here: take their answers first"));
    return {};
  }
  if (!engine_.enqueue_handler()) {
    ++stats.served_shed;
    call->answer_without_handler(
        Status(Code::overloaded, "the server's handler queue is full (handler_queue_max)"));
    return {};
  }
  call->dispatch(*method);
  return {};
}

Status Connection::on_response(const FrameHeader& header, std::span<const std::byte> body) {
  Response response;
  if (Status parsed = parse(body, response); !parsed.ok()) return parsed;
  if (Status guard = check_guard(response.lease); !guard.ok()) return guard;
  if (Status way = check_way(response.lease); !way.ok()) return way;
  const auto found = calls_.find(header.call);
  if (found == calls_.end() || !found->second->awaits_response(header.attempt)) {
    // A descriptor for a call or attempt that is over: given back at once, unread.
    if (response.lease && response.lease->lease.generation != 0) {
      send_release(response.lease->lease, header.call, header.attempt);
    }
    return {};
  }
  found->second->on_response(response);
  return {};
}

Status Connection::on_confirm(const FrameHeader& header, std::span<const std::byte> body) {
  Confirm confirm;
  if (Status parsed = parse(body, confirm); !parsed.ok()) return parsed;
  bulk::Lender::Check check;
  if (confirm.epoch == own_.epoch) {
    check = engine_.lender().confirm(*this, confirm.lease, confirm.release);
  } else {
    ++engine_.stats().confirms_stale;
  }
  ConfirmAnswer answer;
  answer.lease = confirm.lease;
  answer.valid = check.valid;
  answer.bitmap = check.good_bitmap;
  std::array<std::byte, ConfirmAnswer::kFixedBytes + (kSegmentsMax + 7) / 8> bytes;
  send(FrameType::confirm_answer, header.call, header.attempt,
       std::span(bytes).first(encode(answer, bytes)));
  check_drained();
  return {};
}

Status Connection::on_confirm_answer(std::span<const std::byte> body) {
  ConfirmAnswer answer;
  if (Status parsed = parse(body, answer); !parsed.ok()) return parsed;
  engine_.puller().on_confirm_answer(*this, answer.lease, answer.valid, answer.bitmap);
  return {};
}

Status Connection::on_release(std::span<const std::byte> body) {
  Release release;
  if (Status parsed = parse(body, release); !parsed.ok()) return parsed;
  if (release.epoch == own_.epoch) {
    engine_.lender().release(*this, release.lease);
    check_drained();
  } else {
    ++engine_.stats().releases_ignored;
  }
  return {};
}

Status Connection::on_cancel(const FrameHeader& header, std::span<const std::byte> body) {
  Cancel cancel;
  if (Status parsed = parse(body, cancel); !parsed.ok()) return parsed;
  session_.drop_request(header.call);
  const auto found = served_.find(header.call);
  if (found == served_.end()) {
    const std::size_t index = cancel.endpoint - std::size_t{1};
    if (index < data_.size() && data_[index].link && data_[index].link->session() != nullptr &&
        static_cast<std::uint16_t>(data_[index].link->incarnation()) == cancel.incarnation) {
      Status early = data_[index].link->cancelled_early(header.call, cancel.message);
      if (!early.ok()) return early;
    }
    // Over already, or never seen: nothing is read for it, and nothing will be.
    send_frame(FrameType::cancel_ack, header.call, header.attempt, CancelAck{Ran::unknown});
    return {};
  }
  found->second->on_cancel(cancel.reason);
  return {};
}

Status Connection::on_cancel_ack(const FrameHeader& header, std::span<const std::byte> body) {
  CancelAck ack;
  if (Status parsed = parse(body, ack); !parsed.ok()) return parsed;
  engine_.lender().acknowledge(lent_, header.call);
  for_each_window_end([&](guard::WindowEnd& windows) { windows.acknowledge(header.call); });
  return {};
}

// The peer lost its half of a data endpoint; ours may not have noticed.
Status Connection::on_data_lost(std::span<const std::byte> body) {
  DataLost lost;
  if (Status parsed = parse(body, lost); !parsed.ok()) return parsed;
  DataRoleState& role = data_[static_cast<std::size_t>(lost.role)];
  if (role.link && role.link->incarnation() == lost.incarnation) {
    data_link_over(*role.link, {Code::data_lost, "the peer lost its half of a data endpoint"});
  }
  return {};
}

}  // namespace pawl::rpc
