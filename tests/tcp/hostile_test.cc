// SPDX-License-Identifier: Apache-2.0
// Peers that do not keep to the protocol: each costs its own endpoint, with a sentence, and
// nothing else.
#include <algorithm>
#include <cstring>

#include "fabric/tcp/limits.h"
#include "tcp/harness.h"

namespace pawl::fabric::tcp {
namespace {

class TcpHostile : public TcpTest {
 protected:
  /// The endpoint failed with this code and a sentence that has `part` in it and names the peer.
  void expect_failed(EndpointId endpoint, Code code, std::string_view part) {
    ASSERT_TRUE(run_until([&] { return b_.event(EventKind::failed, endpoint) != nullptr; }))
        << part;
    const Status& status = b_.event(EventKind::failed, endpoint)->status;
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.what().find(part), std::string_view::npos) << status.to_string();
    EXPECT_NE(status.what().find("127.0.0.1:"), std::string_view::npos) << status.to_string();
  }
  /// What the raw peer says after a good handshake breaks the protocol.
  void expect_violation(const std::function<void(RawPeer&)>& say, std::string_view part) {
    EndpointId endpoint;
    const auto raw = raw_link(endpoint);
    say(*raw);
    expect_failed(endpoint, Code::protocol_error, part);
    // It is told why, and then the stream ends.
    EXPECT_TRUE(run_until([&] { return raw->ended(); }));
    FrameHeader frame;
    ASSERT_TRUE(raw->frame(0, frame)) << part;
    EXPECT_EQ(frame.type, FrameType::fault);
    std::erase(raw_, raw.get());
  }
};

TEST_F(TcpHostile, FramesThatAreNot) {
  const auto frame = [](FrameHeader header, std::size_t body = 0) {
    return [=](RawPeer& raw) { raw.say_frame(header, body); };
  };
  expect_violation([](RawPeer& raw) { raw.say(std::vector<std::byte>(16, std::byte{0xff})); },
                   "unknown type");
  expect_violation(
      [](RawPeer& raw) {
        std::vector<std::byte> bytes(16, std::byte{0});
        bytes[0] = std::byte{1};
        bytes[2] = std::byte{1};
        raw.say(bytes);
      },
      "reserved");
  expect_violation(frame({.type = FrameType::message, .length = 0}), "a message of 0 bytes");
  expect_violation(frame({.type = FrameType::message, .length = kMessageBytesMax + 1}), "1048577");
  expect_violation(frame({.type = FrameType::message, .length = UINT32_MAX}), "4294967295");
  expect_violation(frame({.type = FrameType::ack, .length = 5}), "acknowledgement with a length");
  expect_violation(frame({.type = FrameType::ack, .value = 1}), "acknowledged 1 of 0");
  expect_violation(frame({.type = FrameType::message, .length = 1, .value = UINT64_MAX}),
                   "acknowledged");
  expect_violation(frame({.type = FrameType::read_piece, .length = 8, .value = 0}),
                   "not the oldest outstanding");
  expect_violation(frame({.type = FrameType::fault, .status = 1, .length = 201}),
                   "too long a text");
  expect_violation([](RawPeer& raw) { raw.say_read(0, 1, 0, 0); }, "a READ of 0 bytes");
  expect_violation([](RawPeer& raw) { raw.say_read(0, 1, 0, kReadBytesMax + 1); }, "1073741825");
}

TEST_F(TcpHostile, AnswersToReadsThatAreWrong) {
  auto to = b_.memory(65536);
  const auto answered = [&](FrameHeader piece, std::size_t body, std::string_view part,
                            PieceStatus status = PieceStatus::ok, std::uint32_t low = 0) {
    EndpointId endpoint;
    const auto raw = raw_link(endpoint);
    b_.completions.clear();
    b_.read(endpoint, 1, to->segment(0, 1000), {.key = 1});
    FrameHeader request;
    ASSERT_TRUE(run_until([&] { return raw->frame(0, request); }));
    EXPECT_EQ(request.type, FrameType::read_request);
    raw->say_frame(piece, body);
    std::array<std::byte, kTrailerBytes> trailer;
    encode_trailer({.read_id_low = low, .status = status}, trailer);
    raw->say(trailer);
    expect_failed(endpoint,
                  status == PieceStatus::ok ? Code::protocol_error : Code::permission_denied, part);
    EXPECT_TRUE(run_until([&] { return b_.done(1); }));
    EXPECT_EQ(b_.status(1), status == PieceStatus::ok ? "flushed" : "remote_access");
    std::erase(raw_, raw.get());
  };
  const auto type = FrameType::read_piece;
  answered({.type = type, .length = 1001, .value = 0}, 1001, "where 1000 are left");
  answered({.type = type, .length = UINT32_MAX, .value = 0}, 10, "where 1000 are left");
  answered({.type = type, .length = 1000, .value = 1}, 1000, "not the oldest outstanding");
  answered({.type = type, .length = 0, .value = 0}, 0, "without bytes");
  answered({.type = type, .length = 1000, .value = 0}, 1000, "another READ", PieceStatus::ok, 9);
  answered({.type = type, .length = 0, .value = 0}, 0, "refused", PieceStatus::refused);
  answered({.type = type, .length = 500, .value = 0}, 500, "revoked", PieceStatus::revoked);
}

TEST_F(TcpHostile, ReadsThatAreNotAllowed) {
  auto memory = b_.memory(8192);
  auto window_only = b_.memory(8192, MemoryUse::bulk_window_only);
  std::fill(memory->bytes.begin(), memory->bytes.end(), std::byte{'s'});
  const RemoteAddress mine =
      b_.fabric->expose({1}, memory->handle, memory->bytes.data(), 4096).value();
  const RemoteAddress others =
      b_.fabric->expose({2}, memory->handle, memory->bytes.data(), 4096).value();
  struct Try {
    std::uint64_t key, address;
    std::uint32_t length;
  };
  for (const Try& attempt :
       {Try{mine.key + 1, 0, 16}, Try{0, 0, 16}, Try{others.key, 0, 16}, Try{mine.key, 0, 4097},
        Try{mine.key, 4096, 1}, Try{mine.key, UINT64_MAX, 16}, Try{mine.key, UINT64_MAX - 15, 16},
        Try{mine.key, 1, kReadBytesMax},
        Try{mine.key, reinterpret_cast<std::uint64_t>(memory->bytes.data()), 16}}) {
    EndpointId endpoint;
    const auto raw = raw_link(endpoint);
    raw->say_read(0, attempt.key, attempt.address, attempt.length);
    expect_failed(endpoint, Code::permission_denied, "refused a READ");
    ASSERT_TRUE(run_until([&] { return raw->ended(); }));
    ASSERT_EQ(raw->heard().size(), kGreetingBytes + kFrameBytes + kTrailerBytes);
    Trailer trailer;
    ASSERT_EQ(decode_trailer(std::span(raw->heard()).last<kTrailerBytes>(), trailer), nullptr);
    EXPECT_EQ(trailer.status, PieceStatus::refused);
    std::erase(raw_, raw.get());
  }
  EXPECT_FALSE(b_.fabric->expose({1}, window_only->handle, window_only->bytes.data(), 8).ok());
}

TEST_F(TcpHostile, MoreReadsThanAnnounced) {
  auto memory = b_.memory(4 << 20);
  const RemoteAddress remote =
      b_.fabric->expose({1}, memory->handle, memory->bytes.data(), memory->bytes.size()).value();
  EndpointId endpoint;
  const auto raw = raw_link(endpoint, {.group = {1}, .read_depth = 4});
  raw->stop_reading();
  for (std::uint64_t i = 0; i < 5; ++i) raw->say_read(i, remote.key, 0, 4 << 20);
  expect_failed(endpoint, Code::protocol_error, "more READs outstanding than the 4");
}

// It asks and asks, and never takes the answers: nothing grows here, and others go on.
TEST_F(TcpHostile, ThePeerThatNeverReads) {
  auto memory = b_.memory(1 << 20);
  const RemoteAddress remote =
      b_.fabric->expose({1}, memory->handle, memory->bytes.data(), memory->bytes.size()).value();
  EndpointId endpoint;
  const auto raw = raw_link(endpoint, {.group = {1}, .read_depth = 64});
  raw->stop_reading();
  for (std::uint64_t i = 0; i < 64; ++i) raw->say_read(i, remote.key, 0, 1 << 20);
  run_turns(200);
  const Link link = connect();
  auto to = a_.memory(1 << 20);
  const RemoteAddress again = remote;
  a_.read(link.a, 1, to->segment(0, 1 << 20), again);
  ASSERT_TRUE(run_until([&] { return a_.done(1); }));
  EXPECT_EQ(a_.status(1), "success");
  EXPECT_EQ(b_.event(EventKind::failed, endpoint), nullptr);
  // It holds up nothing that ends either.
  EXPECT_TRUE(b_.fabric->deregister_memory(memory->handle).ok());
  b_.fabric->close(endpoint);
  EXPECT_TRUE(
      run_until([&] { return b_.event(EventKind::closed, endpoint) != nullptr; }, 5s) ||
      (advance(1s), run_until([&] { return b_.event(EventKind::closed, endpoint) != nullptr; })));
}

// A piece that is half in the socket when its window is invalidated: the rest are zeros and the
// trailer says revoked. The next user's bytes never go out.
TEST_F(TcpHostile, RevokedInTheMiddleOfAPiece) {
  auto memory = b_.memory(16 << 20);
  std::fill(memory->bytes.begin(), memory->bytes.end(), std::byte{'o'});
  EndpointId endpoint;
  const auto raw = raw_link(endpoint);
  const WindowId window = b_.fabric->allocate_window().value();
  const std::uint64_t key = b_.fabric->next_window_key(window);
  b_.post(
      endpoint,
      {.id = 1, .op = Opcode::bind, .window = window, .bind_target = memory->segment(0, 16 << 20)});
  ASSERT_TRUE(run_until([&] { return b_.done(1); }));
  raw->stop_reading();
  raw->say_read(0, key, 0, 16 << 20);
  run_turns(300);  // until the socket is full
  b_.post(endpoint, {.id = 2, .op = Opcode::invalidate, .window = window});
  ASSERT_TRUE(run_until([&] { return b_.done(2); })) << "a full socket must not hold it up";
  EXPECT_EQ(b_.status(2), "success");
  std::fill(memory->bytes.begin(), memory->bytes.end(), std::byte{'N'});
  raw->start_reading();
  ASSERT_TRUE(run_until([&] { return raw->ended(); }));
  expect_failed(endpoint, Code::permission_denied, "refused a READ");
  const std::vector<std::byte>& heard = raw->heard();
  EXPECT_EQ(std::count(heard.begin(), heard.end(), std::byte{'N'}), 0);
  Trailer trailer;
  ASSERT_EQ(decode_trailer(std::span(heard).last<kTrailerBytes>(), trailer), nullptr);
  EXPECT_NE(trailer.status, PieceStatus::ok);
  // Whole pieces of 'o', then one that changes from 'o' to zeros at most once.
  std::size_t at = kGreetingBytes;
  FrameHeader frame;
  while (raw->frame(at - kGreetingBytes, frame)) {
    ASSERT_EQ(frame.type, FrameType::read_piece);
    const auto body = std::span(heard).subspan(at + kFrameBytes, frame.length);
    const auto zeros = std::find(body.begin(), body.end(), std::byte{0});
    EXPECT_EQ(std::count(body.begin(), zeros, std::byte{'o'}), zeros - body.begin());
    EXPECT_EQ(std::count(zeros, body.end(), std::byte{0}), body.end() - zeros);
    at += kFrameBytes + frame.length + kTrailerBytes;
    if (zeros != body.end()) {
      EXPECT_EQ(at, heard.size()) << "zeros are in the last piece only";
      EXPECT_EQ(trailer.status, PieceStatus::revoked);
    }
  }
  EXPECT_EQ(at, heard.size());
  EXPECT_TRUE(b_.fabric->free_window(window).ok());
}

TEST_F(TcpHostile, OneByteAtATime) {
  const std::string address = listen();
  RawPeer raw(address);
  raw.say_greeting(GreetingKind::connect, 3);
  raw.say(std::vector<std::byte>(3, std::byte{'h'}));
  const auto byte_by_byte = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 100000 && !done(); ++i) {
      raw.turn(1);
      b_.turn(now());
    }
    return done();
  };
  ASSERT_TRUE(byte_by_byte([&] { return b_.event(EventKind::connect_request) != nullptr; }));
  const EndpointId endpoint = b_.event(EventKind::connect_request)->endpoint;
  EXPECT_EQ(b_.event(EventKind::connect_request)->hello, std::vector<std::byte>(3, std::byte{'h'}));
  ASSERT_TRUE(b_.fabric->accept(endpoint, {.group = {1}}, {}).ok());
  auto slots = b_.memory(4096);
  b_.receive(endpoint, 1, slots->segment(0, 2048));
  b_.receive(endpoint, 2, slots->segment(2048, 2048));
  raw.say_frame({.type = FrameType::message, .length = 5}, 5);
  raw.say_frame({.type = FrameType::message, .length = 700}, 700);
  ASSERT_TRUE(byte_by_byte([&] { return b_.done(2); }));
  EXPECT_EQ(b_.completions[1].bytes, 5u);
  EXPECT_EQ(b_.completions[2].bytes, 700u);
}

TEST_F(TcpHostile, GreetingsThatAreNot) {
  const std::string address = listen();
  std::vector<std::unique_ptr<RawPeer>> peers;
  const auto add = [&]() -> RawPeer& {
    peers.push_back(std::make_unique<RawPeer>(address));
    raw_.push_back(peers.back().get());
    return *peers.back();
  };
  const std::string_view http =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: nobody/1.0\r\n\r\n";
  add().say(std::as_bytes(std::span(http)));
  add().say(std::vector<std::byte>(100000, std::byte{0xa5}));
  add().say_greeting(GreetingKind::accept);
  add().say_greeting(GreetingKind::reject);
  add().say_greeting(GreetingKind::connect, 4097);
  add().say_greeting(GreetingKind::connect, 65535);
  RawPeer& cut = add();
  cut.say(std::vector<std::byte>(20, std::byte{'P'}));
  ASSERT_TRUE(run_until([&] { return cut.all_said(); }));
  cut.finish_sending();
  RawPeer& no_hello = add();
  no_hello.say_greeting(GreetingKind::connect, 100);  // it never comes
  ASSERT_TRUE(run_until([&] {
    return std::all_of(peers.begin(), peers.end() - 1,
                       [](const auto& peer) { return peer->ended(); });
  }));
  EXPECT_FALSE(no_hello.ended());
  EXPECT_EQ(b_.fabric->resources().endpoints, 1u);
  advance(kHandshakeDeadline + 1ms);
  EXPECT_TRUE(run_until([&] { return no_hello.ended(); }));
  EXPECT_EQ(b_.fabric->resources().endpoints, 0u);
  EXPECT_EQ(b_.count(EventKind::connect_request), 0u);
  EXPECT_TRUE(b_.events.empty());
}

// Data behind the greeting, before it is accepted, waits; so does what is behind a message.
TEST_F(TcpHostile, EverythingInOneWrite) {
  const std::string address = listen();
  RawPeer raw(address);
  raw_.push_back(&raw);
  raw.say_greeting();
  for (int i = 1; i <= 20; ++i) {
    raw.say_frame({.type = FrameType::message, .length = 100}, 100);
  }
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::connect_request) != nullptr; }));
  const EndpointId endpoint = b_.event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(b_.fabric->accept(endpoint, {.group = {1}, .receive_depth = 4}, {}).ok());
  auto slots = b_.memory(4096);
  run_turns(20);
  for (std::uint64_t id = 1; id <= 20; ++id) {
    b_.receive(endpoint, id, slots->segment(0, 100));
    ASSERT_TRUE(run_until([&] { return b_.done(id); }));
    EXPECT_EQ(b_.status(id), "success");
  }
  // Each was acknowledged, though not each by a frame of its own.
  std::uint64_t acknowledged = 0;
  ASSERT_TRUE(run_until([&] {
    FrameHeader frame;
    for (std::size_t at = 0; raw.frame(at, frame); at += kFrameBytes) acknowledged = frame.value;
    return acknowledged == 20;
  }));
}

TEST_F(TcpHostile, ThePeerThatDied) {
  auto memory = b_.memory(4096);
  for (const bool reset : {false, true}) {
    EndpointId endpoint;
    auto raw = raw_link(endpoint);
    b_.completions.clear();
    b_.receive(endpoint, 1, memory->segment(0, 64));
    b_.send(endpoint, 2, memory->segment(64, 64));
    b_.read(endpoint, 3, memory->segment(128, 64), {.key = 5});
    run_turns(5);
    std::erase(raw_, raw.get());
    if (reset) raw->reset();
    raw.reset();
    expect_failed(endpoint, Code::connection_lost, "");
    ASSERT_TRUE(run_until([&] { return b_.done(1) && b_.done(2) && b_.done(3); }));
    for (const std::uint64_t id : {1, 2, 3}) EXPECT_EQ(b_.status(id), "flushed");
  }
}

TEST_F(TcpHostile, AFaultOfThePeerIsReportedInItsWordsMadePrintable) {
  EndpointId endpoint;
  const auto raw = raw_link(endpoint);
  raw->say_frame({.type = FrameType::fault, .status = 1, .length = 9});
  raw->say(std::as_bytes(std::span("you \x1b[31m", 9)));
  expect_failed(endpoint, Code::protocol_error, "you ?[31m");
}

}  // namespace
}  // namespace pawl::fabric::tcp
