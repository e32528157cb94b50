// SPDX-License-Identifier: Apache-2.0
// Becoming connected: names, addresses that do not answer, Unix sockets, and the bounds on those
// who knock.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "fabric/socket/address.h"
#include "fabric/socket/socket.h"
#include "fabric/tcp/limits.h"
#include "support/loopback.h"
#include "support/process_use.h"
#include "tcp/harness.h"

namespace pawl::fabric::tcp {
namespace {

class TcpConnect : public TcpTest {
 protected:
  const Status& connect_status(EndpointId endpoint) {
    EXPECT_TRUE(
        run_until([&] { return a_.event(EventKind::connect_failed, endpoint) != nullptr; }));
    return a_.event(EventKind::connect_failed, endpoint)->status;
  }
  void accept_first() {
    ASSERT_TRUE(run_until([&] { return b_.event(EventKind::connect_request) != nullptr; }));
    ASSERT_TRUE(
        b_.fabric->accept(b_.event(EventKind::connect_request)->endpoint, {.group = {1}}, {}).ok());
    ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connected) != nullptr; }));
  }
};

TEST_F(TcpConnect, LocalhostTriesItsAddressesInTurn) {
  if (const char* missing = testing::ipv6_missing()) GTEST_SKIP() << missing;
  // Nobody listens on 127.0.0.1 there, but on ::1.
  const std::string address = listen("[::1]:0");
  const std::string port = address.substr(address.rfind(':'));
  ASSERT_TRUE(a_.fabric->connect("localhost" + port, {.group = {1}}, {}, now() + 60s).ok());
  accept_first();
  const std::string& peer = a_.event(EventKind::connected)->peer_address;
  EXPECT_NE(peer.find("localhost"), std::string::npos) << peer;
  EXPECT_NE(peer.find("[::1]"), std::string::npos) << peer;
}

/// A name server that answers when it is told to: every name is 127.0.0.1. Looked up on the thread
/// that made it, which is the poller's here, it answers at once, and says so.
class SlowNames {
 public:
  [[nodiscard]] TcpOptions options() const {
    TcpOptions options;
    options.look_up = [state = state_](const std::string& host) {
      if (std::this_thread::get_id() == state->poller) {
        state->on_the_poller = true;
        return HostAddresses{.addresses = {}, .error = "looked up on the poller"};
      }
      ++state->asked;
      state->answer.wait();
      return HostAddresses{.addresses = parse_target("127.0.0.1:0")->addresses, .error = host};
    };
    return options;
  }
  void answer() { state_->told.set_value(); }
  [[nodiscard]] int asked() const { return state_->asked; }
  [[nodiscard]] bool on_the_poller() const { return state_->on_the_poller; }

 private:
  struct State {
    const std::thread::id poller = std::this_thread::get_id();
    std::promise<void> told;
    std::shared_future<void> answer = told.get_future().share();
    std::atomic<int> asked{0};
    std::atomic<bool> on_the_poller{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST_F(TcpConnect, TurnsGoOnWhileANameIsLookedUp) {
  SlowNames names;
  Node node(names.options());
  const std::string address = listen();
  const auto until = [&](const std::function<bool()>& done) {
    return run_until([&] {
      node.turn(now());
      return done();
    });
  };
  const auto connect_to = [&](const std::string& to) {
    return node.fabric->connect(to, {.group = {1}}, {}, now() + 600s).value();
  };
  const EndpointId named = connect_to("a-name.test" + address.substr(address.rfind(':')));
  ASSERT_TRUE(until([&] { return names.asked() == 1 || names.on_the_poller(); }));
  // The look-up is under way and stays so: meanwhile another connection is made and used.
  const EndpointId other = connect_to(address);
  ASSERT_TRUE(until([&] { return b_.event(EventKind::connect_request) != nullptr; }));
  const EndpointId accepted = b_.event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(b_.fabric->accept(accepted, {.group = {1}}, {}).ok());
  ASSERT_TRUE(until([&] { return node.event(EventKind::connected, other) != nullptr; }));
  auto out = node.memory(64);
  auto in = b_.memory(64);
  b_.receive(accepted, 1, in->segment(0, 64));
  node.send(other, 2, out->segment(0, 64));
  ASSERT_TRUE(until([&] { return b_.done(1) && node.done(2); }));
  EXPECT_EQ(b_.count(EventKind::connect_request), 1u) << "nobody has told the address yet";
  EXPECT_EQ(node.event(EventKind::connect_failed, named), nullptr);
  EXPECT_FALSE(names.on_the_poller());

  names.answer();
  ASSERT_TRUE(until([&] { return b_.count(EventKind::connect_request) == 2; }));
  EndpointId second;
  for (const Event& event : b_.events) {
    if (event.kind == EventKind::connect_request) second = event.endpoint;
  }
  ASSERT_TRUE(b_.fabric->accept(second, {.group = {1}}, {}).ok());
  ASSERT_TRUE(until([&] { return node.event(EventKind::connected, named) != nullptr; }));
  const std::string& peer = node.event(EventKind::connected, named)->peer_address;
  EXPECT_NE(peer.find("a-name.test"), std::string::npos) << peer;
}

TEST_F(TcpConnect, ALookupMayOutliveItsFabric) {
  SlowNames names;
  {
    Node node(names.options());
    ASSERT_TRUE(node.fabric->connect("a-name.test:1", {.group = {1}}, {}, now() + 60s).ok());
    ASSERT_TRUE(run_until([&] { return names.asked() == 1; }));
  }
  names.answer();
}

TEST_F(TcpConnect, AnUnknownNameFailsByName) {
  const EndpointId endpoint =
      a_.fabric->connect("no-such-host.invalid:1", {.group = {1}}, {}, now() + 60s).value();
  run_turns(100);
  const Status& status = connect_status(endpoint);
  EXPECT_NE(status.what().find("no-such-host.invalid:1"), std::string_view::npos);
  EXPECT_FALSE(status.ok());
}

TEST_F(TcpConnect, ALookupThatIsClosedOrLateTouchesNothing) {
  for (int i = 0; i < 8; ++i) {
    const EndpointId endpoint =
        a_.fabric->connect("no-such-host.invalid:1", {.group = {1}}, {}, now() + 1ms).value();
    if (i % 2 == 0) a_.fabric->close(endpoint);
  }
  advance(1s);
  EXPECT_TRUE(run_until([&] {
    return a_.count(EventKind::connect_failed) == 4 && a_.count(EventKind::closed) == 4;
  }));
}

TEST_F(TcpConnect, NeverToItself) {
  // An ephemeral port as destination: the kernel may connect the socket with itself.
  const std::string address = listen();
  ASSERT_EQ(b_.fabric->resources().listeners, 1u);
  Node other;
  const ListenerId gone = other.fabric->listen("127.0.0.1:0").value();
  const std::string dead = other.fabric->listener_address(gone);
  other.fabric->close_listener(gone);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(a_.fabric->connect(dead, {.group = {1}}, {}, now() + 60s).ok());
  }
  EXPECT_TRUE(run_until([&] { return a_.count(EventKind::connect_failed) == 50; }));
  EXPECT_EQ(a_.count(EventKind::connected), 0u);
}

TEST_F(TcpConnect, UnixSocketsAndTheFileThatADeadProcessLeft) {
  char folder[] = "/tmp/pawl-tcp-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/socket";
  {  // a process that died: the file stays
    const SocketAddress address = parse_target("unix:" + path)->addresses[0];
    const UniqueFd fd = stream_socket(AF_UNIX);
    ASSERT_EQ(::bind(fd.get(), address.get(), address.length), 0);
  }
  const ListenerId listener = b_.fabric->listen("unix:" + path).value();
  EXPECT_EQ(b_.fabric->listener_address(listener), "unix:" + path);
  // One that lives is not taken over.
  Node other;
  const Result<ListenerId> again = other.fabric->listen("unix:" + path);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), Code::already_exists);
  ASSERT_TRUE(a_.fabric->connect("unix:" + path, {.group = {1}}, {}, now() + 60s).ok());
  run_turns(5);
  // The probe of `other` knocked as well, and left.
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::connect_request) != nullptr; }));
  EXPECT_NE(b_.event(EventKind::connect_request)->peer_address.find(std::to_string(::getpid())),
            std::string::npos);
  accept_first();
  auto from = b_.memory(1 << 20);
  auto to = a_.memory(1 << 20);
  const RemoteAddress remote =
      b_.fabric->expose({1}, from->handle, from->bytes.data(), from->bytes.size()).value();
  a_.read(a_.event(EventKind::connected)->endpoint, 1, to->segment(0, 1 << 20), remote);
  ASSERT_TRUE(run_until([&] { return a_.done(1); }));
  EXPECT_EQ(a_.status(1), "success");
  b_.fabric->close_listener(listener);
  struct stat info {};
  EXPECT_NE(::stat(path.c_str(), &info), 0) << "the file is removed";
  // A file that is no socket is not ours to remove.
  const UniqueFd file(::creat(path.c_str(), 0600));
  EXPECT_FALSE(b_.fabric->listen("unix:" + path).ok());
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  ::unlink(path.c_str());
  ::rmdir(folder);
}

// No descriptor left: the device says so once, nothing spins, what is connected goes on, and it
// recovers by itself.
TEST_F(TcpConnect, WithoutDescriptorsAndAgainWithThem) {
  const Link link = connect();
  // Before, too: the undefined sanitizer needs a descriptor when it sees a class for the first
  // time.
  auto slots = b_.memory(64);
  auto message = a_.memory(64);
  b_.receive(link.b, 1, slots->segment(0, 64));
  a_.send(link.a, 2, message->segment(0, 64));
  ASSERT_TRUE(run_until([&] { return b_.done(1) && a_.done(2); }));
  const std::string address = listen();
  std::vector<std::unique_ptr<RawPeer>> knocking;
  for (int i = 0; i < 4; ++i) {
    knocking.push_back(std::make_unique<RawPeer>(address));
    knocking.back()->say_greeting();
    knocking.back()->turn();
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(::dup(0));  // the lowest free one; all below it are taken
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(next.get()) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  ASSERT_TRUE(run_until([&] { return b_.event(EventKind::device) != nullptr; }));
  const Status status = b_.event(EventKind::device)->status;
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_NE(status.what().find("EMFILE"), std::string_view::npos) << status.to_string();
  run_turns(10);
  EXPECT_TRUE(b_.fabric->arm()) << "it would spin";
  EXPECT_GT(b_.fabric->next_event_time(), now() - 1s);
  EXPECT_LE(b_.fabric->next_event_time(), now() + kAcceptRetry);
  b_.receive(link.b, 3, slots->segment(0, 64));
  a_.send(link.a, 4, message->segment(0, 64));
  EXPECT_TRUE(run_until([&] { return b_.done(3) && a_.done(4); }));
  advance(kAcceptRetry * 3);
  run_turns(10);
  EXPECT_EQ(b_.count(EventKind::device), 1u) << "said once";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(run_until([&] { return b_.count(EventKind::connect_request) == 5; }));
}

// Those who knock and say nothing take places for a bounded time, and are bounded in number.
TEST_F(TcpConnect, ThreeHundredWhoSayNothing) {
  const std::string address = listen();
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (std::size_t i = 0; i < kHalfOpenMax + 44; ++i) {
    silent.push_back(std::make_unique<RawPeer>(address));
  }
  run_turns(100);
  EXPECT_EQ(b_.fabric->resources().endpoints, kHalfOpenMax);
  EXPECT_TRUE(b_.fabric->arm()) << "it would spin";
  // An honest one comes behind them all and needs to wait for no more than an eviction.
  ASSERT_TRUE(a_.fabric->connect(address, {.group = {1}}, {}, now() + 60s).ok());
  run_turns(50);
  EXPECT_EQ(b_.count(EventKind::connect_request), 0u);
  advance(kHandshakeEvictAge + 1ms);
  accept_first();
  EXPECT_LE(b_.fabric->resources().endpoints, kHalfOpenMax + 1);
  advance(kHandshakeDeadline);
  run_turns(20);
  EXPECT_EQ(b_.fabric->resources().endpoints, 1u);
  EXPECT_EQ(b_.count(EventKind::closed), 0u) << "nobody has heard of them";
}

TEST_F(TcpConnect, NothingIsLeftOpen) {
  const std::size_t before = pawl::testing::open_files();
  {
    Node node;
    const ListenerId listener = node.fabric->listen("127.0.0.1:0").value();
    const std::string address = node.fabric->listener_address(listener);
    ASSERT_TRUE(a_.fabric->connect(address, {.group = {1}}, {}, now() + 60s).ok());
    run_turns(10);
    node.turn(now());
  }
  ASSERT_TRUE(run_until([&] { return a_.event(EventKind::connect_failed) != nullptr; }));
  EXPECT_EQ(pawl::testing::open_files(), before);
}

}  // namespace
}  // namespace pawl::fabric::tcp
