// SPDX-License-Identifier: Apache-2.0
// Where nodes listen and what their peers dial: wildcards, names, IPv6 with and without zones, no
// IPv6 at all, and ways that end at the wrong process. Cases 43 and 44.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/tcp/tcp_fabric.h"
#include "pawl/blocking.h"
#include "pawl/node.h"
#include "rpc/fabric_source.h"
#include "support/function_service.h"
#include "support/loopback.h"
#include "support/own_network.h"
#include "support/proxy.h"

namespace pawl {
namespace {

constexpr Method kWho = make_method("test.Address/Who");
constexpr Method kGet = make_method("test.Address/Get", BulkDirection::download);
constexpr std::size_t kBytes = std::size_t{1} << 20;

/// The tcp fabric, and the names that it knows.
class Names final : public detail::FabricSource {
 public:
  using Known = std::map<std::string, std::vector<std::string>>;

  explicit Names(Known known) : known_(std::move(known)) {}
  Result<std::unique_ptr<fabric::Fabric>> make_fabric(std::size_t) override {
    fabric::tcp::TcpOptions options;
    options.look_up = [known = known_](const std::string& host) {
      fabric::HostAddresses found;
      if (const auto name = known.find(host); name != known.end()) {
        for (const std::string& text : name->second) {
          found.addresses.push_back(fabric::parse_target(text + ":0")->addresses.front());
        }
      } else {
        found.error = "unknown here";
      }
      return found;
    };
    return fabric::tcp::make_tcp_fabric(options);
  }
  [[nodiscard]] const char* name() const override { return "tcp"; }

 private:
  Known known_;
};

NodeOptions tcp() {
  NodeOptions options;
  options.fabric = "tcp";
  return options;
}

/// A node that says its name and lends it in bulk.
class Station {
 public:
  explicit Station(char name) : name_(name), node_(tcp()) {
    service_.add(
        kWho,
        [this](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
          ++calls_;
          co_return Payload::of(std::string(1, name_));
        });
    service_.add(kGet,
                 [this](Call& call, std::span<const std::byte>, Upload&,
                        Download& out) -> Task<Result<Payload>> {
                   ++calls_;
                   auto buffer = co_await ok(call.pool().acquire(kBytes));
                   std::memset(buffer.bytes().data(), name_, kBytes);
                   out.add(std::move(buffer).freeze());
                   co_return Payload();
                 });
  }
  Status serve(const std::string& address) {
    Result<Server> serving = node_.serve(address, service_);
    if (!serving.ok()) return serving.status();
    server_ = *std::move(serving);
    if (!node_.running()) node_.run_background();
    return {};
  }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  /// ":port".
  [[nodiscard]] std::string port() const { return address().substr(address().rfind(':')); }
  [[nodiscard]] Node& node() { return node_; }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  char name_;
  std::atomic<int> calls_{0};
  testing::FunctionService service_;
  Node node_;
  Server server_;
};

/// How a call and a megabyte in bulk came from the node that a channel leads to: "a", or the error.
std::string ask(Node& client, const Channel& channel) {
  const Outcome<Payload> who = block(channel.call(kWho, Payload()));
  if (!who.ok()) return who.to_string();
  const Outcome<Pulled<Payload>> got = block(channel.call(kGet, Payload(), into(client.pool())));
  if (!got.ok()) return got.to_string();
  const std::string bytes(reinterpret_cast<const char*>(got->parts()[0]->bytes().data()),
                          got->parts()[0]->size());
  const std::string name(who->text());
  return bytes == std::string(kBytes, name[0]) ? name : "other bytes than " + name + "'s";
}

std::string ask(const std::string& address, const NodeOptions& options = tcp()) {
  Node client(options);
  client.run_background();
  return ask(client, client.channel(address));
}

/// Local addresses of the connections that the listener at this port of IPv4 took: "127.0.1.1".
std::multiset<std::string> dialled(const std::string& port) {
  std::multiset<std::string> found;
  std::ifstream table("/proc/thread-self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned int slot = 0, local = 0, local_port = 0, peer = 0, peer_port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %u: %x:%x %x:%x %x", &slot, &local, &local_port, &peer,
                    &peer_port, &state) != 6) {
      continue;
    }
    if (state != 1 || ":" + std::to_string(local_port) != port) continue;
    const auto* const byte = reinterpret_cast<const unsigned char*>(&local);
    found.insert(std::to_string(byte[0]) + "." + std::to_string(byte[1]) + "." +
                 std::to_string(byte[2]) + "." + std::to_string(byte[3]));
  }
  return found;
}

// --- case 43: what is advertised, and what is dialled -----------------------------------------

// case 43
TEST(Advertised, FiftyProcessesGetPortsOfTheirOwnAndAnswerForThemselves) {
  constexpr int kServers = 50;
  int go[2];
  int said[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC) | ::pipe2(said, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kServers; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    ::close(go[1]);
    char none = 0;
    static_cast<void>(!::read(go[0], &none, 1));  // all begin at the same time
    testing::FunctionService service;
    service.add(kWho,
                [](Call&, std::span<const std::byte>, Upload&, Download&) -> Task<Result<Payload>> {
                  co_return Payload::of(std::to_string(::getpid()));
                });
    Node node(tcp());
    const Result<Server> server = node.serve("127.0.0.1:0", service);
    const std::string line = std::to_string(::getpid()) + " " +
                             (server.ok() ? server->address() : server.status().to_string()) + "\n";
    static_cast<void>(!::write(said[1], line.data(), line.size()));
    node.run();  // until it is killed
    ::_exit(0);
  }
  ::close(go[0]);
  ::close(go[1]);
  ::close(said[1]);
  std::string lines;
  char piece[4096];
  while (std::count(lines.begin(), lines.end(), '\n') < kServers) {
    const ssize_t got = ::read(said[0], piece, sizeof piece);
    ASSERT_GT(got, 0) << "a server ended; they said\n" << lines;
    lines.append(piece, static_cast<std::size_t>(got));
  }
  ::close(said[0]);
  Node client(tcp());
  client.run_background();
  std::set<std::string> addresses;
  std::istringstream all(lines);
  std::string pid, address;
  while (all >> pid && std::getline(all >> std::ws, address)) {
    addresses.insert(address);
    const Outcome<Payload> who = block(client.channel(address).call(kWho, Payload()));
    ASSERT_TRUE(who.ok()) << who.to_string();
    EXPECT_EQ(who->text(), pid) << address;
  }
  EXPECT_EQ(addresses.size(), static_cast<std::size_t>(kServers));
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// A machine with three addresses of IPv4, of which the first interface is down. case 43
TEST(Advertised, BehindAWildcardItIsTheAddressOfAnInterfaceThatIsUp) {
  const testing::OwnNetwork network;
  if (network.missing() != nullptr) GTEST_SKIP() << network.missing();
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::string i(name);
    if (!network.ip("link add p" + i + " type veth peer name q" + i)) {
      GTEST_SKIP() << "this kernel has no veth interfaces";
    }
    ASSERT_TRUE(network.ip("link set q" + i + " up"));
  }
  ASSERT_TRUE(
      network.ip("addr add 10.43.0.1/24 dev pa") && network.ip("addr add 10.43.1.1/24 dev pb") &&
      network.ip("addr add 10.43.2.1/24 dev pc") && network.ip("addr add 10.43.3.1/24 dev pd"));
  for (const char* name : {"pb", "pc", "pd"}) {
    ASSERT_TRUE(network.ip("link set " + std::string(name) + " up"));
  }
  Station a('a');
  ASSERT_TRUE(a.serve("0.0.0.0:0").ok());
  EXPECT_EQ(a.address(), "10.43.1.1" + a.port());
  for (const char* host : {"127.0.0.1", "10.43.1.1", "10.43.2.1", "10.43.3.1"}) {
    Node client(tcp());
    client.run_background();
    const Channel channel = client.channel(host + a.port());
    EXPECT_EQ(ask(client, channel), "a");
    // Both of its connections, the one with the messages and the one with the bytes.
    EXPECT_EQ(dialled(a.port()).count(host), 2u) << host;
  }
}

// Behind [::], which takes both families, it is one of IPv6 only if an interface has a global one.
// case 43
TEST(Advertised, BehindBothFamiliesItIsOneThatThereIs) {
  const testing::OwnNetwork network;
  if (network.missing() != nullptr) GTEST_SKIP() << network.missing();
  if (!network.ip("link add p type veth peer name q")) {
    GTEST_SKIP() << "this kernel has no veth interfaces";
  }
  ASSERT_TRUE(network.ip("link set q up") && network.ip("addr add 10.43.0.1/24 dev p") &&
              network.ip("link set p up"));
  Station a('a');
  ASSERT_TRUE(a.serve("[::]:0").ok());
  EXPECT_EQ(a.address(), "10.43.0.1" + a.port());
  EXPECT_EQ(ask(a.address()), "a");
  if (!network.ip("addr add fd43::1/64 dev p nodad")) GTEST_SKIP() << "this machine has no IPv6";
  Station b('b');
  ASSERT_TRUE(b.serve("[::]:0").ok());
  EXPECT_EQ(b.address(), "[fd43::1]" + b.port());
  EXPECT_EQ(ask(b.address()), "b");
}

// The name of a machine that is its loopback address, as some systems have it. case 43
TEST(Advertised, DataEndpointsDialTheAddressThatTheNameHad) {
  Names names(Names::Known{{"this-machine.test", {"127.0.1.1"}}});
  NodeOptions options = tcp();
  options.fabric_source = &names;
  Station a('a');
  ASSERT_TRUE(a.serve("0.0.0.0:0").ok());
  Node client(options);
  client.run_background();
  const Channel channel = client.channel("this-machine.test" + a.port());
  EXPECT_EQ(ask(client, channel), "a");
  EXPECT_EQ(dialled(a.port()), (std::multiset<std::string>{"127.0.1.1", "127.0.1.1"}));
}

// The server cannot be reached at the address that it has itself. case 43
TEST(Advertised, DataEndpointsTakeTheSameWayAsMessages) {
  Station a('a');
  ASSERT_TRUE(a.serve("127.0.0.1:0").ok());
  const testing::Proxy way([&](std::size_t) { return a.address(); });
  EXPECT_EQ(ask(way.address()), "a");
  EXPECT_EQ(way.connections(), 2u);
  EXPECT_GT(way.bytes(), kBytes);
}

// Messages go to one server, and every data endpoint reaches another one, as after a port that was
// given twice. case 43
TEST(Advertised, AWrongProcessBehindTheDataEndpointRefuses) {
  Station a('a');
  Station b('b');
  ASSERT_TRUE(a.serve("127.0.0.1:0").ok() && b.serve("127.0.0.1:0").ok());
  const testing::Proxy way([&](std::size_t n) { return n == 0 ? a.address() : b.address(); });
  Node client(tcp());
  client.run_background();
  const Channel channel = client.channel(way.address());
  std::string text;
  CallOptions options;
  // Long enough for an answer, whatever else this machine does.
  for (options.deadline = 100ms;
       options.deadline < 60s && text.find("refused") == std::string::npos; options.deadline *= 2) {
    const Outcome<Pulled<Payload>> got =
        block(channel.call(kGet, Payload(), into(client.pool()), options));
    EXPECT_EQ(got.status().code(), Code::deadline) << got.to_string();
    text = got.to_string();
  }
  EXPECT_NE(text.find("names no connection"), std::string::npos) << text;
  EXPECT_NE(text.find("ran: yes"), std::string::npos) << text;
  EXPECT_GE(way.connections(), 2u);
  EXPECT_EQ(b.calls(), 0);
  EXPECT_EQ(b.node().stats().leases_lent, 0u);
  // The other way is none the worse.
  const Outcome<Payload> who = block(channel.call(kWho, Payload()));
  ASSERT_TRUE(who.ok()) << who.to_string();
  EXPECT_EQ(who->text(), "a");
}

// case 43
TEST(Advertised, ATicketNamesNoWildcard) {
  Station a('a');
  ASSERT_TRUE(a.serve("0.0.0.0:0").ok());
  const auto issue = [&](const std::string& listen) {
    Result<Buffer> buffer = block(a.node().pool().acquire(4096));
    EXPECT_TRUE(buffer.ok());
    std::memset(buffer->bytes().data(), 'a', buffer->size());
    std::vector<Block> blocks;
    blocks.push_back((*std::move(buffer)).freeze());
    return a.node().issue_ticket(std::move(blocks), listen, 60s).status();
  };
  for (const char* host : {"0.0.0.0", "[::]", "[::0]"}) {
    const Status status = issue(host + a.port());
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.what().find(host), std::string_view::npos) << status.to_string();
  }
  EXPECT_TRUE(issue(a.address()).ok());
  EXPECT_TRUE(issue("store-1.test" + a.port()).ok());
}

// --- case 44: IPv6 ----------------------------------------------------------------------------

// case 44
TEST(Ipv6, AListenerOnItsWildcardTakesBothFamilies) {
  if (const char* missing = testing::ipv6_missing()) GTEST_SKIP() << missing;
  // Where there is a right to, on a machine whose default is one family only.
  const testing::OwnNetwork network;
  EXPECT_TRUE(network.missing() != nullptr || network.set_ipv6("bindv6only", 1));
  Station a('a');
  ASSERT_TRUE(a.serve("[::]:0").ok());
  for (const char* host : {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"}) {
    EXPECT_EQ(ask(host + a.port()), "a") << host;
  }
  EXPECT_EQ(ask(a.address()), "a") << a.address();
}

// case 44
TEST(Ipv6, EveryFormListensAndIsReachedAtItsOwnAddress) {
  if (const char* missing = testing::ipv6_missing()) GTEST_SKIP() << missing;
  for (const char* form : {"[::]:0", "0.0.0.0:0", "[::1]:0", "127.0.0.1:0", "localhost:0"}) {
    Station a('a');
    const Status serving = a.serve(form);
    ASSERT_TRUE(serving.ok()) << serving.to_string();
    EXPECT_EQ(ask(a.address()), "a") << form << " is " << a.address();
  }
}

// The address that comes first is of the other family, and nobody is there. case 44
TEST(Ipv6, EveryAddressOfANameIsTried) {
  if (const char* missing = testing::ipv6_missing()) GTEST_SKIP() << missing;
  Names names({{"six-first.test", {"[::1]", "127.0.0.1"}},
               {"four-first.test", {"127.0.0.1", "[::1]"}},
               {"many.test", {"[::1]", "127.0.0.2", "127.0.0.3", "[::1]", "127.0.0.1"}}});
  NodeOptions options = tcp();
  options.fabric_source = &names;
  for (const char* listen : {"127.0.0.1:0", "[::1]:0"}) {
    Station a('a');
    ASSERT_TRUE(a.serve(listen).ok());
    for (const char* name : {"six-first.test", "four-first.test", "many.test"}) {
      EXPECT_EQ(ask(name + a.port(), options), "a") << name << " for " << listen;
    }
  }
}

// case 44
TEST(Ipv6, AServerListensAtAddressesAndSaysSoOfAName) {
  Station a('a');
  const Status status = a.serve("six-first.test:0");
  EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
  EXPECT_NE(status.what().find("six-first.test"), std::string_view::npos) << status.to_string();
}

// The same link-local address on two links: only the zone tells them apart. case 44
TEST(Ipv6, TheZoneOfALinkLocalAddressIsKept) {
  const testing::OwnNetwork network;
  if (network.missing() != nullptr) GTEST_SKIP() << network.missing();
  for (const char* name : {"a", "b"}) {
    const std::string i(name);
    if (!network.ip("link add p" + i + " type veth peer name q" + i)) {
      GTEST_SKIP() << "this kernel has no veth interfaces";
    }
    ASSERT_TRUE(network.ip("link set q" + i + " up") && network.ip("link set p" + i + " up"));
    if (!network.ip("addr add fe80::44/64 dev p" + i + " nodad")) {
      GTEST_SKIP() << "this machine has no IPv6";
    }
  }
  Station a('a');
  Station b('b');
  ASSERT_TRUE(a.serve("[fe80::44%pa]:0").ok());
  ASSERT_TRUE(b.serve("[fe80::44%pb]" + a.port()).ok()) << "the port is free on the other link";
  EXPECT_EQ(a.address(), "[fe80::44%pa]" + a.port());
  EXPECT_EQ(b.address(), "[fe80::44%pb]" + a.port());
  EXPECT_EQ(ask(a.address()), "a");
  EXPECT_EQ(ask(b.address()), "b");
  const std::string without = ask("[fe80::44]" + a.port());
  EXPECT_NE(without.find("zone"), std::string::npos) << without;
}

/// What works where there is no IPv6: wildcards and names go on with IPv4, and what can only be
/// IPv6 says so.
void expect_ipv4_only() {
  Names names({{"both.test", {"[::1]", "127.0.0.1"}}, {"six.test", {"[::1]"}}});
  NodeOptions options = tcp();
  options.fabric_source = &names;
  Station a('a');
  const Status serving = a.serve("[::]:0");
  ASSERT_TRUE(serving.ok()) << serving.to_string();
  EXPECT_EQ(a.address(), "127.0.0.1" + a.port());
  EXPECT_EQ(ask(a.address()), "a");
  for (const char* name : {"both.test", "localhost", "127.0.0.1"}) {
    EXPECT_EQ(ask(name + a.port(), options), "a") << name;
  }
  Node client(options);
  client.run_background();
  CallOptions once;
  once.wait_for_connection = false;
  for (const char* name : {"six.test", "[::1]"}) {
    const Outcome<Payload> none =
        block(client.channel(name + a.port()).call(kWho, Payload(), once));
    EXPECT_EQ(none.status().code(), Code::unavailable) << none.to_string();
    EXPECT_NE(none.status().what().find("[::1]"), std::string_view::npos) << none.to_string();
  }
  Station b('b');
  const Status refused = b.serve("[::1]:0");
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.what().find("[::1]:0"), std::string_view::npos) << refused.to_string();
}

// case 44
TEST(Ipv6, SwitchedOffBySysctlEverythingGoesOnWithIpv4) {
  const testing::OwnNetwork network;
  if (network.missing() != nullptr) GTEST_SKIP() << network.missing();
  if (!network.set_ipv6("conf/all/disable_ipv6", 1) ||
      !network.set_ipv6("conf/default/disable_ipv6", 1)) {
    GTEST_SKIP() << "the sysctl disable_ipv6 cannot be written";
  }
  expect_ipv4_only();
}

// case 44
TEST(Ipv6, OnAKernelWithoutItEverythingGoesOnWithIpv4) {
  const testing::OwnNetwork network;  // whose only IPv4 address is that of the loopback
  if (network.missing() != nullptr) GTEST_SKIP() << network.missing();
  const char* missing = nullptr;
  std::thread([&] {
    missing = testing::forbid_ipv6();
    if (missing == nullptr) expect_ipv4_only();
  }).join();
  if (missing != nullptr) GTEST_SKIP() << missing;
}

}  // namespace
}  // namespace pawl
