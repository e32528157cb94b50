// SPDX-License-Identifier: Apache-2.0
// A connection's data endpoints. The connecting side opens both, each when bulk is first expected
// in its direction, and again after a loss, with a delay that doubles.
#include <algorithm>

#include "rpc/connection.h"
#include "rpc/engine.h"
#include "rpc/wire_recovery.h"

namespace pawl::rpc {

namespace {
constexpr Duration kDataBackoffFirst = std::chrono::milliseconds(1);
constexpr Duration kDataBackoffMax = std::chrono::seconds(1);
constexpr Duration kDataConnectTimeout = std::chrono::seconds(3);
constexpr Duration kDataHelloTimeout = std::chrono::seconds(5);  // from its making to its hello

fabric::EndpointOptions data_options(Engine& engine, std::uint64_t group) {
  const fabric::Capabilities& can = engine.fabric().capabilities();
  fabric::EndpointOptions options;
  options.group = {group};
  options.send_depth = std::min(can.send_depth_max, can.read_depth_max + 4);
  options.receive_depth = 2;
  options.read_depth = can.read_depth_max;
  options.bulk = true;
  return options;
}
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
  Result<fabric::EndpointId> endpoint = engine_.fabric().connect(
      target_, data_options(engine_, id_), bytes, engine_.poller().now() + kDataConnectTimeout);
  if (!endpoint.ok()) {
    retry_data(role);
    return;
  }
  state.link = std::make_unique<DataLink>(*this, role, state.incarnation, *endpoint);
  engine_.route(*endpoint, *this);
  if (Status posted = state.link->post_receive(); !posted.ok()) data_link_over(*state.link, posted);
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
  Status up = state.link->post_receive();
  if (up.ok()) up = engine_.fabric().accept(endpoint, data_options(engine_, id_), {});
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
  data_[static_cast<std::size_t>(link.role())].backoff = Duration{0};
  ++engine_.stats().data_endpoints_opened;
  if (link.role() == role_we_read()) engine_.puller().endpoint_ready(*this);
}

// Touches only the transfers on it. Whoever sees the loss first tells the other side, since the
// owner's device may notice nothing.
void Connection::data_link_over(DataLink& link, const Status& why) {
  DataRoleState& state = data_[static_cast<std::size_t>(link.role())];
  if (state.link.get() != &link) return;  // closing already
  const bool was_usable = link.usable();
  const DataRole role = link.role();
  closing_links_.push_back(std::move(state.link));
  link.close();
  if (state_ != State::ready) return;
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
  state.backoff =
      state.backoff.count() == 0 ? kDataBackoffFirst : std::min(state.backoff * 2, kDataBackoffMax);
  const auto jitter = static_cast<std::int64_t>(
      engine_.random().below(static_cast<std::uint64_t>(state.backoff.count() / 2 + 1)));
  const auto fire = [](void* self) {
    auto& connection = *static_cast<Connection*>(self);
    for (const DataRole each : {DataRole::connecting_side_reads, DataRole::accepting_side_reads}) {
      if (connection.needs_data(each)) connection.expect_bulk(each);
    }
  };
  state.retry.arm(engine_.poller(), engine_.poller().now() + state.backoff + Duration(jitter), fire,
                  this);
}

void Connection::endpoint_stuck(bulk::DataEndpoint& endpoint) {
  if (DataLink* link = link_of(endpoint.id)) {
    data_link_over(*link, {Code::data_lost, "a READ did not complete within read_timeout"});
  }
}

// --- DataLink --------------------------------------------------------------------------------

DataLink::DataLink(Connection& connection, DataRole role, std::uint32_t incarnation,
                   fabric::EndpointId endpoint)
    : connection_(connection),
      role_(role),
      incarnation_(incarnation),
      endpoint_(connection, connection.engine().puller(), endpoint) {}

DataLink::~DataLink() = default;

Status DataLink::post_receive() {
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
  if (connection_.engine().fabric().post(endpoint_.id, {&request, 1}, why) == 1) {
    Poller& poller = connection_.engine().poller();
    hello_timeout_.arm(poller, poller.now() + kDataHelloTimeout, &DataLink::on_hello_timeout, this);
    return {};
  }
  slots.give_back(*slot);
  return why;
}

void DataLink::on_hello_timeout(void* link) {
  auto* self = static_cast<DataLink*>(link);
  self->connection_.data_link_over(*self,
                                   {Code::data_lost, "a data endpoint never said its hello"});
}

Status DataLink::connected(std::uint32_t peer_read_depth) {
  connected_ = true;
  Engine& engine = connection_.engine();
  const std::uint32_t depth =
      std::min(engine.fabric().capabilities().read_depth_max, peer_read_depth);
  endpoint_.reads_max = std::max(1u, depth > 0 ? depth - 1 : 0);  // one more stalls the queue
  MessageSlots& slots = engine.slots();
  const std::optional<std::uint32_t> slot = slots.take();
  if (!slot) return {Code::resource_exhausted, "all message slots are in use"};
  const std::span<std::byte> out = slots.bytes(*slot);
  Hello hello;
  hello.epoch = connection_.own_.epoch;
  hello.incarnation = connection_.own_.incarnation;
  hello.transcript = incarnation_;
  FrameHeader frame;
  frame.type = FrameType::hello;
  MessageHeader header;
  header.message_class = MessageHeader::Class::session;
  header.frames = 1;
  frame.bytes = static_cast<std::uint32_t>(
      encode(hello, out.subspan(MessageHeader::kBytes + FrameHeader::kBytes)));
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
  if (engine.fabric().post(endpoint_.id, {&request, 1}, why) == 1) return {};
  slots.give_back(*slot);
  return why;
}

Status DataLink::on_completion(const fabric::Completion& completion) {
  Status status;
  if (completion.op == fabric::Opcode::receive &&
      completion.status == fabric::CompletionStatus::success) {
    status = hello_seen_ ? Status(Code::protocol_error, "a message came over a data endpoint")
                         : on_hello(completion);
  }
  connection_.engine().slots().give_back(static_cast<std::uint32_t>(completion.id));
  if (status.ok() && connected_ && hello_seen_ && !closing_ && !endpoint_.usable) {
    endpoint_.usable = true;
    connection_.data_link_usable(*this);
  }
  return status;
}

Status DataLink::on_hello(const fabric::Completion& completion) {
  const std::span<const std::byte> message = std::as_const(connection_.engine().slots())
                                                 .bytes(static_cast<std::uint32_t>(completion.id))
                                                 .first(completion.bytes);
  MessageHeader header;
  FrameHeader frame;
  Hello hello;
  const char* why = nullptr;
  if (!decode(message, header, why)) return {Code::protocol_error, why};
  std::span<const std::byte> rest = message.subspan(MessageHeader::kBytes);
  std::span<const std::byte> body;
  if (!next_frame(rest, frame, body, why)) return {Code::protocol_error, why};
  if (frame.type != FrameType::hello || !rest.empty()) {
    return {Code::protocol_error, "the first message of a data endpoint is not its hello"};
  }
  if (!decode(body, hello, why)) return {Code::protocol_error, why};
  if (hello.epoch != connection_.own_.epoch || hello.incarnation != connection_.peer_.incarnation ||
      hello.transcript != incarnation_) {
    return {Code::protocol_error, "a data endpoint belongs to another connection than it says"};
  }
  hello_seen_ = true;
  hello_timeout_.cancel();
  return {};
}

void DataLink::close() {
  closing_ = true;
  hello_timeout_.cancel();
  connection_.engine().puller().endpoint_failed(endpoint_);
  connection_.engine().fabric().close(endpoint_.id);
}

}  // namespace pawl::rpc
