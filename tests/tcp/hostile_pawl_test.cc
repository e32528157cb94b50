// SPDX-License-Identifier: Apache-2.0
// Peers that speak the fabric's protocol well and Pawl's badly, on raw sockets against a whole
// node: each loses its own connection, by a named error, and nothing else is harmed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pawl/node.h"
#include "support/function_service.h"
#include "support/process_use.h"
#include "tcp/pawl_peer.h"

namespace pawl::rpc::test {
namespace {

using fabric::tcp::PieceStatus;
using pawl::testing::kResidentTells;
using pawl::testing::open_files;
using pawl::testing::resident_bytes;
using Class = MessageHeader::Class;

constexpr Method kEcho = make_method("test.Hostile/Echo");
constexpr Method kGet = make_method("test.Hostile/Get", BulkDirection::download);
constexpr Method kWait = make_method("test.Hostile/Wait");
constexpr std::size_t kBlockBytes = 20000;

/// Keeps the lines of both nodes.
class Lines final : public LogSink {
 public:
  void write(Severity severity, std::string_view line) noexcept override {
    lines.emplace_back(line);
    if (severity == Severity::warning) ++warnings;
  }
  [[nodiscard]] bool contain(std::string_view part) const {
    return std::any_of(lines.begin(), lines.end(), [part](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }
  std::vector<std::string> lines;
  std::size_t warnings = 0;
};

/// A server, an honest client, and raw peers, all turned by the test. The nodes' time stands still
/// unless it is moved.
class HostilePawl : public ::testing::Test {
 protected:
  HostilePawl() : server_(options("server")), client_(options("client")) {
    service_.add(kEcho,
                 [](Call&, std::span<const std::byte> request, Upload&,
                    Download&) -> Task<Result<Payload>> { co_return Payload(request); });
    service_.add(kGet,
                 [](Call& call, std::span<const std::byte>, Upload&,
                    Download& out) -> Task<Result<Payload>> {
                   auto buffer = co_await ok(call.pool().acquire(kBlockBytes));
                   std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{'g'});
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
    service_.add(
        kWait,
        [](Call& call, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          co_return co_await call.on_cancelled();
        });
    Result<Server> serving = server_.serve("127.0.0.1:0", service_);
    EXPECT_TRUE(serving.ok()) << serving.status().to_string();
    serving_ = *std::move(serving);
    channel_ = client_.channel(serving_.address());
    expect_others_unharmed();
    opened_ = server_.stats().connections_opened;
  }
  ~HostilePawl() override {
    peers_.clear();
    channel_ = Channel();
    EXPECT_TRUE(run_until([&] { return server_.stats().connections_live == 0; }));
    const NodeStats stats = server_.stats();
    EXPECT_EQ(stats.served_live, 0u);
    EXPECT_EQ(stats.pool.leases_live, 0u);
    EXPECT_EQ(stats.pool.bytes_in_use, 0u);
  }

  NodeOptions options(const char* name) {
    NodeOptions options;
    options.name = name;
    options.fabric = "tcp";
    options.clock = &clock_;
    options.log = &log_;
    options.pool.bytes_max = std::size_t{64} << 20;
    options.pool.slab_bytes = std::size_t{1} << 20;
    return options;
  }

  /// Turns everything until `done`; false after a generous time.
  bool run_until(const std::function<bool()>& done) {
    const TimePoint limit = steady_.now() + 60s;
    while (!done()) {
      bool busy = server_.run_once();
      busy = client_.run_once() || busy;
      for (const auto& peer : peers_) peer->turn();
      if (busy) continue;
      if (steady_.now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void run_turns(int count) {
    for (int i = 0; i < count; ++i) {
      server_.run_once();
      client_.run_once();
      for (const auto& peer : peers_) peer->turn();
    }
  }

  PawlPeer& connect(const Handshake& handshake = PawlPeer::control_handshake()) {
    peers_.push_back(std::make_unique<PawlPeer>(serving_.address(), handshake));
    PawlPeer& peer = *peers_.back();
    EXPECT_TRUE(run_until([&] { return peer.answered(); }));
    return peer;
  }
  /// A peer that a server likes: hellos were exchanged.
  PawlPeer& friendly() {
    PawlPeer& peer = connect();
    peer.say_hello();
    PawlPeer::Heard hello;
    EXPECT_TRUE(run_until([&] { return peer.take(FrameType::hello, hello); }));
    return peer;
  }
  /// With a data endpoint for its READs.
  PawlPeer& data_of(const PawlPeer& control) {
    PawlPeer& peer = connect(control.data_handshake());
    peer.say_hello();
    PawlPeer::Heard hello;
    EXPECT_TRUE(run_until([&] { return peer.take(FrameType::hello, hello); }));
    return peer;
  }
  void forget(PawlPeer& peer) {
    std::erase_if(peers_, [&](const auto& each) { return each.get() == &peer; });
  }
  PawlPeer::Heard answer_of(PawlPeer& peer, FrameType type) {
    PawlPeer::Heard heard;
    EXPECT_TRUE(run_until([&] { return peer.take(type, heard) || peer.ended(); }));
    return heard;
  }
  static Response response_of(const PawlPeer::Heard& heard) {
    Response response;
    const char* why = nullptr;
    EXPECT_TRUE(decode(heard.body, response, why)) << why;
    return response;
  }

  /// The honest client's connection is the one that it always had, and works both ways.
  void expect_others_unharmed() {
    std::optional<Outcome<Payload>> echo;
    auto calling = channel_.call(kEcho, Payload::of("still there"));
    calling.begin({[](void* to, Outcome<Payload> outcome) {
                     static_cast<std::optional<Outcome<Payload>>*>(to)->emplace(std::move(outcome));
                   },
                   &echo});
    std::optional<Outcome<Pulled<Payload>>> got;
    auto getting = channel_.call(kGet, Payload(), into(client_.pool()));
    getting.begin({[](void* to, Outcome<Pulled<Payload>> outcome) {
                     static_cast<std::optional<Outcome<Pulled<Payload>>>*>(to)->emplace(
                         std::move(outcome));
                   },
                   &got});
    ASSERT_TRUE(run_until([&] { return echo && got; }));
    ASSERT_TRUE(echo->ok()) << echo->to_string();
    EXPECT_EQ((*echo)->text(), "still there");
    ASSERT_TRUE(got->ok()) << got->to_string();
    EXPECT_EQ((*got)->part()->size(), kBlockBytes);
    EXPECT_EQ(client_.stats().connections_opened, 1u);
    EXPECT_EQ(client_.stats().connections_lost, 0u);
    EXPECT_EQ(client_.stats().data_endpoints_lost, 0u);
  }

  ManualClock clock_;
  SteadyClock steady_;
  Lines log_;
  pawl::testing::FunctionService service_;
  Node server_;
  Node client_;
  Server serving_;
  Channel channel_;
  std::vector<std::unique_ptr<PawlPeer>> peers_;
  std::uint64_t opened_ = 0;
};

/// A message with any header.
Bytes message_of(const MessageHeader& header, std::span<const std::byte> rest) {
  Bytes message(MessageHeader::kBytes);
  encode(header, message);
  message.insert(message.end(), rest.begin(), rest.end());
  return message;
}

/// A part of a body: the first under the type `request`, the others as fragments.
Bytes part(std::uint64_t call, std::uint32_t offset, std::uint32_t all, std::size_t bytes,
           bool more = true) {
  const Bytes zeros(bytes);
  Fragment piece;
  piece.offset = offset;
  piece.body_bytes = all;
  piece.bytes = zeros;
  Bytes body(Fragment::kFixedBytes + bytes);
  encode(piece, body);
  return raw_frame(offset == 0 ? FrameType::request : FrameType::fragment, call, body,
                   more ? kFrameMore : std::uint8_t{0});
}

// --- a named error for that connection ---------------------------------------------------------

struct Violation {
  const char* rule;  // in the log's line
  bool greets = true;
  std::function<void(PawlPeer&)> say;
};

std::vector<Violation> violations() {
  const auto bytes = [](MessageHeader header, Bytes rest) {
    return [=](PawlPeer& peer) { peer.say_bytes(message_of(header, rest)); };
  };
  const Bytes ping = frame(FrameType::ping, 0, Ping{7});
  const auto one = static_cast<std::uint32_t>(ping.size());
  const auto unknown = [](Bytes frame_bytes, std::size_t at, unsigned value) {
    frame_bytes[at] = static_cast<std::byte>(value);
    return frame_bytes;
  };
  const auto say = [](std::vector<Bytes> frames) {
    return [=](PawlPeer& peer) { peer.say(frames); };
  };
  const Bytes echo = request_frame(5, kEcho, {});
  const Bytes wait = request_frame(5, kWait, {});
  return {
      // Truncated.
      {"message", true, [](PawlPeer& peer) { peer.say_bytes(Bytes(31)); }},
      {"message", true, bytes({.frames = 1, .bytes = one + 1}, ping)},
      {"frame", true, bytes({.frames = 1, .bytes = one - 1}, Bytes(ping.begin(), ping.end() - 1))},
      {"frame", true, bytes({.frames = 2, .bytes = one}, ping)},
      {"frame", true, bytes({.frames = 0, .bytes = 0}, {})},
      {"", true, say({raw_frame(FrameType::confirm, 1, Bytes(31))})},
      {"", true, say({raw_frame(FrameType::confirm, 1, Bytes(33))})},
      {"", true, say({raw_frame(FrameType::request, 1, Bytes(20))})},
      // What there is not.
      {"unknown class", true, bytes({.message_class = Class{9}, .frames = 1, .bytes = one}, ping)},
      {"unknown type", true, say({unknown(ping, 0, 99)})},
      {"critical flag", true, say({unknown(ping, 1, 0x80)})},
      {"RE-LEND", true, say({raw_frame(FrameType::relend, 1, Bytes(32))})},
      // Out of order, of another connection.
      {"not its hello", false, say({echo})},
      {"not its hello", false, say({ping})},
      {"hello twice", true,
       [](PawlPeer& peer) { peer.say({frame(FrameType::hello, 0, peer.right_hello())}); }},
      {"another handshake", false,
       [](PawlPeer& peer) {
         Hello hello = peer.right_hello();
         ++hello.epoch;
         peer.say({frame(FrameType::hello, 0, hello)});
       }},
      {"another handshake", false,
       [](PawlPeer& peer) {
         Hello hello = peer.right_hello();
         hello.transcript ^= 1;
         peer.say({frame(FrameType::hello, 0, hello)});
       }},
      {"no body that began", true, say({part(5, 100, 1000, 100)})},
      {"does not continue", true, say({part(5, 0, 1000, 100), part(5, 200, 1000, 100)})},
      {"does not continue", true, say({part(5, 0, 1000, 100), part(5, 100, 2000, 100)})},
      {"before or after its last", true,
       say({part(5, 0, 1000, 100, true), part(5, 100, 1000, 100, false)})},
      {"call id is used again", true, say({wait, wait})},
      // Oversized.
      {"longer than message_bytes_max", true, say({part(5, 0, (1 << 20) + 1, 100)})},
      {"longer than message_bytes_max", true, say({part(5, 0, UINT32_MAX, 100)})},
      // Credits.
      {"never sent", true, bytes({.frames = 1, .bytes = one, .call_messages_returned = 1}, ping)},
      {"never sent", true,
       bytes({.frames = 1, .bytes = one, .session_messages_returned = 1000}, ping)},
      {"than it has credit for", true,
       [echo](PawlPeer& peer) {  // what the node says meanwhile is not heard
         peer.raw().stop_reading();
         for (std::uint64_t i = 1; i <= 200; ++i) {
           peer.say({request_frame(i, kWait, {})});
         }
       }},
      {"than it has credit for", true,
       [](PawlPeer& peer) {
         peer.raw().stop_reading();
         for (int i = 0; i < 200; ++i)
           peer.say({raw_frame(FrameType::credit, 0, {})}, Class::session);
       }},
  };
}

TEST_F(HostilePawl, EachViolationEndsItsOwnConnectionByName) {
  std::size_t index = 0;
  for (const Violation& violation : violations()) {
    SCOPED_TRACE(std::to_string(index++) + ": " + violation.rule);
    log_.lines.clear();
    clock_.advance(1s);  // the log may say 20 lines more
    const std::uint64_t errors = server_.stats().protocol_errors;
    PawlPeer& peer = violation.greets ? friendly() : connect();
    violation.say(peer);
    ASSERT_TRUE(run_until([&] { return server_.stats().protocol_errors == errors + 1; }));
    peer.raw().start_reading();
    EXPECT_TRUE(run_until([&] { return peer.ended(); }));
    EXPECT_TRUE(log_.contain("protocol_error"));
    EXPECT_TRUE(log_.contain(violation.rule)) << (log_.lines.empty() ? "" : log_.lines.back());
    EXPECT_TRUE(log_.contain("127.0.0.1:"));
    forget(peer);
    expect_others_unharmed();
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(run_until([&] { return server_.stats().connections_live == 1; }));
}

// In the middle of a message; longer than the receive that it meets; no words of this fabric.
TEST_F(HostilePawl, WhatTheFabricRefusesEndsTheConnectionToo) {
  const std::vector<std::function<void(PawlPeer&)>> ways{
      [](PawlPeer& peer) {
        peer.raw().say_frame({.type = fabric::tcp::FrameType::message, .length = 500, .value = 1});
        peer.raw().say(Bytes(100));
        peer.turn();
        peer.raw().finish_sending();
      },
      [](PawlPeer& peer) { peer.say_bytes(Bytes(9000)); },
      [](PawlPeer& peer) { peer.raw().say(Bytes(16, std::byte{0xee})); },
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    const std::uint64_t lost = server_.stats().connections_lost;
    PawlPeer& peer = friendly();
    ways[i](peer);
    EXPECT_TRUE(run_until([&] { return server_.stats().connections_lost == lost + 1; }));
    forget(peer);
    expect_others_unharmed();
  }
  EXPECT_EQ(server_.stats().protocol_errors, 2u) << "one just went away";
  std::string said;
  for (const std::string& line : log_.lines) said += line + "\n";
  EXPECT_TRUE(log_.contain("9000") && log_.contain("unknown type")) << said;
}

// --- other connections' leases and keys --------------------------------------------------------

TEST_F(HostilePawl, ForgedMessagesAboutAnotherConnectionsLeaseChangeNothing) {
  PawlPeer& victim = friendly();
  PawlPeer& forger = friendly();
  constexpr std::uint64_t kCall = 77;
  victim.say({request_frame(kCall, kGet, {})});
  const PawlPeer::Heard got = answer_of(victim, FrameType::response);
  const Response answer = response_of(got);
  ASSERT_TRUE(answer.lease.has_value());
  const LeaseName lease = answer.lease->lease;
  SegmentDescriptor segment;
  const char* why = nullptr;
  ASSERT_TRUE(decode_segment(answer.segments, 0, segment, why));
  ASSERT_EQ(server_.stats().pool.leases_live, 1u);
  const NodeStats before = server_.stats();

  // The true name under both epochs, and guesses near it.
  std::uint64_t asked = 0;
  for (const std::uint64_t epoch : {forger.answer().epoch, victim.answer().epoch}) {
    for (const LeaseName& name : {lease, LeaseName{lease.id, lease.generation + 2},
                                  LeaseName{lease.id + 1, lease.generation}, LeaseName{0, 0},
                                  LeaseName{UINT64_MAX, UINT64_MAX}}) {
      forger.say({frame(FrameType::confirm, kCall, Confirm{name, epoch, true}),
                  frame(FrameType::release, kCall, Release{name, epoch})});
      ConfirmAnswer confirmed;
      const PawlPeer::Heard heard = answer_of(forger, FrameType::confirm_answer);
      ASSERT_TRUE(decode(heard.body, confirmed, why)) << why;
      EXPECT_FALSE(confirmed.valid);
      ++asked;
    }
  }
  forger.say({frame(FrameType::cancel, kCall, Cancel{})});
  CancelAck ack;
  ASSERT_TRUE(decode(answer_of(forger, FrameType::cancel_ack).body, ack, why)) << why;
  EXPECT_EQ(ack.ran, Ran::unknown);
  EXPECT_EQ(server_.stats().confirms_stale, before.confirms_stale + asked);
  EXPECT_EQ(server_.stats().releases_ignored, before.releases_ignored + asked);
  EXPECT_EQ(server_.stats().pool.leases_live, 1u);

  // The key opens nothing on the forger's endpoint.
  PawlPeer& forgers_data = data_of(forger);
  forgers_data.say_read(segment.key, segment.address, 100);
  EXPECT_TRUE(run_until([&] { return forgers_data.ended(); }));
  EXPECT_EQ(forgers_data.pieces(), std::vector{PieceStatus::refused});
  EXPECT_TRUE(forgers_data.read_bytes().empty());
  EXPECT_FALSE(forger.ended()) << "it lost the endpoint, not the connection";

  // The victim's lease is as it was.
  PawlPeer& data = data_of(victim);
  data.say_read(segment.key, segment.address, kBlockBytes);
  EXPECT_TRUE(run_until([&] { return data.read_bytes().size() == kBlockBytes; }));
  EXPECT_EQ(data.read_bytes(), Bytes(kBlockBytes, std::byte{'g'}));
  // Under another connection's epoch it names nothing; under its own it holds, once.
  const auto confirm = [&](std::uint64_t epoch) {
    victim.say({frame(FrameType::confirm, kCall, Confirm{lease, epoch, true}),
                frame(FrameType::release, kCall, Release{lease, epoch})});
    ConfirmAnswer confirmed;
    const PawlPeer::Heard heard = answer_of(victim, FrameType::confirm_answer);
    EXPECT_TRUE(decode(heard.body, confirmed, why)) << why;
    return confirmed.valid;
  };
  EXPECT_FALSE(confirm(forger.answer().epoch));
  EXPECT_EQ(server_.stats().pool.leases_live, 1u);
  EXPECT_TRUE(confirm(victim.answer().epoch));
  EXPECT_EQ(server_.stats().pool.leases_live, 0u);
  EXPECT_FALSE(confirm(victim.answer().epoch));
  EXPECT_FALSE(victim.ended());
  expect_others_unharmed();
}

TEST_F(HostilePawl, KeysGuessedStaleOrStretchedOpenNothing) {
  PawlPeer& peer = friendly();
  const auto lend = [&](PawlPeer& to, std::uint64_t call) {
    to.say({request_frame(call, kGet, {})});
    SegmentDescriptor segment;
    const PawlPeer::Heard got = answer_of(to, FrameType::response);
    const char* why = nullptr;
    EXPECT_TRUE(decode_segment(response_of(got).segments, 0, segment, why)) << why;
    return segment;
  };
  const auto refused = [&](PawlPeer& control, std::uint64_t key, std::uint64_t address,
                           std::uint32_t bytes) {
    PawlPeer& data = data_of(control);
    data.say_read(key, address, bytes);
    EXPECT_TRUE(run_until([&] { return data.ended(); }));
    EXPECT_EQ(data.pieces(), std::vector{PieceStatus::refused});
    forget(data);
  };
  const SegmentDescriptor segment = lend(peer, 1);
  constexpr std::uint32_t kWholeBuffer = 32768;  // what a buffer of this size class has
  refused(peer, segment.key + 1, segment.address, 16);
  refused(peer, 0, segment.address, 16);
  refused(peer, segment.key, segment.address, kWholeBuffer + 1);
  refused(peer, segment.key, segment.address + kWholeBuffer, 1);
  refused(peer, segment.key, UINT64_MAX - 7, 16);
  EXPECT_FALSE(peer.ended());
  // The keys of a connection go with it.
  peer.raw().finish_sending();
  EXPECT_TRUE(run_until([&] { return server_.stats().pool.leases_live == 0; }));
  PawlPeer& next = friendly();
  const SegmentDescriptor own = lend(next, 1);
  EXPECT_NE(own.key, segment.key);
  refused(next, segment.key, segment.address, 16);
  expect_others_unharmed();
}

// --- handshakes --------------------------------------------------------------------------------

TEST_F(HostilePawl, AReplayedHandshakeOpensNothing) {
  PawlPeer& first = friendly();
  // What the first one said, word by word: the answer has another epoch, so the hello is refused.
  PawlPeer& replay = connect();
  EXPECT_NE(replay.answer().epoch, first.answer().epoch);
  const std::uint64_t errors = server_.stats().protocol_errors;
  replay.say({frame(FrameType::hello, 0, first.right_hello())}, Class::session);
  EXPECT_TRUE(run_until([&] { return replay.ended(); }));
  EXPECT_EQ(server_.stats().protocol_errors, errors + 1);
  EXPECT_FALSE(first.ended());

  // A data endpoint needs a connection that lives, and its secret.
  Handshake wrong = first.data_handshake();
  wrong.connection_secret ^= 1;
  PawlPeer& guess = connect(wrong);
  EXPECT_EQ(guess.answer().refusal.code(), Code::permission_denied)
      << guess.answer().refusal.to_string();
  wrong = first.data_handshake();
  wrong.connection += 1000;
  EXPECT_EQ(connect(wrong).answer().refusal.code(), Code::permission_denied);
  const Handshake once_good = first.data_handshake();
  first.raw().finish_sending();
  EXPECT_TRUE(run_until([&] { return first.ended(); }));
  EXPECT_EQ(connect(once_good).answer().refusal.code(), Code::permission_denied);
  // An honest handshake of another version, or with a demand that nobody knows.
  Handshake none = PawlPeer::control_handshake();
  none.guards = guard_bit(Guard::window);
  EXPECT_EQ(connect(none).answer().refusal.code(), Code::unimplemented);
  Handshake tiny = PawlPeer::control_handshake();
  tiny.limits.receive_bytes = 100;
  EXPECT_FALSE(connect(tiny).answer().refusal.ok());
  expect_others_unharmed();
}

// --- memory ------------------------------------------------------------------------------------

/// A request as long as that, in as many messages as it takes, under the credits of both.
void say_long_request(PawlPeer& peer, std::uint64_t call, std::size_t payload_bytes,
                      const std::function<bool(const std::function<bool()>&)>& run_until) {
  constexpr std::size_t kPart = 8192 - MessageHeader::kBytes - FrameHeader::kBytes - 8;
  const Bytes payload(payload_bytes, std::byte{'x'});
  const Bytes whole = request_frame(call, kEcho, payload);
  const auto body = std::span(whole).subspan(FrameHeader::kBytes);
  for (std::size_t at = 0; at < body.size(); at += kPart) {
    Fragment piece;
    piece.offset = static_cast<std::uint32_t>(at);
    piece.body_bytes = static_cast<std::uint32_t>(body.size());
    piece.bytes = body.subspan(at, std::min(kPart, body.size() - at));
    Bytes bytes(Fragment::kFixedBytes + piece.bytes.size());
    encode(piece, bytes);
    const bool more = at + kPart < body.size();
    ASSERT_TRUE(run_until([&] {
      peer.return_credit();
      return peer.has_credit(Class::call);
    }));
    peer.say({raw_frame(at == 0 ? FrameType::request : FrameType::fragment, call, bytes,
                        more ? kFrameMore : std::uint8_t{0})});
  }
}

// It asks and asks, keeps to its credits, and gives none for the answers: they cannot go out. What
// is held for it is bounded; what is beyond is shed.
TEST_F(HostilePawl, ThePeerThatTakesNoAnswersIsShed) {
  constexpr std::size_t kHeldMax = std::size_t{64} << 20;  // Connection::kServedBytesMax
  constexpr std::size_t kRequest = std::size_t{512} << 10;
  constexpr std::uint64_t kRequests = 250;  // twice what may be held
  PawlPeer& peer = friendly();
  peer.keep_call_credit();
  const std::size_t before = resident_bytes();
  std::size_t most = before;
  for (std::uint64_t call = 1; call <= kRequests; ++call) {
    say_long_request(peer, call, kRequest, [&](const auto& done) { return run_until(done); });
    if (HasFatalFailure()) return;
    most = std::max(most, resident_bytes());
  }
  EXPECT_TRUE(run_until([&] { return server_.stats().served_live == kRequests; }));
  EXPECT_GE(server_.stats().served_shed, kRequests / 4);
  if (kResidentTells) {
    EXPECT_LT(most - before, kHeldMax + (std::size_t{32} << 20));
  }
  EXPECT_FALSE(peer.ended());
  expect_others_unharmed();
}

// It takes nothing at all from its socket: credits end what it can ask for.
TEST_F(HostilePawl, ThePeerThatNeverReadsHoldsABoundedNumberOfCalls) {
  PawlPeer& peer = friendly();
  peer.raw().stop_reading();
  std::uint64_t call = 0;
  while (peer.has_credit(Class::call)) peer.say({request_frame(++call, kEcho, Bytes(4000))});
  EXPECT_LE(call, 32u);
  run_turns(1000);
  EXPECT_LE(server_.stats().served_live, call);
  EXPECT_FALSE(peer.ended());
  expect_others_unharmed();
}

// One that never says hello, and one that says nothing after it, not even to pings.
TEST_F(HostilePawl, SilentPeersAreGivenUp) {
  PawlPeer& half_open = connect();
  PawlPeer& silent = friendly();
  silent.say({request_frame(1, kWait, {})});
  ASSERT_TRUE(run_until([&] { return server_.stats().served_live == 1; }));
  for (int i = 0; i < 4; ++i) {  // 12 s, more than the time after which a peer is given up
    EXPECT_FALSE(half_open.ended() || silent.ended());
    clock_.advance(3s);
    expect_others_unharmed();
  }
  EXPECT_TRUE(run_until([&] { return half_open.ended() && silent.ended(); }));
  EXPECT_EQ(server_.stats().connections_lost, 2u);
  EXPECT_TRUE(run_until([&] { return server_.stats().served_live == 0; }));
}

// --- drain -------------------------------------------------------------------------------------

TEST_F(HostilePawl, WhoIgnoresAGoawayIsRefusedAndEndedWithTheGrace) {
  PawlPeer& peer = friendly();
  peer.say({request_frame(1, kWait, {})});
  ASSERT_TRUE(run_until(
      [&] { return server_.stats().served_started > 0 && server_.stats().served_live == 1; }));
  std::optional<Status> drained;
  auto draining = serving_.drain();
  draining.begin({[](void* to, Status status) {
                    static_cast<std::optional<Status>*>(to)->emplace(std::move(status));
                  },
                  &drained});
  answer_of(peer, FrameType::goaway);
  const std::uint64_t started = server_.stats().served_started;
  for (std::uint64_t call = 2; call < 100; ++call) {
    peer.return_credit();
    peer.say({request_frame(call, kEcho, {})});
    const PawlPeer::Heard heard = answer_of(peer, FrameType::response);
    ASSERT_FALSE(peer.ended());
    const Response response = response_of(heard);
    EXPECT_EQ(response.code, Code::unavailable);
    EXPECT_EQ(response.ran, Ran::no);
  }
  EXPECT_EQ(server_.stats().served_started, started);
  EXPECT_FALSE(drained.has_value());
  clock_.advance(6s);  // drain_grace
  ASSERT_TRUE(run_until([&] { return drained && peer.ended(); }));
  EXPECT_EQ(drained->code(), Code::deadline) << drained->to_string();
}

// --- many --------------------------------------------------------------------------------------

TEST_F(HostilePawl, ConnectsWithoutEndLeaveNothingBehind) {
  const bool soak = std::getenv("PAWL_TEST_SOAK") != nullptr;
  const std::size_t rounds = soak ? 2000 : 80;
  constexpr std::size_t kKinds = 5;
  const auto round = [&] {
    std::vector<PawlPeer*> peers;
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      peers_.push_back(
          std::make_unique<PawlPeer>(serving_.address(), PawlPeer::control_handshake()));
      peers.push_back(peers_.back().get());
    }
    peers[0]->raw().reset();           // RST at once
    peers[1]->raw().say(Bytes(16));    // rubbish behind a good handshake
    peers[2]->raw().finish_sending();  // half open, then gone
    ASSERT_TRUE(run_until([&] { return peers[3]->answered() && peers[4]->answered(); }));
    peers[3]->say({frame(FrameType::ping, 0, Ping{})});  // no hello
    peers[4]->say_hello();                               // and goes without a word
    run_turns(5);
    peers_.clear();
  };
  round();
  ASSERT_TRUE(run_until([&] { return server_.stats().connections_live == 1; }));
  const std::size_t files = open_files();
  const std::size_t resident = resident_bytes();
  for (std::size_t i = 0; i < rounds; ++i) {
    round();
    if (HasFatalFailure()) return;
  }
  // No time passed for the log: a burst, and not a line more.
  EXPECT_GT(server_.stats().protocol_errors, rounds);
  EXPECT_GT(server_.stats().protocol_errors, LoggerOptions{}.burst_lines);
  EXPECT_LE(log_.warnings, LoggerOptions{}.burst_lines);
  ASSERT_TRUE(run_until([&] {
    clock_.advance(1ms);  // what lingers ends, and so does what is half open
    return server_.stats().connections_live == 1 && open_files() <= files;
  }));
  EXPECT_LE(open_files(), files);
  if (kResidentTells) {
    EXPECT_LT(resident_bytes(), resident + (std::size_t{16} << 20));
  }
  expect_others_unharmed();
}

}  // namespace
}  // namespace pawl::rpc::test
