// SPDX-License-Identifier: Apache-2.0
#include "rpc/data_link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "guard/policy.h"
#include "memory/pool_core.h"
#include "rpc/connection.h"
#include "rpc/engine.h"

namespace pawl::rpc {

namespace {

constexpr Duration kHelloTimeout = std::chrono::seconds(5);  // from its making to both hellos
constexpr std::uint32_t kDataCallMessages = 8;
constexpr std::uint32_t kDataSessionMessages = 4;

/// How many messages a data endpoint has room for: few, and the same at both ends, whatever the
/// control endpoint's are.
HandshakeLimits message_limits(HandshakeLimits limits) {
  limits.call_messages = kDataCallMessages;
  limits.session_messages = kDataSessionMessages;
  return limits;
}

constexpr std::uint32_t kSendsMax = 2 * (kDataCallMessages + kDataSessionMessages);

}  // namespace

fabric::EndpointOptions DataLink::options(Connection& connection, bool windows) {
  const fabric::Capabilities& can = connection.engine().fabric().capabilities();
  fabric::EndpointOptions options;
  options.group = connection.lend_group();
  options.send_depth = std::min(can.send_depth_max, can.read_depth_max + 4);
  options.receive_depth = 2;
  options.read_depth = can.read_depth_max;
  options.bulk = true;
  if (windows) {
    options.send_depth = std::min(can.send_depth_max, can.read_depth_max + kSendsMax + 512);
    options.receive_depth = kDataCallMessages + kDataSessionMessages;
  }
  return options;
}

bool DataLink::windows_fit(const fabric::Capabilities& device) {
  // The binds and invalidates of one call, at least.
  return device.send_depth_max >= kSendsMax + 2 * guard::kWindowSegmentsMax &&
         device.receive_depth_max >= kDataCallMessages + kDataSessionMessages;
}

DataLink::DataLink(Connection& connection, DataRole role, std::uint32_t incarnation,
                   fabric::EndpointId endpoint)
    : connection_(connection),
      role_(role),
      incarnation_(incarnation),
      endpoint_(connection, connection.engine().puller(), endpoint) {
  if (!connection.windows_negotiated()) return;
  Engine& engine = connection.engine();
  if (role == connection.role_peer_reads()) {
    const std::uint32_t depth = options(connection, true).send_depth;
    guard::WindowEnd::Options sizes;
    sizes.quarantine_timeout = engine.context().options.quarantine_timeout;
    sizes.slots_max = depth > kSendsMax ? depth - kSendsMax : 0;
    windows_.emplace(*this, engine.fabric(), endpoint, engine.poller(), engine.windows(),
                     engine.stats(), *engine.context().log, sizes);
  }
  session_.emplace(engine.fabric(), engine.device(), engine.slots(), *this, engine.stats(),
                   message_limits(engine.context().limits), kSendsMax, windows());
}

DataLink::~DataLink() = default;

Status DataLink::post_receives() {
  Engine& engine = connection_.engine();
  Poller& poller = engine.poller();
  hello_timeout_.arm(poller, poller.now() + kHelloTimeout, &DataLink::on_hello_timeout, this);
  if (!session_) return post_hello_receive();
  const HandshakeLimits limits = message_limits(engine.context().limits);
  Result<Buffer> memory = engine.context().pool.core().allocate_messages(Session::receives(limits) *
                                                                         limits.receive_bytes);
  if (!memory.ok()) return memory.status();
  return session_->open(endpoint_.id, *std::move(memory));
}

void DataLink::on_hello_timeout(void* link) {
  auto* self = static_cast<DataLink*>(link);
  self->connection_.data_link_over(*self, {Code::data_lost,
                                           "a data endpoint never said its hello, or "
                                           "did not acknowledge this side's"});
}

Hello DataLink::own_hello() const {
  Hello hello;
  hello.epoch = connection_.own_.epoch;
  hello.incarnation = connection_.own_.incarnation;
  hello.transcript = incarnation_;
  return hello;
}

Status DataLink::connected(std::uint32_t peer_read_depth) {
  connected_ = true;
  const std::uint32_t depth =
      std::min(connection_.engine().fabric().capabilities().read_depth_max, peer_read_depth);
  endpoint_.reads_max = std::max(1u, depth > 0 ? depth - 1 : 0);  // one more stalls the queue
  if (!session_) return send_hello();
  session_->start(message_limits(connection_.peer_.limits));
  FrameHeader header;
  header.type = FrameType::hello;
  std::array<std::byte, 64> body;
  (void)session_->queue_session(header, std::span(body).first(encode(own_hello(), body)));
  connection_.mark_dirty();
  return {};
}

// --- without window guards: one message each way -------------------------------------------------

Status DataLink::post_hello_receive() {
  MessageSlots& slots = connection_.engine().slots();
  const std::optional<std::uint32_t> slot = slots.take_spare();
  if (!slot) return {Code::resource_exhausted, "too many data endpoints wait for a hello"};
  const fabric::LocalSegment segment{
      slots.bytes(*slot).data(), static_cast<std::uint32_t>(slots.slot_bytes()), slots.handle()};
  fabric::WorkRequest request;
  request.id = *slot;
  request.op = fabric::Opcode::receive;
  request.local = {&segment, 1};
  Status why;
  if (connection_.engine().fabric().post(endpoint_.id, {&request, 1}, why) == 1) return {};
  slots.give_back(*slot);
  return why;
}

Status DataLink::send_hello() {
  MessageSlots& slots = connection_.engine().slots();
  const std::optional<std::uint32_t> slot = slots.take();
  if (!slot) return {Code::resource_exhausted, "all message slots are in use"};
  const std::span<std::byte> out = slots.bytes(*slot);
  FrameHeader frame;
  frame.type = FrameType::hello;
  MessageHeader header;
  header.message_class = MessageHeader::Class::session;
  header.frames = 1;
  frame.bytes = static_cast<std::uint32_t>(
      encode(own_hello(), out.subspan(MessageHeader::kBytes + FrameHeader::kBytes)));
  encode(frame, out.subspan(MessageHeader::kBytes));
  header.bytes = FrameHeader::kBytes + frame.bytes;
  encode(header, out);
  const fabric::LocalSegment segment{
      out.data(), static_cast<std::uint32_t>(MessageHeader::kBytes + header.bytes), slots.handle()};
  fabric::WorkRequest request;
  request.id = *slot;
  request.op = fabric::Opcode::send;
  request.local = {&segment, 1};
  Status why;
  if (connection_.engine().fabric().post(endpoint_.id, {&request, 1}, why) == 1) return {};
  slots.give_back(*slot);
  return why;
}

Status DataLink::on_hello_message(const fabric::Completion& completion) {
  Status status;
  MessageSlots& slots = connection_.engine().slots();
  if (completion.op == fabric::Opcode::receive &&
      completion.status == fabric::CompletionStatus::success) {
    const std::span<const std::byte> message = std::as_const(slots)
                                                   .bytes(static_cast<std::uint32_t>(completion.id))
                                                   .first(completion.bytes);
    MessageHeader header;
    FrameHeader frame;
    const char* why = nullptr;
    std::span<const std::byte> rest, body;
    if (hello_seen_) {
      status = {Code::protocol_error, "a message came over a data endpoint"};
    } else if (!decode(message, header, why)) {
      status = {Code::protocol_error, why};
    } else if (rest = message.subspan(MessageHeader::kBytes); !next_frame(rest, frame, body, why)) {
      status = {Code::protocol_error, why};
    } else if (frame.type != FrameType::hello || !rest.empty()) {
      status = {Code::protocol_error, "the first message of a data endpoint is not its hello"};
    } else {
      status = on_hello(body);
    }
  }
  slots.give_back(static_cast<std::uint32_t>(completion.id));
  return status;
}

// --- both ----------------------------------------------------------------------------------------

Status DataLink::on_hello(std::span<const std::byte> body) {
  Hello hello;
  const char* why = nullptr;
  if (!decode(body, hello, why)) return {Code::protocol_error, why};
  if (hello.epoch != connection_.own_.epoch || hello.incarnation != connection_.peer_.incarnation ||
      hello.transcript != incarnation_) {
    return {Code::protocol_error, "a data endpoint belongs to another connection than it says"};
  }
  hello_seen_ = true;
  return {};
}

Status DataLink::on_completion(const fabric::Completion& completion) {
  if (completion.op == fabric::Opcode::bind || completion.op == fabric::Opcode::invalidate) {
    windows_->on_completion(completion);
    close_when_idle();
    return {};
  }
  const Status status = session_ ? on_message(completion) : on_hello_message(completion);
  if (completion.op == fabric::Opcode::send) hello_sent_ = true;
  if (hello_seen_ && hello_sent_) hello_timeout_.cancel();
  if (endpoint_.usable) connection_.engine().puller().endpoint_has_room(endpoint_);
  if (status.ok() && connected_ && hello_seen_ && !closing_ && !endpoint_.usable) {
    endpoint_.usable = true;
    connection_.data_link_usable(*this);
  }
  return status;
}

void DataLink::close() {
  closing_ = true;
  hello_timeout_.cancel();
  connection_.engine().puller().endpoint_failed(endpoint_);
  if (session_) session_->stop();
  if (windows_) {
    if (!windows_->idle()) connection_.engine().fabric().set_error(endpoint_.id);
    windows_->lost();
  }
  close_when_idle();
}

// An endpoint is not destroyed under windows that are bound through it.
void DataLink::close_when_idle() {
  if (!closing_ || closed_ || (windows_ && !windows_->idle())) return;
  closed_ = true;
  connection_.engine().fabric().close(endpoint_.id);
}

void DataLink::device_gone() {
  closed_ = true;
  if (session_) session_->device_gone();
  if (windows_) windows_->device_gone();
}

// --- with window guards --------------------------------------------------------------------------

Status DataLink::on_message(const fabric::Completion& completion) {
  if (completion.op == fabric::Opcode::send) {
    session_->on_send(completion);
    if (session_->wants_flush()) connection_.mark_dirty();
    return {};
  }
  if (completion.status != fabric::CompletionStatus::success || closing_ ||
      connection_.state() != Connection::State::ready) {
    return {};
  }
  // What is wrong with a message is wrong with the connection.
  if (Status read = session_->on_receive(completion); !read.ok()) {
    connection_.engine().fail_later(connection_, read);
    return {};
  }
  std::erase_if(early_cancels_, [&](const EarlyCancel& cancel) {
    return static_cast<std::int32_t>(session_->call_messages_received() - cancel.message) >= 0;
  });
  if (session_->wants_flush()) connection_.mark_dirty();
  return {};
}

Status DataLink::admit_frame(const FrameHeader& header) {
  if (!hello_seen_ && header.type != FrameType::hello) {
    return {Code::protocol_error, "the first frame of an endpoint is not its hello"};
  }
  return {};
}

Status DataLink::on_frame(const FrameHeader& header, std::span<const std::byte> body) {
  switch (header.type) {
    case FrameType::hello:
      if (hello_seen_) return {Code::protocol_error, "an endpoint said hello twice"};
      return on_hello(body);
    case FrameType::request:
    case FrameType::response:
      if (role_ == connection_.role_we_read()) {
        return connection_.on_data_frame(*this, header, body);
      }
      return {Code::protocol_error, "a call came over the data endpoint on which its sender reads"};
    default:
      return {Code::protocol_error, "a session frame came over a data endpoint"};
  }
}

void DataLink::on_hint(std::uint64_t hint) { connection_.on_hint(hint); }
std::uint64_t DataLink::hint_to_send() const { return connection_.hint_to_send(); }

void DataLink::break_endpoint(const char* why) {
  connection_.data_link_over(*this, {Code::data_lost, why});
}

const std::string& DataLink::peer_address() const { return connection_.peer_address(); }

void DataLink::windows_back() {
  connection_.engine().serve_window_waiters();
  close_when_idle();
}

Status DataLink::cancelled_early(std::uint64_t call, std::uint32_t message) {
  if (static_cast<std::int32_t>(session_->call_messages_received() - message) >= 0) return {};
  if (early_cancels_.size() >= kEarlyCancelsMax) {
    return {Code::protocol_error, "4096 cancels came whose requests are to come later"};
  }
  early_cancels_.push_back({call, message});
  return {};
}

bool DataLink::was_cancelled(std::uint64_t call) {
  return std::erase_if(early_cancels_,
                       [&](const EarlyCancel& cancel) { return cancel.call == call; }) > 0;
}

}  // namespace pawl::rpc
