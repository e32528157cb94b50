// SPDX-License-Identifier: Apache-2.0
// Connections as state machines: the input is a program for up to four peers of one node, which
// lends to them, pulls from them and calls them. One more peer behaves; nothing that the others do
// may touch its connection or its lease. In the end nothing is left; with -DPAWL_FUZZ_CONTROL it
// is, when handlers kept what they lent, and the fuzzer must find how.
#include <memory>
#include <vector>

#include "fuzz/bodies.h"
#include "fuzz/grammar.h"
#include "fuzz/input.h"
#include "fuzz/peer.h"
#include "fuzz/services.h"

namespace pawl::fuzz {
namespace {

using namespace rpc;  // NOLINT: the frames that peers say

constexpr int kStepsMax = 100;
constexpr std::size_t kPeersMax = 4;
constexpr std::size_t kCallsMax = 4;
constexpr std::uint64_t kMemoryBytesMax = std::uint64_t{64} << 20;

// --- the scene
// ------------------------------------------------------------------------------------

/// A peer that the input speaks for.
struct Player {
  explicit Player(Peer its_peer) : peer(std::move(its_peer)) {}

  Peer peer;
  Knowledge known;
  bool greeted = false;
  std::uint32_t calls_returned = 0, sessions_returned = 0;
  std::vector<fabric::EndpointId> data;  ///< endpoints that are up
};

/// A node and its services. A node costs more than most programs, so it stays for some of them,
/// all of which leave nothing.
struct Stage {
  Services services;
  Bench bench;
  int programs_left = 256;
};

class Scene {
 public:
  explicit Scene(Stage& stage)
      : services_(stage.services), bench_(stage.bench), witness_(listening(), usual_offer()) {
    witness_.say_hello();
    constexpr std::byte kOneBlock{1};
    Request request;
    request.method = kGet.hash;
    request.remaining_us = UINT64_MAX;
    request.payload = {&kOneBlock, 1};
    request.payload_bytes = 1;
    witness_.say(FrameType::request, 1, request);
    const auto response = witness_.heard_body<Response>(FrameType::response);
    require(response && response->lease, "a node lends to a peer that behaves");
    lease_ = response->lease->lease;
    channel_ = bench_.node().channel("peer");
    add_player(Peer(bench_, usual_offer()));
  }

  void step(Splitter& in);
  /// Everything ends, and nothing is left.
  void end();
  void let_all_go() {
    calls_.clear();
    channel_ = Channel();
  }

 private:
  Bench& listening() {
    bench_.serve(services_.service());
    return bench_;
  }
  Player& player(Splitter& in) {
    return players_[in.below(static_cast<unsigned>(players_.size()))];
  }
  void add_player(Peer peer) {
    Player& player = players_.emplace_back(std::move(peer));
    player.known.epoch = player.peer.epoch();
    player.known.leases.push_back(lease_);  // somebody else's
  }

  void say(Splitter& in);
  void feed(Player& from, const std::vector<std::byte>& message);
  [[nodiscard]] bool must_end(Player& from, Input message);
  void say_on_data(Splitter& in);
  void complete_read(Splitter& in);
  void pass(Splitter& in);
  void call(Splitter& in);
  void come_or_answer(Splitter& in);
  void open_data(Splitter& in);
  void lose(Splitter& in);
  void let_go(Splitter& in);
  void learn();
  [[nodiscard]] bool confirmed(bool release);

  Services& services_;
  Bench& bench_;
  Peer witness_;
  LeaseName lease_;
  std::vector<Player> players_;
  Channel channel_;
  std::vector<Started> calls_;
  std::size_t connects_seen_ = 0;
};

void Scene::step(Splitter& in) {
  switch (in.below(16)) {
    case 0:
      complete_read(in);
      break;
    case 1:
      pass(in);
      break;
    case 2:
      call(in);
      break;
    case 3:
      come_or_answer(in);
      break;
    case 4:
      open_data(in);
      break;
    case 5:
      say_on_data(in);
      break;
    case 6:
      lose(in);
      break;
    case 7:
      let_go(in);
      break;
    default:
      say(in);
  }
  learn();
  require(!witness_.over(), "what a peer does ends its own connection only");
  require(bench_.node().pool().stats().bytes_in_use <= kMemoryBytesMax,
          "what peers make a node allocate is bounded");
}

// --- what peers say
// -------------------------------------------------------------------------------

void set_u32(std::vector<std::byte>& bytes, std::size_t at, std::size_t value) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

void Scene::say(Splitter& in) {
  Player& from = player(in);
  const unsigned how = in.below(32);
  if (!from.greeted && how < 30)
    return feed(from, from.peer.message(from.peer.hello_frame(), 1, false));
  std::vector<std::byte> frames;
  std::uint16_t count = 0;
  std::size_t last = 0;  // where the last frame begins
  bool call = in.below(8) == 0;
  for (const unsigned most = 1 + in.below(3); count < most; ++count) {
    const MadeFrame made = make_frame(in, from.known);
    call = call || made.header.type <= FrameType::fragment;
    last = MessageHeader::kBytes + frames.size();
    frames.insert(frames.end(), made.bytes.begin(), made.bytes.end());
  }
  std::vector<std::byte> message = from.peer.message(frames, count, call);
  if (how == 0) {  // a few bytes are others
    for (unsigned i = in.below(4) + 1; i > 0; --i) {
      message[(in.u16() % message.size())] = static_cast<std::byte>(in.u8());
    }
  } else if (how == 1) {
    message.resize(in.u16() % (message.size() + 1));
  } else if (how == 2) {
    const Input bytes = in.bytes(in.u8());
    message.assign(bytes.begin(), bytes.end());
  } else if (how == 3) {  // the last frame has a longer body, and all lengths say so
    message.resize(message.size() + 1 + in.below(8));
    set_u32(message, 4, message.size() - MessageHeader::kBytes);
    set_u32(message, last + 4, message.size() - last - FrameHeader::kBytes);
  }
  feed(from, message);
}

/// Whether this message breaks a rule that can be seen from outside.
bool Scene::must_end(Player& from, Input message) {
  if (breaks_a_rule(message, from.peer.offer().guards & from.peer.theirs().guards)) return true;
  MessageHeader header;
  FrameHeader first;
  Input body;
  const char* why = nullptr;
  require(decode(message, header, why), "a message that breaks no rule is decoded");
  Input rest = message.subspan(MessageHeader::kBytes);
  require(next_frame(rest, first, body, why), "a message that breaks no rule is decoded");
  if (!from.greeted && first.type != FrameType::hello) return true;
  const auto& sent = bench_.fabric().messages[from.peer.control().value];
  if (header.call_messages_returned - from.calls_returned > sent.call - from.calls_returned ||
      header.session_messages_returned - from.sessions_returned >
          sent.session - from.sessions_returned) {
    return true;
  }
  from.calls_returned = header.call_messages_returned;
  from.sessions_returned = header.session_messages_returned;
  return false;
}

void Scene::feed(Player& from, const std::vector<std::byte>& message) {
  if (from.peer.over()) return;
  const bool ends = must_end(from, message);
  if (!bench_.arrive(from.peer.control(), message)) return;
  bench_.turn();
  require(!ends || from.peer.over(), "a message that breaks a rule ends its connection");
  from.greeted = true;
}

void Scene::say_on_data(Splitter& in) {
  Player& from = player(in);
  if (from.data.empty()) return;
  const fabric::EndpointId endpoint = from.data[in.below(static_cast<unsigned>(from.data.size()))];
  if (bench_.fabric().closed_endpoints[endpoint.value]) return;
  const bool was_over = from.peer.over();
  Hello hello;
  hello.epoch = from.known.epoch;
  hello.incarnation = from.peer.offer().incarnation;
  hello.transcript = in.below(4) + 1;
  FrameHeader header;
  header.type = FrameType::hello;
  std::vector<std::byte> bytes = frame_bytes(header, body_bytes(hello));
  if (in.below(8) == 0) bytes = make_frame(in, from.known).bytes;
  if (in.below(8) == 0) bytes[in.u8() % bytes.size()] = static_cast<std::byte>(in.u8());
  bench_.arrive(endpoint, from.peer.message(bytes, 1, false));
  bench_.turn();
  require(from.peer.over() == was_over, "what comes over a data endpoint ends that endpoint only");
}

// --- what the fabric does
// ----------------------------------------------------------------------------

void Scene::complete_read(Splitter& in) {
  using Status = fabric::CompletionStatus;
  constexpr Status kHow[] = {Status::success,       Status::success, Status::success,
                             Status::remote_access, Status::flushed, Status::retry_exceeded};
  for (unsigned i = in.below(4) + 1; i > 0 && !bench_.fabric().reads.empty(); --i) {
    bench_.fabric().complete_read(in.pick(kHow));
    bench_.turn();
  }
}

void Scene::pass(Splitter& in) {
  constexpr Duration kTimes[] = {1us, 1ms, 20ms, 100ms, 1s, 3s};
  bench_.pass(in.pick(kTimes));
  witness_.say(FrameType::ping, 0, Ping{1});  // it is alive
  require(witness_.heard(FrameType::pong).has_value(), "a ping is answered");
}

void Scene::come_or_answer(Splitter& in) {
  testing::ScriptedFabric& fabric = bench_.fabric();
  Handshake offer = usual_offer();
  if (in.below(4) == 0) {
    offer.limits.call_messages = 1 + in.below(3);
    offer.limits.message_bytes_max = in.u16();
    offer.limits.read_depth = in.below(3);
    if (in.coin()) offer.guards = in.u8();
  }
  if (connects_seen_ == fabric.connecting.size()) {
    if (players_.size() < kPeersMax) add_player(Peer(bench_, offer));
    return;
  }
  const fabric::EndpointId endpoint = fabric.connecting[connects_seen_];
  const std::vector<std::byte> theirs = fabric.connects[connects_seen_++];
  if (fabric.closed_endpoints[endpoint.value]) return;
  const Result<Handshake> hello = decode_handshake(theirs);
  require(hello.ok(), "what a node says is well formed");
  if (in.below(8) == 0 || (hello->kind == EndpointKind::control && players_.size() == kPeersMax)) {
    fabric.connect_failed(endpoint, {});
  } else if (hello->kind == EndpointKind::control) {
    offer.epoch = 0xe90c + connects_seen_;
    offer.connection = connects_seen_;
    offer.connection_secret = 2;
    add_player(Peer(bench_, endpoint, theirs, offer));
  } else {
    fabric.connected(endpoint, {});
    for (Player& each : players_) {
      if (each.known.epoch == hello->epoch) each.data.push_back(endpoint);
    }
  }
  bench_.turn();
}

void Scene::open_data(Splitter& in) {
  Player& from = player(in);
  Handshake hello = from.peer.offer();
  hello.kind = EndpointKind::data;
  hello.epoch = from.known.epoch;
  hello.connection = from.peer.theirs().connection;
  hello.connection_secret = from.peer.theirs().connection_secret;
  if (in.below(8) == 0) hello.connection = in.below(8);  // without the secret
  hello.role = DataRole{static_cast<std::uint8_t>(in.below(2))};
  hello.endpoint_index = static_cast<std::uint8_t>(hello.role);
  hello.endpoint_incarnation = in.below(4) + 1;
  const fabric::EndpointId endpoint = bench_.fabric().connect_request(encode_handshake(hello));
  bench_.turn();
  if (!bench_.fabric().closed_endpoints[endpoint.value]) from.data.push_back(endpoint);
}

void Scene::lose(Splitter& in) {
  Player& from = player(in);
  fabric::EndpointId endpoint = from.peer.control();
  const bool data = !from.data.empty() && in.below(4) != 0;
  if (data) endpoint = from.data[in.below(static_cast<unsigned>(from.data.size()))];
  if (bench_.fabric().closed_endpoints[endpoint.value]) return;
  const bool was_over = from.peer.over();
  bench_.fabric().failed(endpoint);
  bench_.turn();
  require(data ? from.peer.over() == was_over : from.peer.over(),
          "a lost endpoint ends what it belongs to");
}

// --- what the node's user does -------------------------------------------------------------------

template <class T>
constexpr Callback<T> ignore() {
  return Callback<T>{[](void*, T) {}, nullptr};
}

void Scene::call(Splitter& in) {
  if (calls_.size() >= kCallsMax) return;
  const Poller::Scope scope(bench_.node().poller());
  Pool& pool = bench_.node().pool();
  CallOptions options;
  constexpr Duration kDeadlines[] = {10ms, 1s, 20s};
  options.deadline = in.pick(kDeadlines);
  Payload request(in.below(8) == 0 ? 3000 : in.below(32));
  const unsigned kind = in.below(8);
  if (kind < 2) {
    calls_.push_back(
        start(channel_.call(kEcho, std::move(request), options), ignore<Outcome<Payload>>()));
  } else if (kind < 4) {
    Result<Buffer> buffer = pool.try_acquire(in.coin() ? kLentBytes : 100);
    if (!buffer.ok()) return;
    Block block = std::move(*buffer).freeze();
    if (in.coin()) services_.kept().push_back(block);
    calls_.push_back(start(channel_.call(kPut, std::move(request), lend(block, block), options),
                           ignore<Outcome<Payload>>()));
  } else {
    Into target = into(pool);
    if (kind == 7) {
      Result<Buffer> buffer = pool.try_acquire(kLentBytes);
      if (!buffer.ok()) return;
      target = into(*std::move(buffer));
    }
    target.range(ByteRange{0, 4096});
    calls_.push_back(start(channel_.call(kGet, std::move(request), std::move(target), options),
                           ignore<Outcome<Pulled<Payload>>>()));
  }
  bench_.turn();
}

void Scene::let_go(Splitter& in) {
  const Poller::Scope scope(bench_.node().poller());
  if (in.coin() && !calls_.empty()) {
    calls_.erase(calls_.begin() + in.below(static_cast<unsigned>(calls_.size())));
  } else if (!services_.kept().empty()) {
    if (in.coin()) std::move(services_.kept().back()).retire();
    services_.kept().pop_back();
  }
  bench_.turn();
}

// --- what came of it
// ---------------------------------------------------------------------------------

/// Takes in what the node said.
void Scene::learn() {
  auto& sent = bench_.fabric().sent;
  for (const testing::SentFrame& frame : sent) {
    require(check_body(frame.header, frame.body), "what a node says is well formed");
    Player* to = nullptr;
    for (Player& each : players_) {
      if (each.peer.control() == frame.endpoint) to = &each;
    }
    const char* why = nullptr;
    Request request;
    Response response;
    Confirm confirm;
    if (to == nullptr || (frame.header.flags & kFrameMore) != 0) continue;
    if (frame.header.type == FrameType::request && decode(frame.body, request, why)) {
      Knowledge::note(to->known.calls, frame.header.call);
      if (request.lease) Knowledge::note(to->known.leases, request.lease->lease);
    } else if (frame.header.type == FrameType::response && decode(frame.body, response, why)) {
      if (response.lease) Knowledge::note(to->known.leases, response.lease->lease);
    } else if (frame.header.type == FrameType::confirm && decode(frame.body, confirm, why)) {
      Knowledge::note(to->known.asked, confirm.lease);
    }
  }
  sent.clear();
}

bool Scene::confirmed(bool release) {
  Confirm confirm;
  confirm.lease = lease_;
  confirm.epoch = witness_.epoch();
  confirm.release = release;
  witness_.say(FrameType::confirm, 1, confirm);
  const auto answer = witness_.heard_body<ConfirmAnswer>(FrameType::confirm_answer);
  require(answer && answer->lease == lease_, "a confirm is answered");
  return answer->valid && answer->bitmap.empty();
}

void Scene::end() {
  require(confirmed(false), "what peers do leaves the leases of others as they are");
  require(confirmed(true), "what peers do leaves the leases of others as they are");
  require(!confirmed(false), "a lease that was released is stale");
  {
    const Poller::Scope scope(bench_.node().poller());
    calls_.clear();
#ifndef PAWL_FUZZ_CONTROL
    services_.kept().clear();
#endif
    channel_ = Channel();
  }
  bench_.stop_serving();
  bench_.turn();
  for (Player& each : players_) {
    if (!each.peer.over()) bench_.fabric().failed(each.peer.control());
  }
  bench_.turn();
  bench_.pass(20s);  // drain_grace, deadlines, read_timeout
  bench_.pass(20s);
  bench_.pass(2ms);
  const NodeStats stats = bench_.node().stats();
  require(stats.connections_live == 0, "no connection is left");
  require(stats.calls_live == 0 && stats.served_live == 0, "no call is left");
  require(stats.transfers_live == 0 && bench_.fabric().reads.empty(), "no transfer is left");
  require(stats.pool.leases_live == 0, "no lease is left");
  require(stats.pool.bytes_landing == 0 && stats.pool.bytes_quarantined == 0,
          "no memory is left landing or in quarantine");
  require(stats.pool.bytes_in_use == 0, "no memory is left in use");
  bench_.fabric().forget();
}

}  // namespace

void connection(Input input) {
  static std::unique_ptr<Stage> stage;
  if (!stage) stage = std::make_unique<Stage>();
  Splitter in(input);
  const unsigned end = in.below(32);
  Scene scene(*stage);
  for (int i = 0; i < kStepsMax && !in.empty(); ++i) scene.step(in);
  if (end > 0) scene.end();
  if (end > 1 && --stage->programs_left > 0) return;
  stage->bench.destroy();  // with everything under way if there was no end; handles go afterwards
  stage->services.kept().clear();
  scene.let_all_go();
  stage.reset();
}

}  // namespace pawl::fuzz
