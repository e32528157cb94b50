// SPDX-License-Identifier: Apache-2.0
#include "fuzz/peer.h"

namespace pawl::fuzz {

namespace {
constexpr int kTurnsMax = 10'000;
constexpr std::uint64_t kPeerIncarnation = 0x1ca4;
}  // namespace

Bench::Bench() {
  NodeOptions options;
  options.clock = &clock_;
  options.fabric_source = &source_;
  options.log = &log_;
  options.seed = 7;
  options.receive_messages = 8;
  options.receive_bytes = kReceiveBytes;
  options.message_bytes_max = kMessageBytesMax;
  options.inline_bytes_max = kInlineBytesMax;
  options.handler_queue_max = 16;
  options.pool.grow_inline = true;
  options.pool.bytes_max = std::size_t{256} << 20;
  options.pool.slab_bytes = std::size_t{1} << 20;
  options.pool.leases_max = 1024;
  options.pool.generation_seed = 7;
  node_.emplace(options);
  require(node_->status().ok() && source_.fabric != nullptr, "the node under test works");
}

void Bench::serve(Service& service) {
  Result<Server> server = node_->serve("here", service);
  require(server.ok(), "the node under test serves");
  server_ = *std::move(server);
}

void Bench::turn() {
  int turns = 0;
  while (node_->run_once()) require(++turns < kTurnsMax, "a node comes to rest");
}

void Bench::pass(Duration time) {
  clock_.advance(time);
  turn();
}

bool Bench::arrive(fabric::EndpointId endpoint, Input message) {
  const Exact exact(message);
  return fabric().arrive(endpoint, exact.bytes());
}

rpc::Handshake usual_offer() {
  rpc::Handshake offer;
  offer.incarnation = kPeerIncarnation;
  offer.guards = rpc::guard_bit(Guard::verify);
  offer.limits = {.receive_bytes = 1024,
                  .call_messages = 8,
                  .session_messages = 8,
                  .message_bytes_max = Bench::kMessageBytesMax,
                  .read_depth = 4};
  offer.node_name = "peer";
  return offer;
}

std::vector<std::byte> frame_bytes(rpc::FrameHeader header, Input body) {
  header.bytes = static_cast<std::uint32_t>(body.size());
  std::vector<std::byte> bytes(rpc::FrameHeader::kBytes + body.size());
  encode(header, bytes);
  std::copy(body.begin(), body.end(), bytes.begin() + rpc::FrameHeader::kBytes);
  return bytes;
}

Peer::Peer(Bench& bench, const rpc::Handshake& offer) : bench_(&bench), offer_(offer) {
  const std::vector<std::byte> hello = encode_handshake(offer);
  control_ = bench.fabric().connect_request(hello);
  bench.turn();
  const std::vector<std::byte>& reply = bench.fabric().accepted[control_.value];
  const Result<rpc::Handshake> theirs = rpc::decode_handshake(reply);
  if (!theirs.ok()) return;  // refused
  theirs_ = *theirs;
  epoch_ = theirs_.epoch;
  transcript_ = rpc::handshake_transcript(hello, reply);
}

Peer::Peer(Bench& bench, fabric::EndpointId endpoint, const std::vector<std::byte>& their_hello,
           const rpc::Handshake& offer)
    : bench_(&bench), offer_(offer), control_(endpoint), epoch_(offer.epoch) {
  const std::vector<std::byte> reply = encode_handshake(offer);
  bench.fabric().connected(endpoint, reply);
  bench.turn();
  if (const Result<rpc::Handshake> theirs = rpc::decode_handshake(their_hello); theirs.ok()) {
    theirs_ = *theirs;
  }
  transcript_ = rpc::handshake_transcript(their_hello, reply);
}

std::vector<std::byte> Peer::hello_frame() const {
  rpc::Hello hello;
  hello.epoch = epoch_;
  hello.incarnation = offer_.incarnation;
  hello.transcript = transcript_;
  rpc::FrameHeader header;
  header.type = rpc::FrameType::hello;
  return frame_bytes(header, body_bytes(hello));
}

void Peer::say_hello() {
  bench_->arrive(control_, message(hello_frame(), 1, false));
  bench_->turn();
}

std::vector<std::byte> Peer::message(const std::vector<std::byte>& frames, std::uint16_t count,
                                     bool call) const {
  rpc::MessageHeader header;
  header.message_class =
      call ? rpc::MessageHeader::Class::call : rpc::MessageHeader::Class::session;
  header.frames = count;
  header.bytes = static_cast<std::uint32_t>(frames.size());
  const auto& sent = bench_->fabric().messages[control_.value];
  header.call_messages_returned = sent.call;
  header.session_messages_returned = sent.session;
  std::vector<std::byte> bytes(rpc::MessageHeader::kBytes);
  encode(header, bytes);
  bytes.insert(bytes.end(), frames.begin(), frames.end());
  return bytes;
}

std::optional<testing::SentFrame> Peer::heard(rpc::FrameType type) {
  auto& sent = bench_->fabric().sent;
  for (auto it = sent.begin(); it != sent.end(); ++it) {
    if (it->endpoint != control_ || it->header.type != type) continue;
    testing::SentFrame frame = std::move(*it);
    sent.erase(it);
    return frame;
  }
  return std::nullopt;
}

}  // namespace pawl::fuzz
