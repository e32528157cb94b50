// SPDX-License-Identifier: Apache-2.0
#include "rpc/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "memory/buffer_access.h"
#include "memory/lease.h"
#include "pawl/stats.h"

namespace pawl::rpc {

namespace {
// A piece of a long body is worth a message's rest only if it carries this much.
constexpr std::size_t kFragmentBytesMin = 256;
}  // namespace

Session::Session(fabric::Fabric& fabric, std::size_t device, MessageSlots& slots,
                 FrameHandler& handler, NodeStats& stats, const HandshakeLimits& own,
                 std::uint32_t sends_max, guard::WindowEnd* windows)
    : fabric_(fabric),
      device_(device),
      slots_(slots),
      handler_(handler),
      stats_(stats),
      windows_(windows),
      own_(own),
      sends_max_(std::min(sends_max, fabric.capabilities().send_depth_max)) {}

Session::~Session() {
  PAWL_CHECK(sends_in_flight_ == 0, "a session ends after the last completion of its endpoint");
  out_.clear();
  long_out_.clear();
}

Status Session::open(fabric::EndpointId endpoint, Buffer memory) {
  endpoint_ = endpoint;
  receive_memory_ = std::move(memory);
  receive_handle_ = BufferAccess::handle(receive_memory_, device_);
  reposts_.resize(receives(own_));
  std::iota(reposts_.begin(), reposts_.end(), 0);
  const Status posted = post_receives(reposts_);
  reposts_.clear();
  return posted;
}

void Session::start(const HandshakeLimits& peer) {
  peer_ = peer;
  started_ = true;
}

void Session::stop() {
  started_ = false;
  out_.clear();
  long_out_.clear();
  session_out_.clear();
  reposts_.clear();
  request_assembly_ = {};
  response_assembly_ = {};
}

OutFrame* Session::take_unsent() {
  if (OutFrame* frame = out_.pop_front()) return frame;
  for (OutFrame& frame : long_out_) {
    if (frame.fragments.sent > 0) continue;
    frame.unlink();
    return &frame;
  }
  return nullptr;
}

// All or the reason why not; a chain of several costs the device no more than one.
Status Session::post_receives(std::span<const std::uint32_t> indexes) {
  std::array<fabric::WorkRequest, kMessagesPerPost> chain;
  std::array<fabric::LocalSegment, kMessagesPerPost> segments;
  while (!indexes.empty()) {
    const std::size_t count = std::min(indexes.size(), chain.size());
    for (std::size_t i = 0; i < count; ++i) {
      segments[i] = {
          .address = receive_memory_.bytes().data() + std::size_t{indexes[i]} * own_.receive_bytes,
          .length = own_.receive_bytes,
          .memory = receive_handle_};
      chain[i] = fabric::WorkRequest{};
      chain[i].id = indexes[i];
      chain[i].op = fabric::Opcode::receive;
      chain[i].local = {&segments[i], 1};
    }
    Status why;
    if (fabric_.post(endpoint_, std::span(chain).first(count), why) != count) return why;
    indexes = indexes.subspan(count);
  }
  return {};
}

void Session::repost_receives() {
  // Where it fails the endpoint is in ERR; its `failed` event says why.
  if (started_) (void)post_receives(reposts_);
  reposts_.clear();
}

void Session::queue(OutFrame& frame, bool express) {
  const std::size_t alone = MessageHeader::kBytes + FrameHeader::kBytes + frame.body_bytes();
  if (alone > std::min<std::size_t>(slots_.slot_bytes(), peer_.receive_bytes)) {
    long_out_.push_back(frame);
  } else if (express) {
    out_.push_front(frame);
  } else {
    out_.push_back(frame);
  }
}

void Session::drop_request(std::uint64_t call) {
  if (request_assembly_.header.call == call) request_assembly_ = {};
}

std::size_t Session::body_bytes_max() const {
  return std::min(own_.message_bytes_max, peer_.message_bytes_max);
}

// A side owes the credits of half a class before it spends a message on saying so.
bool Session::credit_due() const {
  return call_received_ - call_told_ >= (own_.call_messages + 1) / 2 ||
         session_received_ - session_told_ >= (own_.session_messages + 1) / 2;
}

bool Session::may_send() const {
  return !slots_.empty() && sends_in_flight_ < sends_max_ && sends_in_flight_ < slots_.share() &&
         wants_message();
}

// Something waits, and the peer has a receive for it.
bool Session::wants_message() const {
  if (!started_) return false;
  if (calls_wait() && call_credit() > 0) return true;
  if (!session_out_.empty()) return session_credit() > 1 || call_credit() > 0;
  return credit_due() && session_credit() > 0;
}

bool Session::flush(TimePoint now) {
  repost_receives();
  detail::FrameVector<fabric::WorkRequest> chain;
  std::array<fabric::LocalSegment, kMessagesPerPost> segments;
  bool any = false;
  while (may_send()) {
    chain.clear();
    chain.reserve(segments.size());
    std::size_t count = 0;
    while (count < segments.size() && may_send()) {
      // Session frames travel with a call message when there is one, or take its credit when
      // their own is short; the last session credit is kept for returning credits.
      const bool call_class =
          call_credit() > 0 && (calls_wait() || (!session_out_.empty() && session_credit() <= 1));
      const std::uint32_t slot = *slots_.take();
      const std::size_t bytes = build_message(slots_.bytes(slot), call_class);
      if (bytes == 0) {  // every frame that waited said no, and no credit is due
        slots_.give_back(slot);
        break;
      }
      ++(call_class ? call_sent_ : session_sent_);
      if (windows_ != nullptr) windows_->take_pending(chain);
      segments[count] = {slots_.bytes(slot).data(), static_cast<std::uint32_t>(bytes),
                         slots_.handle()};
      fabric::WorkRequest send;
      send.id = slot;
      send.op = fabric::Opcode::send;
      send.local = {&segments[count], 1};
      chain.push_back(send);
      sent_at_[(oldest_send_ + sends_in_flight_) % sent_at_.size()] = now;
      ++sends_in_flight_;
      ++count;
    }
    if (count == 0) break;
    Status why;
    const std::size_t posted = fabric_.post(endpoint_, chain, why);
    // The endpoint is in ERR and `failed` follows, or its owner is to end it.
    if (posted < chain.size() && why.code() != Code::failed_precondition) {
      refused_ = std::move(why);
    }
    const std::size_t in_flight = sends_in_flight_;
    give_back_unposted(std::span<const fabric::WorkRequest>(chain).subspan(posted));
    const std::size_t sent = count - (in_flight - sends_in_flight_);
    stats_.messages_sent += sent;
    any = any || sent > 0;
    if (posted < chain.size()) break;
  }
  if (started_ && calls_wait() && call_credit() == 0) ++stats_.credit_stalls;
  return any;
}

void Session::give_back_unposted(std::span<const fabric::WorkRequest> unposted) {
  for (const fabric::WorkRequest& request : unposted) {
    if (request.op == fabric::Opcode::bind) {
      windows_->not_posted(request);
    } else {
      slots_.give_back(static_cast<std::uint32_t>(request.id));
      --sends_in_flight_;
    }
  }
}

std::size_t Session::build_message(std::span<std::byte> out, bool call_class) {
  const std::size_t room = std::min<std::size_t>(out.size(), peer_.receive_bytes);
  MessageHeader header;
  header.message_class = call_class ? MessageHeader::Class::call : MessageHeader::Class::session;
  std::size_t at = MessageHeader::kBytes;
  at += session_out_.take(out.subspan(at, room - at), header.frames);
  if (call_class) at += pack_call_frames(out.subspan(at, room - at), header.frames);
  if (header.frames == 0) {
    if (!credit_due() || session_credit() == 0) return 0;
    FrameHeader credit;
    credit.type = FrameType::credit;
    at += encode(credit, out.subspan(at));
    header.frames = 1;
    // Every queued frame declined: what goes out is a credit message, whichever class was planned.
  }
  header.bytes = static_cast<std::uint32_t>(at - MessageHeader::kBytes);
  header.call_messages_returned = call_told_ = call_received_;
  header.session_messages_returned = session_told_ = session_received_;
  header.hint = handler_.hint_to_send();
  encode(header, out);
  return at;
}

// Short frames, but half of the message is kept for the long one that is under way, so that
// neither holds up the other.
std::size_t Session::pack_call_frames(std::span<std::byte> out, std::uint16_t& frames) {
  const std::size_t for_short = long_out_.empty() ? out.size() : out.size() / 2;
  std::size_t at = 0;
  while (OutFrame* frame = out_.front()) {
    const std::size_t body = frame->body_bytes();
    const std::size_t bytes = FrameHeader::kBytes + body;
    if (bytes > out.size() - at || (at > 0 && at + bytes > for_short)) break;
    frame->unlink();
    if (!frame->prepare_frame()) continue;
    frame->message = call_sent_ + 1;
    FrameHeader header = frame->frame_header();
    header.bytes = static_cast<std::uint32_t>(body);
    encode(header, out.subspan(at));
    frame->encode_body(out.subspan(at + FrameHeader::kBytes, body));
    at += bytes;
    ++frames;
    frame->frame_sent();
  }
  return at + pack_fragment(out.subspan(at), frames);
}

// One piece of a long body: the first in a frame of the body's own type, the others in `fragment`
// frames, all but the last with kFrameMore.
std::size_t Session::pack_fragment(std::span<std::byte> room, std::uint16_t& frames) {
  constexpr std::size_t kPrefix = FrameHeader::kBytes + Fragment::kFixedBytes;
  if (room.size() < kPrefix + kFragmentBytesMin) return 0;
  OutFrame* frame = long_out_.front();
  while (frame != nullptr && frame->fragments.sent == 0) {
    frame->unlink();  // one that says no may be gone
    if (frame->prepare_frame()) {
      long_out_.push_front(*frame);
      break;
    }
    frame = long_out_.front();
  }
  if (frame == nullptr) return 0;
  frame->message = call_sent_ + 1;
  OutFrame::Fragments& parts = frame->fragments;
  FrameHeader header = frame->frame_header();
  if (parts.sent == 0) {
    parts.body = Payload(frame->body_bytes());
    frame->encode_body(parts.body.bytes());
  } else {
    if (header.type == FrameType::response) header.flags |= kFrameResponse;
    header.type = FrameType::fragment;
  }
  Fragment piece;
  piece.offset = static_cast<std::uint32_t>(parts.sent);
  piece.body_bytes = static_cast<std::uint32_t>(parts.body.size());
  piece.bytes =
      std::as_const(parts.body)
          .bytes()
          .subspan(parts.sent, std::min(room.size() - kPrefix, parts.body.size() - parts.sent));
  parts.sent += piece.bytes.size();
  const bool last = parts.sent == parts.body.size();
  if (!last) header.flags |= kFrameMore;
  header.bytes = static_cast<std::uint32_t>(Fragment::kFixedBytes + piece.bytes.size());
  encode(header, room);
  encode(piece, room.subspan(FrameHeader::kBytes));
  ++frames;
  const std::size_t written = kPrefix + piece.bytes.size();
  if (last) {
    frame->unlink();
    parts = {};
    frame->frame_sent();
  }
  return written;
}

void Session::on_send(const fabric::Completion& completion) {
  slots_.give_back(static_cast<std::uint32_t>(completion.id));
  oldest_send_ = (oldest_send_ + 1) % sent_at_.size();
  --sends_in_flight_;
}

Status Session::on_receive(const fabric::Completion& completion) {
  ++stats_.messages_received;
  const std::span<const std::byte> message =
      std::as_const(receive_memory_)
          .bytes()
          .subspan(completion.id * own_.receive_bytes, completion.bytes);
  MessageHeader header;
  const char* why = nullptr;
  if (!decode(message, header, why)) return {Code::protocol_error, why};
  if (Status credit = take_credit(header); !credit.ok()) return credit;
  if (!had_credit(header.message_class)) {
    return {Code::protocol_error, "the peer sent more messages than it has credit for"};
  }
  handler_.on_hint(header.hint);
  if (Status read = read_frames(message.subspan(MessageHeader::kBytes)); !read.ok()) return read;
  if (!started_) return {};  // a frame ended the connection
  reposts_.push_back(static_cast<std::uint32_t>(completion.id));
  // The peer hears of it by a message, and `flush` posts the receive before it builds one.
  ++(header.message_class == MessageHeader::Class::call ? call_received_ : session_received_);
  return {};
}

Status Session::take_credit(const MessageHeader& header) {
  const std::uint32_t calls = header.call_messages_returned - call_returned_;
  const std::uint32_t sessions = header.session_messages_returned - session_returned_;
  if (calls > call_sent_ - call_returned_ || sessions > session_sent_ - session_returned_) {
    return {Code::protocol_error, "the peer returned credit for messages that were never sent"};
  }
  call_returned_ = header.call_messages_returned;
  session_returned_ = header.session_messages_returned;
  return {};
}

// What the peer was told is the most that it may know to be free.
bool Session::had_credit(MessageHeader::Class message_class) const {
  return message_class == MessageHeader::Class::call
             ? call_received_ - call_told_ < own_.call_messages
             : session_received_ - session_told_ < own_.session_messages;
}

Status Session::read_frames(std::span<const std::byte> rest) {
  while (!rest.empty()) {
    FrameHeader header;
    std::span<const std::byte> body;
    const char* why = nullptr;
    if (!next_frame(rest, header, body, why)) return {Code::protocol_error, why};
    Status handled = handler_.admit_frame(header);
    if (!handled.ok()) return handled;
    if (header.type == FrameType::fragment || (header.flags & kFrameMore) != 0) {
      handled = on_fragment(header, body);
    } else if (header.type != FrameType::credit) {
      handled = handler_.on_frame(header, body);
    }
    if (!handled.ok()) return handled;
    if (!started_) return {};
  }
  return {};
}

Status Session::on_fragment(const FrameHeader& header, std::span<const std::byte> body) {
  Fragment piece;
  const char* why = nullptr;
  if (!decode(body, piece, why)) return {Code::protocol_error, why};
  const bool first = header.type != FrameType::fragment;
  const bool of_response =
      header.type == FrameType::response || (header.flags & kFrameResponse) != 0;
  if (first && header.type != FrameType::request && header.type != FrameType::response) {
    return {Code::protocol_error, "a frame came in parts that may not"};
  }
  Assembly& assembly = of_response ? response_assembly_ : request_assembly_;
  if (first) {
    if (piece.body_bytes > own_.message_bytes_max) {
      return {Code::protocol_error, "a body in parts is longer than message_bytes_max"};
    }
    // One that is under way here was cancelled by its sender in the middle.
    assembly.header = header;
    assembly.header.flags &= static_cast<std::uint8_t>(~kFrameMore);
    assembly.body = Payload(piece.body_bytes);
    assembly.filled = 0;
  } else if (assembly.body.size() == 0 || assembly.header.call != header.call) {
    return {Code::protocol_error, "a fragment belongs to no body that began"};
  }
  if (piece.offset != assembly.filled || piece.body_bytes != assembly.body.size() ||
      piece.bytes.size() > assembly.body.size() - assembly.filled) {
    return {Code::protocol_error, "a fragment does not continue its body"};
  }
  std::memcpy(assembly.body.bytes().data() + assembly.filled, piece.bytes.data(),
              piece.bytes.size());
  assembly.filled += piece.bytes.size();
  const bool complete = assembly.filled == assembly.body.size();
  if (complete == ((header.flags & kFrameMore) != 0)) {
    return {Code::protocol_error, "a body in parts ends before or after its last part"};
  }
  if (!complete) return {};
  Assembly whole = std::move(assembly);
  assembly = {};
  whole.header.bytes = static_cast<std::uint32_t>(whole.body.size());
  return handler_.on_frame(whole.header, std::as_const(whole.body).bytes());
}

}  // namespace pawl::rpc
