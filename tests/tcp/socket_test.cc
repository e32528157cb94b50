// SPDX-License-Identifier: Apache-2.0
// What the fabric asks of the kernel: the options of its sockets, descriptors that no child process
// inherits, and a peer that goes silent.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <set>
#include <string>

#include "fabric/tcp/limits.h"
#include "pawl/node.h"
#include "support/function_service.h"
#include "tcp/harness.h"

namespace pawl::fabric::tcp {
namespace {

std::set<int> open_descriptors() {
  std::set<int> found;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) found.insert(fd);
  }
  ::closedir(folder);
  return found;
}

std::set<int> opened_since(const std::set<int>& before) {
  std::set<int> opened;
  for (const int fd : open_descriptors()) {
    if (!before.contains(fd)) opened.insert(fd);
  }
  return opened;
}

std::string target_of(int fd) {
  char text[256] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(link.c_str(), text, sizeof text - 1);
  return n < 0 ? std::string("closed") : std::string(text, static_cast<std::size_t>(n));
}

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

/// The sockets of these that have a peer.
std::set<int> connected_sockets(const std::set<int>& descriptors) {
  std::set<int> connected;
  for (const int fd : descriptors) {
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0) connected.insert(fd);
  }
  return connected;
}

void expect_closed_on_exec(const std::set<int>& descriptors) {
  for (const int fd : descriptors) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd << " is " << target_of(fd);
  }
}

class TcpSocket : public TcpTest {};

TEST_F(TcpSocket, BothEndsHaveTheOptionsThatNoticeAPeerThatIsGone) {
  for (const bool bulk : {false, true}) {
    const std::set<int> before = open_descriptors();
    connect({.group = {1}, .bulk = bulk}, {.group = {1}, .bulk = bulk});
    const std::set<int> sockets = connected_sockets(opened_since(before));
    EXPECT_EQ(sockets.size(), 2u);
    for (const int fd : sockets) {
      EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 10);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
      EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
      EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
      if (bulk) {
        EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT), static_cast<int>(kPieceBytesMax));
      }
    }
  }
}

TEST_F(TcpSocket, NoDescriptorIsInherited) {
  const std::set<int> before = open_descriptors();
  Node node;
  const ListenerId listener = node.fabric->listen("127.0.0.1:0").value();
  const ListenerId local =
      node.fabric->listen("unix:@pawl-inherited-" + std::to_string(::getpid())).value();
  connect();
  for (const ListenerId each : {listener, local}) {
    ASSERT_TRUE(
        a_.fabric->connect(node.fabric->listener_address(each), {.group = {1}}, {}, now() + 60s)
            .ok());
  }
  ASSERT_TRUE(run_until([&] {
    node.turn(now());
    return node.count(EventKind::connect_request) == 2;
  }));
  const std::set<int> opened = opened_since(before);
  EXPECT_EQ(connected_sockets(opened).size(), 6u) << "both ends of three connections";
  expect_closed_on_exec(opened);
}

TEST_F(TcpSocket, NoDescriptorOfAWholeNodeIsInherited) {
  constexpr Method kEcho = make_method("test.Inherited/Echo");
  testing::FunctionService service;
  service.add(kEcho,
              [](Call&, std::span<const std::byte> request, Upload&,
                 Download&) -> Task<Result<Payload>> { co_return Payload(request); });
  const std::set<int> before = open_descriptors();
  NodeOptions options;
  options.fabric = "tcp";
  pawl::Node server(options);
  Result<Server> serving = server.serve("127.0.0.1:0", service);
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  server.run_background();
  pawl::Node client(options);
  client.run_background();
  const Channel channel = client.channel(serving->address());
  ASSERT_TRUE(block(channel.call(kEcho, Payload::of("x"))).ok());
  const std::set<int> opened = opened_since(before);
  EXPECT_EQ(connected_sockets(opened).size(), 2u);
  EXPECT_GT(opened.size(), 8u) << "pollers and fabrics have descriptors of their own";
  expect_closed_on_exec(opened);
}

// Promise 12: the peer's host takes no byte any more, so the kernel's time limit ends the socket.
TEST_F(TcpSocket, APeerThatStopsAcknowledgingIsRetryExceeded) {
  TcpOptions options;
  options.keep_alive.unacked = 1s;
  Node node(options);
  const ListenerId listener = node.fabric->listen("127.0.0.1:0").value();
  RawPeer peer(node.fabric->listener_address(listener));
  peer.say_greeting();
  const auto until = [&](const std::function<bool()>& done) {
    return run_until([&] {
      peer.turn();
      node.turn(now());
      return done();
    });
  };
  ASSERT_TRUE(until([&] { return node.event(EventKind::connect_request) != nullptr; }));
  const EndpointId endpoint = node.event(EventKind::connect_request)->endpoint;
  ASSERT_TRUE(node.fabric->accept(endpoint, {.group = {1}}, {}).ok());
  ASSERT_TRUE(until([&] { return peer.heard().size() == kGreetingBytes; }));
  peer.stop_reading();
  // More than the two sockets hold, so that bytes wait for their acknowledgement.
  auto memory = node.memory(kMessageBytesMax);
  constexpr std::uint64_t kMessages = 64;
  node.receive(endpoint, 1, memory->segment(0, 64));
  for (std::uint64_t id = 2; id < 2 + kMessages; ++id) {
    node.send(endpoint, id, memory->segment(0, kMessageBytesMax));
  }
  ASSERT_TRUE(until([&] { return node.event(EventKind::failed, endpoint) != nullptr; }));
  ASSERT_TRUE(until([&] { return node.completions.size() == kMessages + 1; }));
  const Status& why = node.event(EventKind::failed, endpoint)->status;
  EXPECT_EQ(why.code(), Code::connection_lost) << why.to_string();
  EXPECT_EQ(why.native(), ETIMEDOUT) << why.to_string();
  EXPECT_EQ(node.status(2), "retry_exceeded") << "the oldest";
  EXPECT_EQ(node.completions[2].native, ETIMEDOUT);
  EXPECT_EQ(node.status(1), "flushed");
  for (std::uint64_t id = 3; id < 2 + kMessages; ++id) EXPECT_EQ(node.status(id), "flushed") << id;
  node.fabric->close(endpoint);
  EXPECT_TRUE(until([&] { return node.event(EventKind::closed, endpoint) != nullptr; }));
}

}  // namespace
}  // namespace pawl::fabric::tcp
